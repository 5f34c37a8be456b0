"""What the boosted adversary sees of a row: levels, numbers, parts of the calendar, differences, ratios and roundness.

`encode` is a pure function of rows in the user's columns, the same for real and for drawn rows: every feature becomes a
code between 0 and 255, and trees split on codes. Code 0 is a missing value. Levels and edges come from drawn rows only,
so that a model stores no value by them that it could not draw anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.data.axes import nameless
from arf_dask.rules.relations import Relations
from arf_dask.typing import Flags, Floats

N_CODES = 256
MOST_CODES = 255  # of a feature
MOST_LEVELS = MOST_CODES - 2  # without null and any other level
MOST_EDGES = MOST_CODES - 3  # without null, the last interval, and NaN
MOST_PAIRS = 24  # of columns of numbers that hang together
RELATED = 0.5  # least rank correlation of such columns
CORRELATED_ROWS = 10_000  # by which correlations are judged
MOST_COMPARED = 200  # columns of levels that are compared with each other
SHARED = 0.5  # least share of the levels of a column that another one has too, so that both are compared
DIGITS = 6  # decimals, and zeros before the point, that roundness distinguishes
LEVEL = "level"
Codes = NDArray[np.uint8]
Columns = dict[str, pl.Series]
Values = tuple[Floats, Flags]  # numbers, and which of them are null


@dataclass(frozen=True, eq=False)
class Feature:
    """One feature of a row: a kind, the columns it is computed from, and how its values become codes."""

    kind: str  # LEVEL, or a key of `NUMBERS`
    columns: tuple[str, ...]
    modelled: bool = False  # whether these are modelled columns, which take the place of the user's columns
    levels: tuple[str, ...] = ()  # of the kind LEVEL: those of codes 1, 2, ...; any other has the code after them
    edges: Floats = field(default_factory=lambda: np.empty(0))  # of numbers: the upper ends of codes 1, 2, ...

    @property
    def is_ordered(self) -> bool:
        """Whether codes are ordered like the values."""
        return self.kind != LEVEL

    @property
    def is_own(self) -> bool:
        """Whether it shows a column as any detector sees it, and not relations or modelled columns."""
        return self.kind not in RELATING and not self.modelled

    @property
    def is_derived(self) -> bool:
        """Whether it is computed from columns that trees see anyway."""
        return self.kind not in (LEVEL, "number") or self.modelled

    @property
    def n_codes(self) -> int:
        """The number of codes: null, the levels and any other; or null, the intervals and NaN."""
        return len(self.levels) + 2 if self.kind == LEVEL else len(self.edges) + 3

    @property
    def name(self) -> str:
        """A name to show, such as "age" or "hour(at)"."""
        return self.columns[0] if self.kind in (LEVEL, "number") else f"{self.kind}({', '.join(self.columns)})"

    def codes(self, columns: Columns) -> Codes:
        """Return the code of every row."""
        series = [columns[name] for name in self.columns]
        if self.kind == LEVEL:
            return _level_codes(series[0], self.levels)
        values, is_null = NUMBERS[self.kind](series)
        codes = np.searchsorted(self.edges, values).astype(np.uint8) + np.uint8(1)
        codes[np.isnan(values)] = self.n_codes - 1
        codes[is_null] = 0
        return codes


class Rows:
    """Rows of the user's table, and their modelled columns as far as features need them."""

    def __init__(self, frame: pl.DataFrame, relations: Relations) -> None:
        self.frame, self.relations = frame, relations
        self.own: Columns = {name: nameless(frame.get_column(name)) for name in frame.columns}
        self._modelled: Columns = {}

    def modelled(self, names: Iterable[str]) -> Columns:
        """Return modelled columns by name."""
        missing = [name for name in names if name not in self._modelled]
        if missing:
            found = self.relations.forward(self.frame, missing)
            self._modelled |= {name: nameless(found.get_column(name)) for name in found.columns}
        return self._modelled

    def filter(self, is_kept: Flags) -> Rows:
        """Return some of the rows."""
        return Rows(self.frame.filter(pl.Series(is_kept)), self.relations)

    def __len__(self) -> int:
        return self.frame.height


def encode(features: Sequence[Feature], rows: Rows, wanted: Iterable[int] | None = None) -> dict[int, Codes]:
    """Return the codes of every row by the number of the feature, for all features or those that are wanted."""
    numbers = range(len(features)) if wanted is None else list(wanted)
    modelled = [name for number in numbers if features[number].modelled for name in features[number].columns]
    columns = {False: rows.own, True: rows.modelled(dict.fromkeys(modelled))}
    return {number: features[number].codes(columns[features[number].modelled]) for number in numbers}


def learn_features(drawn: pl.DataFrame, relations: Relations, keys: Sequence[str]) -> list[Feature]:
    """Learn the features of drawn rows. Identifiers, and features that never vary, are left out."""
    rows = Rows(drawn, relations)
    names = [name for name in drawn.columns if name not in keys]
    outputs = [name for name in relations.owners if relations.user_name(name) in names and name not in keys]
    features = [found for name in names for found in _column_features(rows.own, name, modelled=False)]
    modelled = rows.modelled(outputs)
    features += [found for name in outputs for found in _column_features(modelled, name, modelled=True)]
    numbers = _related(rows.own, [name for name in names if drawn.schema[name].is_numeric()])
    moments = _related(rows.own, [name for name in names if drawn.schema[name] in (pl.Date, pl.Datetime)])
    features += [_number_feature("difference", pair, rows.own) for pair in [*numbers, *moments]]
    features += [_number_feature("ratio", pair, rows.own) for pair in numbers]
    features += [_number_feature("same", pair, rows.own) for pair in _comparable(features)]
    return [one for one in features if len(one.levels) > 1 or len(one.edges)]


def _column_features(columns: Columns, name: str, *, modelled: bool) -> list[Feature]:
    dtype = columns[name].dtype
    kinds: tuple[str, ...] = ()
    if dtype == pl.Boolean or isinstance(dtype, pl.Duration):
        kinds = ("number",)
    elif dtype.is_numeric():
        kinds = ("number", "roundness")
    elif dtype == pl.Date:
        kinds = ("number", *DATE_PARTS)
    elif dtype == pl.Datetime:
        kinds = ("number", *DATE_PARTS, *TIME_PARTS)
    elif dtype == pl.Time:
        kinds = ("number", *TIME_PARTS)
    if kinds:
        return [_number_feature(kind, (name,), columns, modelled=modelled) for kind in kinds]
    counts = columns[name].cast(pl.String).alias("level").drop_nulls().value_counts()
    counts = counts.sort(["count", "level"], descending=[True, False])
    levels = tuple(counts["level"].head(MOST_LEVELS).to_list())
    lengths = [_number_feature("length", (name,), columns, modelled=modelled)] if counts.height > MOST_LEVELS else []
    return [Feature(LEVEL, (name,), modelled, levels), *lengths]


def _number_feature(kind: str, names: tuple[str, ...], columns: Columns, *, modelled: bool = False) -> Feature:
    values, is_null = NUMBERS[kind]([columns[name] for name in names])
    return Feature(kind, names, modelled, edges=learn_edges(values[~is_null & ~np.isnan(values)]))


def learn_edges(values: Floats, most: int = MOST_EDGES) -> Floats:
    """Return ascending upper ends of intervals with about equally many values; frequent values get their own.

    >>> learn_edges(np.array([1.0, 1.0, 2.0, 5.0])).tolist()
    [1.0, 2.0]
    >>> len(learn_edges(np.arange(10_000.0), 4))
    4
    """
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) <= most:
        edges = distinct[:-1]
    else:
        is_frequent = counts > 2 * len(values) / most
        below_frequent = distinct[np.flatnonzero(is_frequent[1:])]
        n_quantiles = max(most - 2 * int(is_frequent.sum()), 1)
        quantiles = np.quantile(values, np.arange(1, n_quantiles + 1) / (n_quantiles + 1), method="inverted_cdf")
        edges = np.unique(np.concatenate([quantiles, distinct[is_frequent], below_frequent]))
        edges = edges[edges < distinct[-1]][:most]
    return np.asarray(edges[np.isfinite(edges)])


def _related(columns: Columns, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs of columns with the largest rank correlations, the columns in their order in the table."""
    known = [name for name in names if columns[name].head(CORRELATED_ROWS).null_count() < CORRELATED_ROWS // 2]
    ranks = [columns[name].head(CORRELATED_ROWS).rank().cast(pl.Float64) for name in known]
    centred = [(one - one.mean()).fill_null(0.0).to_numpy() for one in ranks]
    spreads = [float(np.sqrt(one @ one)) for one in centred]
    kept = [index for index, spread in enumerate(spreads) if spread > 0]
    if len(kept) < 2:
        return []
    matrix = np.stack([centred[index] / spreads[index] for index in kept])
    correlations = np.abs(np.triu(matrix @ matrix.T, k=1))
    order = np.argsort(-correlations, axis=None, kind="stable")[:MOST_PAIRS]
    pairs = zip(*np.unravel_index(order, correlations.shape), strict=True)
    return [(known[kept[one]], known[kept[two]]) for one, two in pairs if correlations[one, two] >= RELATED]


def _comparable(features: Sequence[Feature]) -> list[tuple[str, str]]:
    """Return the pairs of columns that share most levels, such as the borough of departure and that of arrival."""
    found = [one for one in features if one.kind == LEVEL and not one.modelled][:MOST_COMPARED]
    levels = {one.columns[0]: set(one.levels) for one in found}
    return [
        (one, other)
        for one, other in combinations(levels, 2)
        if len(levels[one] & levels[other]) > max(1, SHARED * min(len(levels[one]), len(levels[other])))
    ][:MOST_PAIRS]


# Values of features, with flags of nulls.


def _numbers(column: pl.Series) -> Values:
    """Return the physical values of a column as floats."""
    physical = column.to_physical() if column.dtype.is_temporal() else column
    return physical.cast(pl.Float64).fill_null(0.0).to_numpy(), column.is_null().to_numpy()


def _part(part: str) -> Callable[[list[pl.Series]], Values]:
    """Return a function that reads a part of dates or times."""
    return lambda columns: _numbers(getattr(columns[0].dt, part)())


def _difference(columns: list[pl.Series]) -> Values:
    if columns[0].dtype.is_temporal():
        columns = [column.cast(pl.Datetime("us")) for column in columns]
    (one, no_one), (other, no_other) = map(_numbers, columns)
    with np.errstate(invalid="ignore", over="ignore"):
        return one - other, no_one | no_other


def _ratio(columns: list[pl.Series]) -> Values:
    (one, no_one), (other, no_other) = map(_numbers, columns)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        return one / other, no_one | no_other


def _same(columns: list[pl.Series]) -> Values:
    """Return 1.0 where both texts are equal, and 0.0 elsewhere."""
    one, other = (column.cast(pl.String) for column in columns)
    return _numbers((one == other).cast(pl.Float64))


def _roundness(columns: list[pl.Series]) -> Values:
    """Return how many decimals numbers have, or minus their number of trailing zeros before the point."""
    values, is_null = _numbers(columns[0])
    sizes = np.abs(values)
    digits = np.full(len(values), DIGITS + 1.0)
    is_float = columns[0].dtype.is_float() or columns[0].dtype.is_decimal()
    for n_digits in range(DIGITS if is_float else 0, -DIGITS - 1, -1):
        with np.errstate(invalid="ignore", over="ignore"):
            scaled = sizes * 10.0**n_digits if n_digits >= 0 else sizes / 10.0**-n_digits
            is_whole = np.abs(scaled - np.rint(scaled)) <= 1e-9 * np.maximum(scaled, 1.0)
        digits[is_whole] = n_digits
    digits[~np.isfinite(values)] = DIGITS + 1.0
    return digits, is_null


def _length(columns: list[pl.Series]) -> Values:
    return _numbers(columns[0].cast(pl.String).str.len_chars())


def _level_codes(column: pl.Series, levels: Sequence[str]) -> Codes:
    """Return the code of every level: 0 for null, and one more than the number of levels for any other."""
    texts = column.cast(pl.String)
    codes = texts.cast(pl.Enum(levels), strict=False).to_physical().cast(pl.Int64).fill_null(len(levels)) + 1
    return np.where(texts.is_null().to_numpy(), 0, codes.to_numpy()).astype(np.uint8)


def reads(kind: str, dtypes: Sequence[pl.DataType]) -> bool:
    """Return whether features of a kind can be computed from columns of these types.

    >>> reads("hour", [pl.Datetime()]), reads("hour", [pl.Date()]), reads("ratio", [pl.Int64()])
    (True, False, False)
    """
    if len(dtypes) != (2 if kind in PAIRS else 1):
        return False
    if kind == "difference":
        return all(dtype.is_numeric() for dtype in dtypes) or all(dtype in (pl.Date, pl.Datetime) for dtype in dtypes)
    return all(_reads_one(kind, dtype) for dtype in dtypes)


def _reads_one(kind: str, dtype: pl.DataType) -> bool:
    if kind in (LEVEL, "length", "same"):
        return dtype in (pl.String, pl.Categorical, pl.Enum)
    if kind == "number":
        return dtype.is_numeric() or dtype.is_temporal() or dtype == pl.Boolean
    if kind in ("roundness", "ratio"):
        return dtype.is_numeric()
    if kind in DATE_PARTS:
        return dtype in (pl.Date, pl.Datetime)
    return kind in TIME_PARTS and dtype in (pl.Datetime, pl.Time)


PAIRS = ("difference", "ratio", "same")  # kinds of two columns
RELATING = ("difference", "ratio", "roundness")  # kinds that a detector sees only if somebody thought of them
DATE_PARTS = ("month", "day", "weekday")
TIME_PARTS = ("hour", "minute", "second")
NUMBERS: dict[str, Callable[[list[pl.Series]], Values]] = {
    "number": lambda columns: _numbers(columns[0]),
    "roundness": _roundness,
    "length": _length,
    "difference": _difference,
    "ratio": _ratio,
    "same": _same,
    **{part: _part(part) for part in (*DATE_PARTS, *TIME_PARTS)},
}
