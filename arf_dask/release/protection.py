"""Protect a table before fitting: all later stages see only the protected rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from arf_dask.data.axes import is_numeric
from arf_dask.data.date_search import date_forms
from arf_dask.data.dates import read_dates, write_dates
from arf_dask.data.fingerprints import new_key
from arf_dask.data.key_learning import looks_like_key
from arf_dask.errors import ReleaseError
from arf_dask.release.identifiers import stand_ins
from arf_dask.release.levels import protect_levels, rare_combinations
from arf_dask.release.missing import fill_rare_missing
from arf_dask.release.numbers import protect_numbers
from arf_dask.release.policy import ReleasePolicy
from arf_dask.typing import Counts

MOSTLY_UNIQUE = 0.5  # share of distinct values from which on undeclared text columns are rejected
MOST_LEFT_OUT = (
    0.05  # maximum share of rows dropped for rare combinations; beyond it, the columns are modelled separately
)
PASSES = 5  # maximum passes over rare levels and combinations


class Bundle(NamedTuple):
    """Columns that are modelled together."""

    names: list[str]  # all columns of the bundle
    levels: list[str]  # the columns whose combinations the model stores


FindBundles = Callable[[pl.DataFrame], list[Bundle]]


class Protected(NamedTuple):
    """A protected table, and a record of the changes."""

    frame: pl.DataFrame
    subjects: Counts | None  # subject id per row
    keys: list[str]  # identifiers, declared or detected
    bundles: list[list[str]] | None  # columns that may be modelled together; None: detect them
    effects: dict[str, Any]  # counts of changes, without any data values


class Effects:
    """Counts of the changes to a table, by column."""

    def __init__(self) -> None:
        self.levels: dict[str, dict[str, Any]] = {}
        self.clipped: dict[str, int] = {}
        self.moved: dict[str, int] = {}
        self.filled: dict[str, int] = {}
        self.suppressed: list[str] = []

    def count(self, store: dict[str, int], name: str, rows: int) -> None:
        """Add `rows` to the count of a column, if it is positive."""
        if rows:
            store[name] = store.get(name, 0) + rows

    def to_dict(self) -> dict[str, Any]:
        """Return the counts by kind of change."""
        return {
            "levels_merged": self.levels,
            "values_clipped": self.clipped,
            "spikes_moved": self.moved,
            "missing_filled": self.filled,
            "columns_suppressed": self.suppressed,
        }


def protect(
    frame: pl.DataFrame,
    policy: ReleasePolicy,
    kinds: Mapping[str, str],
    keys: Sequence[str],
    find_bundles: FindBundles,
    rng: np.random.Generator,
) -> Protected:
    """Apply a policy to a table.

    Args:
        frame: The real rows.
        policy: The release policy.
        kinds: The declared kinds of columns ("categorical", "numeric" or "key").
        keys: The declared identifiers.
        find_bundles: Finds the columns that would be modelled together, whose rare combinations are dropped.
        rng: Chooses the rows to keep of subjects with too many rows.

    Raises:
        ReleaseError: If a text column is mostly unique, or no rows are left.
    """
    policy.check_against(frame.columns)
    date_forms = _find_dates(frame, {*kinds, *keys})
    found_keys = find_keys(frame, policy, kinds, keys, date_forms)
    n_rows = frame.height
    frame, subjects = _limit_rows(frame, policy, rng)
    n_limited = n_rows - frame.height
    effects = Effects()
    frame = _fill_missing(frame, subjects, policy, found_keys, effects)
    frame = frame.with_columns([stand_ins(frame[name], new_key(), policy.min_level) for name in found_keys])
    given_up, n_left_out, gone = False, 0, 0
    bundles: list[Bundle] = []
    for _ in range(PASSES):
        frame = _protect_columns(frame, subjects, policy, Declared(kinds, found_keys, date_forms), effects)
        bundles = find_bundles(_with_dates(frame, date_forms))
        n_found = len(bundles)
        frame, subjects, bundles, gone = _leave_out(frame, subjects, bundles, policy)
        given_up = given_up or len(bundles) < n_found
        n_left_out += gone
        if not gone:
            break
    if not frame.height:
        raise ReleaseError("release: no row is left. Lower min_level, or give more rows.")
    told = {
        "policy": policy.to_dict(),
        "loosened": policy.loosened(),
        "rows": n_rows,
        "rows_learned": frame.height,
        "rows_beyond_limit_per_subject": n_limited,
        "rows_with_rare_combinations": n_left_out,
        "subjects": None if subjects is None else subjects.n_unique(),
        **effects.to_dict(),
        "identifiers_replaced": found_keys,
    }
    codes = None if subjects is None else subjects.rank("dense").cast(pl.Int64).to_numpy() - 1
    kept = [bundle.names for bundle in bundles] if not gone else []
    return Protected(frame, codes, found_keys, kept if given_up or gone else None, told)


def _find_dates(frame: pl.DataFrame, declared: Set[str]) -> dict[str, str]:
    """Return the format of every text column of dates whose kind is not declared."""
    return date_forms(column for column in frame if column.name not in declared)


def _with_dates(frame: pl.DataFrame, forms: Mapping[str, str]) -> pl.DataFrame:
    """Return the frame with its text columns of dates as dates."""
    return frame.with_columns([read_dates(frame[name], form).alias(name) for name, form in forms.items()])


def find_keys(
    frame: pl.DataFrame,
    policy: ReleasePolicy,
    kinds: Mapping[str, str],
    keys: Sequence[str],
    dates: Collection[str] = (),
) -> list[str]:
    """Return declared and detected identifiers. Raises a ReleaseError for other text that is mostly unique.

    `dates` are text columns of dates, which are modelled as such.
    """
    declared = {*keys, *(name for name, kind in kinds.items() if kind == "key")}
    if policy.subject is not None and policy.subject not in kinds:
        declared.add(policy.subject)
    free = [column for column in frame if column.name not in {*declared, *kinds, *dates}]
    found = declared | {column.name for column in free if looks_like_key(column)}
    refused = [column.name for column in free if column.name not in found and _is_mostly_unique(column)]
    if refused:
        listed = ", ".join(map(repr, refused))
        raise ReleaseError(
            f"release: text that is mostly unique: {listed}. Drop it, name it in keys= to get fresh values, or in "
            "columns= as 'categorical' to have its rare levels merged."
        )
    return [name for name in frame.columns if name in found]


def _is_mostly_unique(column: pl.Series) -> bool:
    known = column.drop_nulls()
    is_text = isinstance(column.dtype, pl.String | pl.Categorical)
    return is_text and len(known) > 0 and known.n_unique() > MOSTLY_UNIQUE * len(known)


def _limit_rows(
    frame: pl.DataFrame, policy: ReleasePolicy, rng: np.random.Generator
) -> tuple[pl.DataFrame, pl.Series | None]:
    """Keep at most `max_rows_per_subject` random rows per subject; return them and the subject of every row."""
    if policy.subject is None:
        return frame, None
    subjects = frame[policy.subject]
    if subjects.null_count():
        raise ReleaseError(f"release: subject {policy.subject!r} is null in {subjects.null_count()} rows. Drop them.")
    if policy.max_rows_per_subject is None:
        return frame, subjects
    order = pl.DataFrame({"subject": subjects, "chance": rng.random(frame.height)})
    place = order.select(pl.col("chance").rank("ordinal").over("subject"))["chance"]
    kept = place <= policy.max_rows_per_subject
    return frame.filter(kept), subjects.filter(kept)


def _fill_missing(
    frame: pl.DataFrame, subjects: pl.Series | None, policy: ReleasePolicy, keys: Sequence[str], effects: Effects
) -> pl.DataFrame:
    safe: dict[str, pl.Series] = {}
    for column in frame:
        filled = fill_rare_missing(column, subjects, policy, key=column.name in keys)
        effects.count(effects.filled, column.name, filled.rows)
        safe[column.name] = filled.column
    return frame.with_columns([column.alias(name) for name, column in safe.items()])


class Declared(NamedTuple):
    """How columns are modelled."""

    kinds: Mapping[str, str]
    keys: Sequence[str]
    date_forms: Mapping[str, str]  # text columns of dates

    def is_number(self, column: pl.Series) -> bool:
        """Return whether a column is protected as numbers rather than levels."""
        return column.name in self.date_forms or (
            is_numeric(column.dtype) and self.kinds.get(column.name) != "categorical"
        )


def _protect_columns(
    frame: pl.DataFrame,
    subjects: pl.Series | None,
    policy: ReleasePolicy,
    declared: Declared,
    effects: Effects,
) -> pl.DataFrame:
    safe: dict[str, pl.Series] = {}
    for column in frame:
        name = column.name
        if name in declared.keys or column.null_count() == len(column):
            continue
        if declared.is_number(column):
            form = declared.date_forms.get(name)
            numbers = protect_numbers(column if form is None else read_dates(column, form), subjects, policy)
            effects.count(effects.clipped, name, numbers.clipped)
            effects.count(effects.moved, name, numbers.moved)
            effects.suppressed += [name] if numbers.suppressed else []
            safe[name] = numbers.column if form is None else write_dates(numbers.column, form).cast(column.dtype)
        else:
            levels = protect_levels(column, subjects, policy)
            if levels.merged:
                before = effects.levels.get(name, {"levels": 0, "rows": 0})
                counts = {"levels": before["levels"] + levels.merged, "rows": before["rows"] + levels.rows}
                effects.levels[name] = {**counts, "into": levels.into}
            safe[name] = levels.column
    return frame.with_columns([column.alias(name) for name, column in safe.items()])


def _leave_out(
    frame: pl.DataFrame, subjects: pl.Series | None, bundles: list[Bundle], policy: ReleasePolicy
) -> tuple[pl.DataFrame, pl.Series | None, list[Bundle], int]:
    """Drop rows with rare combinations. Bundles that would cost too many rows are split up instead."""
    kept_bundles, is_rare = [], pl.Series([False]).new_from_index(0, frame.height)
    for bundle in bundles:
        in_bundle = rare_combinations(frame, bundle.levels, subjects, policy.min_level)
        if int(in_bundle.sum()) <= MOST_LEFT_OUT * frame.height:
            kept_bundles.append(bundle)
            is_rare = is_rare | in_bundle
    n_dropped = int(is_rare.sum())
    return frame.filter(~is_rare), None if subjects is None else subjects.filter(~is_rare), kept_bundles, n_dropped
