import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arf_dask.forest import (
    LEAF,
    Tree,
    depth_levels,
    gate_tree,
    graft,
    grow_tree,
    leaf_boxes,
    leaf_nodes,
    leaf_numbers,
    prune,
    route,
)
from arf_dask.tables import parent_ranges

N_CODES = np.array([6, 5, 4], dtype=np.int32)

# A drawing of a tree: None is a leaf, (variable, threshold, left, right) an inner node.
FIVE = (0, 2, None, (1, 1, None, None))
SEVEN = (0, 2, (1, 0, None, None), (2, 1, None, None))
CHAIN = (0, 0, None, (0, 1, None, (0, 2, None, None)))


def flat(drawing) -> Tree:
    """A drawing as arrays, numbered in preorder."""
    nodes: list[list[int]] = []

    def visit(part) -> int:
        here = len(nodes)
        nodes.append([LEAF, 0, LEAF, LEAF])
        if part is not None:
            feature, threshold, left, right = part
            nodes[here] = [feature, threshold, visit(left), visit(right)]
        return here

    visit(drawing)
    return Tree(*np.array(nodes, dtype=np.int32).T)


def drawn(tree: Tree, node: int = 0):
    """Arrays as a drawing."""
    if tree.left[node] < 0:
        return None
    sides = (drawn(tree, int(tree.left[node])), drawn(tree, int(tree.right[node])))
    return (int(tree.feature[node]), int(tree.threshold[node]), *sides)


def walk(tree: Tree, row) -> int:
    node = 0
    while tree.left[node] >= 0:
        goes_left = row[tree.feature[node]] <= tree.threshold[node]
        node = int(tree.left[node] if goes_left else tree.right[node])
    return node


def rows(*some) -> np.ndarray:
    return np.array(some, dtype=np.uint16)


def shuffled(tree: Tree, order) -> Tree:
    """The same tree with its nodes numbered in another order (the root stays 0)."""
    order = np.concatenate([[0], 1 + np.array(order, dtype=int)])
    place = np.argsort(order)
    children = [np.where(side[order] >= 0, place[side[order]], LEAF) for side in (tree.left, tree.right)]
    arrays = (tree.feature[order], tree.threshold[order], *children)
    return Tree(*(array.astype(np.int32) for array in arrays))


def drawings(depth: int = 5):
    inner = st.tuples(st.integers(0, 2), st.integers(0, 3))
    return st.recursive(
        st.none(), lambda part: st.tuples(inner, part, part).map(lambda t: (*t[0], t[1], t[2])), max_leaves=12
    )


codes = st.lists(st.tuples(*(st.integers(0, int(n) - 1) for n in N_CODES)), min_size=1, max_size=40).map(
    lambda some: np.array(some, dtype=np.uint16)
)


@st.composite
def numbered_trees(draw):
    tree = flat(draw(drawings()))
    return shuffled(tree, draw(st.permutations(range(len(tree.left) - 1))))


def test_a_row_goes_left_up_to_the_threshold():
    tree = flat(FIVE)
    found = route(tree, rows([0, 4, 0], [2, 4, 0], [3, 0, 0], [3, 1, 0], [3, 2, 0]))
    assert found.tolist() == [1, 1, 3, 3, 4]


def test_rows_may_start_further_down():
    tree = flat(FIVE)
    found = route(tree, rows([0, 0, 0], [0, 4, 0], [5, 5, 3]), np.array([2, 2, 1], dtype=np.int32))
    assert found.tolist() == [3, 4, 1]


def test_a_tree_of_one_leaf_holds_every_row():
    tree = flat(None)
    assert route(tree, rows([1, 2, 3], [0, 0, 0])).tolist() == [0, 0]
    assert leaf_numbers(tree, rows([1, 2, 3])).tolist() == [0]


@given(numbered_trees(), codes)
def test_routing_is_a_walk_from_the_root(tree, some):
    assert route(tree, some).tolist() == [walk(tree, row) for row in some]


def test_leaves_are_numbered_from_left_to_right():
    assert leaf_nodes(flat(SEVEN)).tolist() == [2, 3, 5, 6]
    assert leaf_numbers(flat(SEVEN), rows([0, 0, 0], [0, 1, 0], [3, 0, 0], [3, 0, 3])).tolist() == [
        0,
        1,
        2,
        3,
    ]


def test_nodes_by_depth():
    assert [sorted(level.tolist()) for level in depth_levels(flat(SEVEN))] == [[0], [1, 4], [2, 3, 5, 6]]
    assert [level.tolist() for level in depth_levels(flat(None))] == [[0]]


def test_boxes_of_a_tree_of_seven_nodes():
    boxes = leaf_boxes(flat(SEVEN), N_CODES)
    assert boxes.low.tolist() == [[0, 0, 0], [0, 1, 0], [3, 0, 0], [3, 0, 2]]
    assert boxes.high.tolist() == [[2, 0, 3], [2, 4, 3], [5, 4, 1], [5, 4, 3]]


def test_a_variable_split_twice_narrows_its_box_twice():
    boxes = leaf_boxes(flat(CHAIN), N_CODES)
    assert boxes.low[:, 0].tolist() == [0, 1, 2, 3]
    assert boxes.high[:, 0].tolist() == [0, 1, 2, 5]


@given(drawings(), codes)
def test_every_row_lies_in_the_box_of_its_leaf_and_in_no_other(drawing, some):
    tree = flat(drawing)
    boxes = leaf_boxes(tree, N_CODES)
    inside = (some[:, None, :] >= boxes.low) & (some[:, None, :] <= boxes.high)
    inside = inside.all(axis=2)
    assert np.array_equal(inside.sum(axis=1), np.ones(len(some)))
    assert np.array_equal(inside.argmax(axis=1), leaf_numbers(tree, some))


def test_a_small_leaf_beside_a_leaf_closes_their_parent():
    some = rows([0, 0, 0], [0, 0, 0], [5, 0, 0], [5, 4, 0], [5, 4, 0])
    tree, leaves = prune(flat(FIVE), route(flat(FIVE), some), some, 2)
    assert drawn(tree) == (0, 2, None, None)
    assert leaves.tolist() == [0, 0, 1, 1, 1]


def test_the_rows_of_a_small_leaf_follow_the_sibling():
    # One row left of the root: its split goes away, and the row is sent on by variable 1.
    some = rows([0, 4, 0], [5, 0, 0], [5, 1, 0], [5, 3, 0], [5, 4, 0])
    tree, leaves = prune(flat(FIVE), route(flat(FIVE), some), some, 2)
    assert drawn(tree) == (1, 1, None, None)
    assert leaves.tolist() == [1, 0, 0, 1, 1]


def test_pruning_goes_on_where_it_makes_new_small_leaves():
    right = [[3, 0, 0]] * 3 + [[3, 0, 3]] * 3
    some = rows([0, 0, 0], [0, 1, 3], *right)
    tree, leaves = prune(flat(SEVEN), route(flat(SEVEN), some), some, 3)
    # The two rows on the left close their parent, which is still too small: the root's split goes too.
    assert drawn(tree) == (2, 1, None, None)
    assert leaves.tolist() == [0, 1, 0, 0, 0, 1, 1, 1]


def test_a_tree_is_cut_to_its_root_where_rows_are_too_few():
    some = rows([0, 0, 0], [5, 4, 3])
    tree, leaves = prune(flat(SEVEN), route(flat(SEVEN), some), some, 10)
    assert drawn(tree) is None
    assert leaves.tolist() == [0, 0]


def test_nothing_is_pruned_where_all_leaves_are_large_enough():
    some = rows([0, 0, 0], [0, 1, 0], [3, 0, 0], [3, 0, 3])
    tree, leaves = prune(flat(SEVEN), route(flat(SEVEN), some), some, 1)
    assert drawn(tree) == SEVEN
    assert leaves.tolist() == [0, 1, 2, 3]


def test_an_empty_leaf_is_pruned_too():
    some = rows([0, 0, 0], [0, 1, 0])
    tree, leaves = prune(flat(SEVEN), route(flat(SEVEN), some), some, 1)
    assert drawn(tree) == (1, 0, None, None)
    assert leaves.tolist() == [0, 1]


@given(numbered_trees(), codes, st.integers(1, 12))
def test_pruned_leaves_hold_enough_rows_and_no_row_is_lost(tree, some, min_leaf):
    before = [array.copy() for array in tree]
    nodes = route(tree, some)
    pruned, leaves = prune(tree, nodes, some, min_leaf)
    n_leaves = int((pruned.left < 0).sum())
    counts = np.bincount(leaves, minlength=n_leaves)
    assert counts.sum() == len(some)
    assert n_leaves == 1 or counts.min() >= min_leaf
    assert np.array_equal(leaves, leaf_numbers(pruned, some))
    assert all(np.array_equal(old, new) for old, new in zip(before, tree, strict=True))
    assert np.array_equal(nodes, route(tree, some))


@given(numbered_trees(), codes, st.integers(1, 12))
def test_pruning_only_takes_splits_away(tree, some, min_leaf):
    pruned, _ = prune(tree, route(tree, some), some, min_leaf)

    def splits(part):
        return [] if part is None else [part[:2], *splits(part[2]), *splits(part[3])]

    left, all_of_them = splits(drawn(pruned)), iter(splits(drawn(tree)))
    assert all(split in all_of_them for split in left)  # a subsequence, in preorder


@given(numbered_trees(), codes)
def test_renumbered_trees_are_in_preorder_and_otherwise_the_same(tree, some):
    present = np.unique(route(tree, some))
    pruned, _ = prune(tree, route(tree, some), some, 1)
    if len(present) == (tree.left < 0).sum():
        assert drawn(pruned) == drawn(tree)
    again = flat(drawn(pruned))
    assert all(np.array_equal(one, other) for one, other in zip(pruned, again, strict=True))
    assert all(array.dtype == np.int32 for array in pruned)


@given(drawings())
def test_the_leaves_under_a_parent_are_a_run(drawing):
    tree = flat(drawing)
    first, last, split = parent_ranges(tree)
    leaves = leaf_nodes(tree).tolist()
    for number, leaf in enumerate(leaves):
        parents = [n for n in range(len(tree.left)) if leaf in (tree.left[n], tree.right[n])]
        parent = parents[0] if parents else 0
        below, pending = [], [parent]
        while pending:
            node = pending.pop()
            if tree.left[node] < 0:
                below.append(leaves.index(node))
            else:
                pending += [int(tree.left[node]), int(tree.right[node])]
        assert list(range(first[number], last[number])) == sorted(below)
        assert split[number] == (tree.feature[parent] if parents else -1)


@pytest.fixture(name="two_kinds")
def fixture_two_kinds():
    rng = np.random.default_rng(0)
    features = np.asfortranarray(rng.integers(0, 9, (400, 3)), dtype=np.float32)
    is_real = (features[:, 0] + rng.integers(0, 4, 400) > 6).astype(np.int8)
    return features, is_real


@pytest.mark.parametrize("drawn_rows", [None, 100, 4_000])
def test_a_grown_tree_agrees_with_its_own_arrays(two_kinds, drawn_rows):
    features, is_real = two_kinds
    grown = grow_tree(features, is_real, np.random.default_rng(1), max_features=2, rows=drawn_rows)
    assert np.array_equal(route(grown.tree, features.astype(np.uint16)), grown.nodes)
    used = ~grown.unused
    assert used.sum() == 100 if drawn_rows == 100 else 0.5 < used.mean() < 0.75
    assert np.all((grown.votes >= 0) & (grown.votes <= 1))
    # Grown to purity: rows that were drawn are told apart as far as their codes allow.
    assert np.mean((grown.votes[used] > 0.5) == is_real[used]) > 0.95
    assert np.all(grown.tree.feature[grown.tree.left >= 0] >= 0)


def test_one_generator_grows_one_tree(two_kinds):
    first, second = (grow_tree(*two_kinds, np.random.default_rng(5), max_features=2, rows=None) for _ in range(2))
    assert all(np.array_equal(one, other) for one, other in zip(first.tree, second.tree, strict=True))
    assert np.array_equal(first.votes, second.votes)


def test_rows_of_one_kind_grow_a_single_leaf():
    features = np.zeros((6, 2), dtype=np.float32, order="F")
    labels = np.array([1, 1, 1, 0, 0, 0], dtype=np.int8)
    grown = grow_tree(features, labels, np.random.default_rng(0), max_features=1, rows=None)
    assert len(grown.tree.left) == 1
    assert np.ptp(grown.votes) == 0


def test_gates_split_on_missingness_where_both_sides_have_rows_enough():
    some = np.zeros((400, 3), dtype=np.uint16)
    some[:, 0] = np.repeat([0, 3], 200)
    some[:, 1] = np.where(np.arange(400) % 100 < 5, 0, 2)  # missing in twenty rows only
    some[:, 2] = np.repeat([0, 1, 2, 3], 100)  # missing in the first half of those that miss variable 0
    assert drawn(gate_tree(some, [0, 1])) == (0, 0, None, None)
    assert drawn(gate_tree(some, [0, 2])) == (0, 0, (2, 0, None, None), None)
    assert drawn(gate_tree(some, [])) is None


def test_grafted_trees_stand_in_place_of_the_leaves():
    parts = [flat(FIVE), flat(None), flat((2, 3, None, None))]
    whole, roots, offsets = graft(flat((1, 0, None, (2, 2, None, None))), parts)
    assert drawn(whole) == (1, 0, FIVE, (2, 2, None, (2, 3, None, None)))
    assert [drawn(whole, root) for root in roots] == [FIVE, None, (2, 3, None, None)]
    below = [
        drawn(whole, int(part.left[0]) + offset)
        for part, offset in zip(parts, offsets, strict=True)
        if len(part.left) > 1
    ]
    assert below == [None, None]
