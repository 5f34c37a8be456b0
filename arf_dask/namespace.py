"""`df.arf` and `lf.arf`: the package's functions as methods of Polars frames, registered on import."""

from __future__ import annotations

from typing import Any, Unpack

import polars as pl

from arf_dask.api import FitArguments, fit
from arf_dask.model import Model
from arf_dask.synthesis import SynthesizeOptions, synthesize
from arf_dask.typing import PathLike


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

    def fit(self, **options: Unpack[FitArguments]) -> Model:
        """Learn the joint distribution of the frame; see `arf_dask.fit`.

        Args:
            **options: The options of `arf_dask.fit`.

        Returns:
            The fitted model.
        """
        return fit(self._frame, **options)

    def synthesize(
        self, n: int | None = None, *, to: PathLike | None = None, **options: Unpack[SynthesizeOptions]
    ) -> Any:
        """Return a synthetic version of the frame; see `arf_dask.synthesize`.

        Args:
            n: The number of rows; None for as many as the frame has.
            to: A directory, URL or file to write the rows to, as in `arf_dask.synthesize`.
            **options: The options of `arf_dask.synthesize`.

        Returns:
            A frame of the same kind, or a `Manifest` with `to=`.
        """
        arguments: dict[str, Any] = {"to": to, **options}
        return synthesize(self._frame, n, **arguments)
