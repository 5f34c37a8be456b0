"""The paper's settings and ours, as options of `fit`, and what lies between the two.

Options that the installed version does not know are left out, and departures from the paper are found by comparing
the paper's values with the defaults of `fit`: nothing here needs a change when a default changes.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import polars as pl

import arf_dask

# What the paper has for options of `fit` that can be switched. Its trees, min_leaf and mtry differ by experiment.
PAPER: dict[str, object] = {
    "bundles": False,
    "dependence": "none",
    "find_rules": False,
    "support": "open",
    "tolerance": 0.0,
    "family": "truncnorm",
}

DEFAULTS = {name: p.default for name, p in inspect.signature(arf_dask.fit).parameters.items() if name != "data"}

Transform = Callable[[arf_dask.Model], arf_dask.Model]


class Departure(NamedTuple):
    """One thing that we do and the paper does not: how it is called, and how to go back."""

    name: str
    options: Mapping[str, object]  # the paper's value
    transform: Transform | None = None  # what becomes of the fitted model, where it is no option of `fit`


def known(options: Mapping[str, object]) -> dict[str, Any]:
    """The options that the installed `fit` has."""
    return {name: value for name, value in options.items() if name in DEFAULTS}


def paper_options(columns: int, *, trees: int, min_leaf: int, **others: object) -> dict[str, Any]:
    """Options of `fit` for the paper's algorithm on a table of so many columns."""
    mtry = max(1, math.isqrt(columns))
    return known({**PAPER, "trees": trees, "min_leaf": min_leaf, "max_features": mtry, **others})


def our_options(**others: object) -> dict[str, Any]:
    """Options of `fit` for our defaults, but for those named."""
    return known(others)


def shown_defaults() -> str:
    """The defaults of `fit` that differ from the paper, or that the paper chooses by experiment, as text."""
    differing = [name for name, value in known(PAPER).items() if DEFAULTS[name] != value]
    return ", ".join(f"{name}={DEFAULTS[name]!r}" for name in ("trees", "min_leaf", *differing))


def departures(columns: int, *, min_leaf: int, ours: Mapping[str, object]) -> list[Departure]:
    """What our options change in the paper's algorithm, one by one, for a table of so many columns."""
    theirs = paper_options(columns, trees=0, min_leaf=min_leaf)
    del theirs["trees"]
    mine = {**DEFAULTS, **ours}
    if mine["max_features"] is None:
        mine["max_features"] = max(2, math.isqrt(columns))
    found = [
        Departure(f"{name}={mine[name]!r}", {name: value}) for name, value in theirs.items() if mine[name] != value
    ]
    if hasattr(arf_dask.Model, "without_smoothing"):
        found.append(Departure("leaves shrunk to their parents", {}, arf_dask.Model.without_smoothing))
    return found


def fit_model(
    data: pl.DataFrame, seed: int, options: Mapping[str, Any], transform: Transform | None = None
) -> arf_dask.Model:
    """The paper's Alg. 1 and Alg. 2, one after the other, as a reader of the paper would call them.

    Every column is modelled: none is taken for an identifier, as numbers that are unique in a small sample would be.
    """
    numbers = {name: "numeric" for name, dtype in data.schema.items() if dtype.is_numeric()}
    forest = arf_dask.adversarial_forest(data, seed=seed, progress=False, columns=numbers, **options)
    model = arf_dask.forde(forest, data, progress=False)
    return model if transform is None else transform(model)
