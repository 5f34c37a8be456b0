"""`df.arf` and `lf.arf`: the package's functions as methods of Polars frames, registered on import."""

from __future__ import annotations

from typing import Any

import polars as pl

from arf_dask.api import fit
from arf_dask.model import Model
from arf_dask.synthesis import synthesize


@pl.api.register_dataframe_namespace("arf")
@pl.api.register_lazyframe_namespace("arf")
class FrameNamespace:
    """The namespace `arf` of Polars frames: `df.arf.fit()` and `df.arf.synthesize(n)`.

    Examples:
        >>> frame = pl.DataFrame({"colour": ["red", "blue"] * 100, "size": [1, 2] * 100})
        >>> frame.arf.synthesize(3, trees=3, seed=0).shape
        (3, 2)
    """

    def __init__(self, frame: pl.DataFrame | pl.LazyFrame) -> None:
        self._frame = frame

    def fit(self, **options: Any) -> Model:
        """Learn the joint distribution of the frame; see `arf_dask.fit`.

        Args:
            **options: the options of `arf_dask.fit`.

        Returns:
            The fitted model.
        """
        return fit(self._frame, **options)

    def synthesize(self, n: int | None = None, **options: Any) -> Any:
        """Make a synthetic twin of the frame; see `arf_dask.synthesize`.

        Args:
            n: The number of rows; None for as many as the frame has.
            **options: the options of `arf_dask.synthesize`.

        Returns:
            A frame of the same kind, or a `Manifest` with `to=`.
        """
        return synthesize(self._frame, n, **options)
