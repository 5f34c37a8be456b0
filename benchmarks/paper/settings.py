"""The paper's settings and our defaults as options of `fit`, and the departures between the two.

Departures are found by comparing the paper's values with the defaults of `fit`: when a default changes, the ablation
and the captions follow.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import polars as pl

import arf_dask
from arf_dask.data.files import Reading
from arf_dask.data.opening import open_parts
from arf_dask.options import LEAF_ROWS, Options
from arf_dask.release.fitting import Safeguards
from arf_dask.runtime.cluster import runner_for
from arf_dask.runtime.progress import progress_for
from arf_dask.training.stages import train_forest

# The paper's values of options that `fit` has. Trees, node size and mtry depend on the experiment.
PAPER: dict[str, object] = {
    "bundles": False,
    "dependence": "none",
    "refine": False,
    "find_rules": False,
    "support": "open",
    "tolerance": 0.0,
    "family": "truncnorm",
}

DEFAULTS = {name: p.default for name, p in inspect.signature(arf_dask.fit).parameters.items() if name != "data"}
# The boosted refinement is no part of the paper: its experiments compare forests.
DEFAULTS |= {"refine": False, "min_leaf": LEAF_ROWS}

Fit = Callable[[pl.DataFrame, int, Mapping[str, Any]], arf_dask.Model]


class Departure(NamedTuple):
    """A departure from the paper: its name, the paper's options, and how a model without it is fitted."""

    name: str
    options: Mapping[str, object]
    fit: Fit


def paper_options(columns: int, *, trees: int, min_leaf: int, **others: object) -> dict[str, Any]:
    """Return the options of `fit` for the paper's algorithm on a table with this number of columns."""
    mtry = max(1, math.isqrt(columns))
    return {**PAPER, "trees": trees, "min_leaf": min_leaf, "max_features": mtry, **others}


def shown_defaults() -> str:
    """Format the defaults of `fit` that differ from the paper, or that the paper chooses for each experiment."""
    differing = [name for name, value in PAPER.items() if DEFAULTS[name] != value]
    return ", ".join(f"{name}={DEFAULTS[name]!r}" for name in ("trees", "min_leaf", *differing))


def departures(data: pl.DataFrame, *, min_leaf: int, ours: Mapping[str, object]) -> list[Departure]:
    """List what our options change in the paper's algorithm on this table, where the paper has `min_leaf`."""
    theirs = paper_options(data.width, trees=0, min_leaf=min_leaf)
    del theirs["trees"]
    mine = {**DEFAULTS, **ours}
    if mine["max_features"] is None:
        mine["max_features"] = max(2, math.isqrt(data.width))
    found = [
        Departure(f"{name}={mine[name]!r}", {name: value}, fit_model)
        for name, value in theirs.items()
        if mine[name] != value
    ]
    found.append(Departure("shrinkage of leaves to their parents", {}, fit_without_shrinkage))
    if any(data.null_count().row(0)):
        found.append(Departure("gates (splits on missingness first)", {}, fit_without_gates))
    return found


def fit_model(data: pl.DataFrame, seed: int, options: Mapping[str, Any]) -> arf_dask.Model:
    """Fit a model by Alg. 1 and Alg. 2 of the paper, one after the other.

    Numeric columns are declared as such, so that none is taken for an identifier: in a small sample of a continuous
    column all values are unique.
    """
    wanted = {"refine": False, "columns": numeric_columns(data), **options}
    forest = arf_dask.adversarial_forest(data, seed=seed, progress=False, **wanted)
    return arf_dask.forde(forest, data, progress=False)


def fit_without_shrinkage(data: pl.DataFrame, seed: int, options: Mapping[str, Any]) -> arf_dask.Model:
    """Fit a model whose leaf probabilities are shares of the leaf's own rows."""
    return fit_model(data, seed, options).without_smoothing()


def fit_without_gates(data: pl.DataFrame, seed: int, options: Mapping[str, Any]) -> arf_dask.Model:
    """Fit a model whose trees do not split on missingness first. There is no option for it: this is for measuring."""
    read = Options.read({"refine": False, **options, "columns": numeric_columns(data)})
    with (
        progress_for(False) as report,
        runner_for(None) as runner,
        open_parts(data, runner, Reading(None, None)) as parts,
    ):
        ungated = Safeguards(lambda rows, relations: rows, lambda schema, rows: replace(schema, gates=()))
        trained = train_forest(parts, read, seed, runner, report, ungated)
    return arf_dask.forde(trained.forest, data, progress=False)


def numeric_columns(data: pl.DataFrame) -> dict[str, str]:
    """Declare all numeric columns as numeric."""
    return {name: "numeric" for name, dtype in data.schema.items() if dtype.is_numeric()}
