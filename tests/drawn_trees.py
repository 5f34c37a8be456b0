"""Trees drawn by hand: nested tuples for tests, and the plain walk that routing must agree with."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from arf_dask.forest.routing import route_to_leaves, route_to_nodes, routing_table
from arf_dask.forest.trees import LEAF, Tree

N_CODES = np.array([6, 5, 4], dtype=np.int32)

# A drawing of a tree: None is a leaf, (variable, threshold, left, right) an inner node.
FIVE = (0, 2, None, (1, 1, None, None))
SEVEN = (0, 2, (1, 0, None, None), (2, 1, None, None))
CHAIN = (0, 0, None, (0, 1, None, (0, 2, None, None)))


def flat(drawing: Any) -> Tree:
    """A drawing as arrays, numbered in preorder."""
    nodes: list[list[int]] = []

    def visit(part: Any) -> int:
        here = len(nodes)
        nodes.append([LEAF, 0, LEAF, LEAF])
        if part is not None:
            feature, threshold, left, right = part
            nodes[here] = [feature, threshold, visit(left), visit(right)]
        return here

    visit(drawing)
    return Tree(*np.array(nodes, dtype=np.int32).T)


def drawn(tree: Tree, node: int = 0) -> Any:
    """Arrays as a drawing."""
    if tree.left[node] < 0:
        return None
    sides = (drawn(tree, int(tree.left[node])), drawn(tree, int(tree.right[node])))
    return (int(tree.feature[node]), int(tree.threshold[node]), *sides)


def walk(tree: Tree, row: Any) -> int:
    node = 0
    while tree.left[node] >= 0:
        goes_left = row[tree.feature[node]] <= tree.threshold[node]
        node = int(tree.left[node] if goes_left else tree.right[node])
    return node


def rows(*some: Any) -> np.ndarray:
    return np.array(some, dtype=np.uint16)


def shuffled(tree: Tree, order: Any) -> Tree:
    """The same tree with its nodes numbered in another order (the root stays 0)."""
    order = np.concatenate([[0], 1 + np.array(order, dtype=int)])
    place = np.argsort(order)
    children = [np.where(side[order] >= 0, place[side[order]], LEAF) for side in (tree.left, tree.right)]
    arrays = (tree.feature[order], tree.threshold[order], *children)
    return Tree(*(array.astype(np.int32) for array in arrays))


def drawings(depth: int = 5) -> Any:
    inner = st.tuples(st.integers(0, 2), st.integers(0, 3))
    return st.recursive(
        st.none(), lambda part: st.tuples(inner, part, part).map(lambda t: (*t[0], t[1], t[2])), max_leaves=12
    )


codes = st.lists(st.tuples(*(st.integers(0, int(n) - 1) for n in N_CODES)), min_size=1, max_size=40).map(
    lambda some: np.array(some, dtype=np.uint16)
)


@st.composite
def numbered_trees(draw: Any) -> Any:
    tree = flat(draw(drawings()))
    return shuffled(tree, draw(st.permutations(range(len(tree.left) - 1))))


def nodes_of(tree: Tree, some: Any, start: Any = None) -> np.ndarray:
    return route_to_nodes(routing_table(tree), some, start)


def leaves_of(tree: Tree, some: Any) -> np.ndarray:
    return route_to_leaves(routing_table(tree), some)
