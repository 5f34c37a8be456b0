"""`df.arf` on frames and lazy frames is the same as the functions."""

import polars as pl
from polars.testing import assert_frame_equal

import arf_dask


def frame() -> pl.DataFrame:
    return pl.DataFrame({"colour": ["red", "blue", "green"] * 60, "size": [1, 2, 2] * 60})


def test_methods_are_the_functions() -> None:
    expected = arf_dask.synthesize(frame(), 20, trees=3, seed=1)
    assert_frame_equal(frame().arf.synthesize(20, trees=3, seed=1), expected)  # type: ignore[attr-defined]
    model = frame().arf.fit(trees=3, seed=1)  # type: ignore[attr-defined]
    assert isinstance(model, arf_dask.Model)


def test_lazy_frames_have_it_too() -> None:
    made = frame().lazy().arf.synthesize(20, trees=3, seed=1)  # type: ignore[attr-defined]
    assert isinstance(made, pl.LazyFrame)
    assert made.collect().shape == (20, 2)
