from typing import Any

import numpy as np
from hypothesis import given

from arf_dask.forest.pruning import prune_tree
from arf_dask.forest.tables import parent_ranges
from arf_dask.forest.trees import depth_levels, leaf_nodes
from tests.drawn_trees import SEVEN, codes, drawings, drawn, flat, leaves_of, nodes_of, numbered_trees, rows


def test_leaves_are_numbered_from_left_to_right() -> None:
    assert leaf_nodes(flat(SEVEN)).tolist() == [2, 3, 5, 6]
    assert leaves_of(flat(SEVEN), rows([0, 0, 0], [0, 1, 0], [3, 0, 0], [3, 0, 3])).tolist() == [
        0,
        1,
        2,
        3,
    ]


def test_nodes_by_depth() -> None:
    assert [sorted(level.tolist()) for level in depth_levels(flat(SEVEN))] == [[0], [1, 4], [2, 3, 5, 6]]
    assert [level.tolist() for level in depth_levels(flat(None))] == [[0]]


@given(numbered_trees(), codes)
def test_renumbered_trees_are_in_preorder_and_otherwise_the_same(tree: Any, some: Any) -> None:
    present = np.unique(nodes_of(tree, some))
    pruned, _ = prune_tree(tree, nodes_of(tree, some), some, 1)
    if len(present) == (tree.left < 0).sum():
        assert drawn(pruned) == drawn(tree)
    again = flat(drawn(pruned))
    assert all(np.array_equal(one, other) for one, other in zip(pruned, again, strict=True))
    assert all(array.dtype == np.int32 for array in pruned)


@given(drawings())
def test_the_leaves_under_a_parent_are_a_run(drawing: Any) -> None:
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
