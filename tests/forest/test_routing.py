from typing import Any

import numpy as np
import pytest
from hypothesis import given

from arf_dask.forest import routing
from arf_dask.forest.boxes import leaf_boxes
from tests.drawn_trees import FIVE, N_CODES, codes, drawings, flat, leaves_of, nodes_of, numbered_trees, rows, walk


def test_a_row_goes_left_up_to_the_threshold() -> None:
    tree = flat(FIVE)
    found = nodes_of(tree, rows([0, 4, 0], [2, 4, 0], [3, 0, 0], [3, 1, 0], [3, 2, 0]))
    assert found.tolist() == [1, 1, 3, 3, 4]


def test_rows_may_start_further_down() -> None:
    tree = flat(FIVE)
    found = nodes_of(tree, rows([0, 0, 0], [0, 4, 0], [5, 5, 3]), np.array([2, 2, 1], dtype=np.int32))
    assert found.tolist() == [3, 4, 1]


def test_a_tree_of_one_leaf_holds_every_row() -> None:
    tree = flat(None)
    assert nodes_of(tree, rows([1, 2, 3], [0, 0, 0])).tolist() == [0, 0]
    assert leaves_of(tree, rows([1, 2, 3])).tolist() == [0]


@given(numbered_trees(), codes)
def test_routing_is_a_walk_from_the_root(tree: Any, some: Any) -> None:
    assert nodes_of(tree, some).tolist() == [walk(tree, row) for row in some]


@given(numbered_trees(), codes)
def test_small_blocks_route_as_one_block_does(tree: Any, some: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routing, "BLOCK_ROWS", 3)
        assert nodes_of(tree, np.asfortranarray(some)).tolist() == [walk(tree, row) for row in some]


@given(drawings(), codes, codes)
def test_a_range_of_codes_reaches_the_leaves_whose_boxes_it_meets(drawing: Any, some: Any, others: Any) -> None:
    tree, n = flat(drawing), min(len(some), len(others))
    low, high = np.minimum(some[:n], others[:n]), np.maximum(some[:n], others[:n])
    boxes = leaf_boxes(tree, N_CODES)
    meets = ((boxes.low <= high[:, None, :]) & (boxes.high >= low[:, None, :])).all(axis=2)
    row, leaf = routing.route_ranges(tree, low, high)
    assert np.all(np.diff(row) >= 0)
    assert sorted(zip(row.tolist(), leaf.tolist(), strict=True)) == list(map(tuple, np.argwhere(meets).tolist()))
