"""Warnings about the training data: too few rows, identifiers, identifying values, distinguishable synthetic rows."""

from __future__ import annotations

import logging

import numpy as np
import polars as pl

from arf_dask.data.key_learning import has_key_name
from arf_dask.errors import DataError, KeyColumnWarning, warn_user
from arf_dask.forest.trees import add_split_weights
from arf_dask.options import Options
from arf_dask.schema.columns import Column, Schema
from arf_dask.schema.entities import people_names
from arf_dask.training.forests import AdversarialForest

logger = logging.getLogger(__name__)

MIN_ROWS = 5  # minimum training rows, unless copies are allowed
RECOGNISABLE_ACCURACY = 0.65  # out-of-bag accuracy from which on the user is warned
MOSTLY_DISTINCT, MOSTLY_DISTINCT_ROWS = 0.5, 5  # thresholds of a reported text column: levels per row, and rows
FEW_ROWS = 30  # in smaller tables, only columns without any repeated value are reported


def check_row_count(n_rows: int, options: Options) -> None:
    """Raise a DataError if a model of so few rows would reproduce them."""
    if n_rows < MIN_ROWS and not options.allow_copies:
        row_text = "1 row" if n_rows == 1 else f"{n_rows} rows"
        raise DataError(
            f"the frame has only {row_text}: sampled rows would be copies. Give at least {MIN_ROWS}, or pass "
            "allow_copies=True if that is what you want."
        )


def report_findings(schema: Schema, options: Options) -> None:
    """Warn about detected identifiers and potentially identifying values; log the bundles."""
    key_columns = [
        column for column in schema.columns if column.kind == "key" and column.name not in options.all_keys()
    ]
    declared_names = {*options.all_keys(), *options.kinds, *options.bundled()}
    verbatim = [
        column.name
        for column in schema.columns
        if column.name not in declared_names and _has_mostly_distinct_values(column, schema)
    ]
    people = [name for name in people_names(schema) if name not in declared_names]
    if key_columns or verbatim or people:
        measures = [c.name for c in key_columns if c.dtype.is_integer() and not has_key_name(c.name)]
        key_names = [column.name for column in key_columns]
        warn_user(KeyColumnWarning(key_names, measures, verbatim, people))
    for group in schema.bundles:
        logger.info("modelled together: %s", ", ".join(map(repr, group)))


def _has_mostly_distinct_values(column: Column, schema: Schema) -> bool:
    """Return whether the levels of a text column, which are sampled verbatim, are numerous enough to identify rows."""
    n_known = schema.n_rows - column.nulls
    is_text = isinstance(column.dtype, pl.String | pl.Categorical) and column.kind == "categorical"
    min_levels = MOSTLY_DISTINCT * n_known if n_known >= FEW_ROWS else n_known
    return is_text and n_known >= MOSTLY_DISTINCT_ROWS and len(column.levels) >= min_levels


def warn_if_recognisable(forest: AdversarialForest) -> None:
    """Log a warning if synthetic rows can be distinguished from real ones, with the columns responsible."""
    accuracy = min(round_.accuracy for round_ in forest.rounds)
    if accuracy < RECOGNISABLE_ACCURACY or len(forest.rounds) < 2:
        return
    split_weights = np.zeros(len(forest.schema.variables))
    for tree in forest.trees:
        add_split_weights(tree, split_weights)
    variables = [
        forest.schema.variables[variable_index]
        for variable_index in np.argsort(-split_weights, kind="stable")[:3]
        if split_weights[variable_index]
    ]
    column_names = ", ".join(repr(forest.schema.columns[variable.columns[0]].name) for variable in variables)
    logger.warning(
        "synthetic rows can still be told from real ones (out-of-bag accuracy %.2f; 0.5 is perfect), above all by %s. "
        "A rule between columns (rules=), more rows, or a smaller min_leaf could help.",
        accuracy,
        column_names,
    )
