from typing import Any

import numpy as np
from hypothesis import given

from arf_dask.forest.boxes import leaf_boxes
from tests.drawn_trees import CHAIN, N_CODES, SEVEN, codes, drawings, flat, leaves_of


def test_boxes_of_a_tree_of_seven_nodes() -> None:
    boxes = leaf_boxes(flat(SEVEN), N_CODES)
    assert boxes.low.tolist() == [[0, 0, 0], [0, 1, 0], [3, 0, 0], [3, 0, 2]]
    assert boxes.high.tolist() == [[2, 0, 3], [2, 4, 3], [5, 4, 1], [5, 4, 3]]


def test_a_variable_split_twice_narrows_its_box_twice() -> None:
    boxes = leaf_boxes(flat(CHAIN), N_CODES)
    assert boxes.low[:, 0].tolist() == [0, 1, 2, 3]
    assert boxes.high[:, 0].tolist() == [0, 1, 2, 5]


@given(drawings(), codes)
def test_every_row_lies_in_the_box_of_its_leaf_and_in_no_other(drawing: Any, some: Any) -> None:
    tree = flat(drawing)
    boxes = leaf_boxes(tree, N_CODES)
    inside = (some[:, None, :] >= boxes.low) & (some[:, None, :] <= boxes.high)
    inside = inside.all(axis=2)
    assert np.array_equal(inside.sum(axis=1), np.ones(len(some)))
    assert np.array_equal(inside.argmax(axis=1), leaves_of(tree, some))
