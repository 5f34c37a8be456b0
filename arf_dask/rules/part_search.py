"""Search for columns derived from others: date parts, digits, substrings, concatenations and clock arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.rules.evaluation import evaluate, kind_of_dtype
from arf_dask.rules.expressions import Call, Constant, Name, Node, Operation
from arf_dask.rules.functions import MICROSECONDS
from arf_dask.rules.number_search import Guess
from arf_dask.rules.transforms.grid import clock_columns

DATE_PARTS = ("year", "month", "day", "weekday", "quarter", "week", "day_of_year")
TIME_PARTS = ("hour", "minute", "second")
DATE_FORMS = ("%Y-%m-%d", "%Y-%m", "%Y%m%d", "%B", "%b", "%A", "%a", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%Y")
ZONES = [
    "America/New_York",
    "America/Chicago",
    "America/Denver",
    "America/Los_Angeles",
    "America/Sao_Paulo",
    "America/Halifax",
    "Europe/London",
    "Europe/Berlin",
    "Europe/Athens",
    "Europe/Moscow",
    "Africa/Cairo",
    "Asia/Kolkata",
    "Asia/Shanghai",
    "Asia/Tokyo",
    "Asia/Dubai",
    "Australia/Sydney",
    "Australia/Perth",
    "Pacific/Auckland",
]
SEPARATORS = (" ", "-", "_", ", ", "/", ":", ".", "@", "")
LEAST_SHARE = 0.5
SCREEN_ROWS = 60
MOST_TEXTS = 24
MOST_LETTERS = 4


class _Screen:
    """All columns on a few rows, grouped by comparable kind, to compare an expression with all of them at once."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self.rows = frame.gather_every(max(1, frame.height // SCREEN_ROWS)).head(SCREEN_ROWS)
        columns_by_kind: dict[str, list[tuple[str, NDArray[np.float64]]]] = {}
        for series in frame:
            kind = _group(series.dtype)
            if kind is not None and series.n_unique() > 2:
                columns_by_kind.setdefault(kind, []).append(
                    (series.name, _plain_numbers(self.rows.get_column(series.name)))
                )
        self.names = {kind: [name for name, _ in kind_columns] for kind, kind_columns in columns_by_kind.items()}
        self.values = {
            kind: np.stack([column_values for _, column_values in kind_columns], axis=1)
            for kind, kind_columns in columns_by_kind.items()
        }

    def alike(self, node: Node) -> list[str]:
        """Return the columns that equal an expression in a minimum share of the screened rows."""
        values = evaluate(node, self.rows)
        kind = _group(values.dtype)
        if kind not in self.values:
            return []
        return self.equal(kind, _plain_numbers(values)[:, None])[0]

    def equal(self, kind: str, table: NDArray[np.float64]) -> list[list[str]]:
        """Return, for each column of a table, the columns of a kind that equal it in a minimum share of the rows."""
        equal_names = []
        for column in table.T:
            is_known = ~np.isnan(column)[:, None] & ~np.isnan(self.values[kind])
            n_same = (column[:, None] == self.values[kind]).sum(axis=0)
            n_known = is_known.sum(axis=0)
            hit_index = np.flatnonzero((n_known >= 10) & (n_same >= LEAST_SHARE * 0.7 * n_known))
            equal_names.append([self.names[kind][index] for index in hit_index])
        return equal_names


def search_parts(frame: pl.DataFrame) -> list[Guess]:
    """Guess columns that are a function of one or two others, by comparing values on a sample."""
    screen = _Screen(frame)
    guesses = []
    for source, nodes in (
        *_date_sources(frame),
        *_number_sources(frame, "text" in screen.names),
        *_text_sources(frame),
    ):
        for node in nodes:
            guesses += [Guess(name, node) for name in screen.alike(node) if name != source]
    guesses += _digits(screen)
    return [*guesses, *_zone_parts(frame), *_clock_sums(frame), *_text_sums(frame), *_time_sums(frame)]


def _group(dtype: pl.DataType) -> str | None:
    kind = kind_of_dtype(dtype)
    if dtype in (pl.Null, pl.Boolean):
        return None
    return {"integer": "number", "date": "datetime"}.get(kind, kind)


def _plain_numbers(series: pl.Series) -> NDArray[np.float64]:
    """Convert values to floats: numbers unchanged, times as ticks, texts as hashes, null as NaN."""
    series = series.alias("")
    if kind_of_dtype(series.dtype) == "text":
        text_hashes = series.cast(pl.String).hash().cast(pl.Float64)
        return np.where(series.is_null().to_numpy(), np.nan, text_hashes.to_numpy())
    if isinstance(series.dtype, pl.Date | pl.Datetime):
        series = series.dt.replace_time_zone(None) if isinstance(series.dtype, pl.Datetime) else series
        series = series.cast(pl.Datetime("us"))
    return np.array(series.to_physical().cast(pl.Float64).to_numpy())


def _digits(screen: _Screen) -> Iterator[Guess]:
    """Guess columns that are leading or trailing digits of integers, or their absolute values."""
    if "number" not in screen.names:
        return
    values, names = screen.values["number"], screen.names["number"]
    whole_columns = np.flatnonzero((np.isnan(values) | (values == np.round(values))).all(axis=0))
    magnitudes = np.nanmax(np.abs(values), axis=0, initial=0.0)
    for divisor in (10, 60, 100, 1_000):
        sources = whole_columns[magnitudes[whole_columns] >= divisor]
        for sign, table in (("//", values[:, sources] // divisor), ("%", values[:, sources] % divisor)):
            for source, equal_names in zip(sources, screen.equal("number", table), strict=True):
                node = Operation(sign, Name(names[source]), Constant(divisor))
                yield from (Guess(name, node) for name in equal_names if name != names[source])
    for source, equal_names in zip(
        whole_columns, screen.equal("number", np.abs(values[:, whole_columns])), strict=True
    ):
        if (values[:, source] < 0).any():
            yield from (
                Guess(name, Call("abs", (Name(names[source]),))) for name in equal_names if name != names[source]
            )


def _date_sources(frame: pl.DataFrame) -> Iterator[tuple[str, list[Node]]]:
    """Yield date and time columns, also those stored as text, with the expressions that may be derived from them."""
    for series in frame:
        node: Node = Name(series.name)
        dtype, has_clock = series.dtype, isinstance(series.dtype, pl.Datetime)
        if dtype == pl.String:
            first_texts = series.drop_nulls().head(20)
            parsed_texts = evaluate(Call("datetime", (node,)), pl.DataFrame({series.name: first_texts}))
            if not len(first_texts) or parsed_texts.null_count():
                continue
            node = Call("datetime", (node,))
            has_clock = bool(
                (parsed_texts.dt.time() != parsed_texts.dt.time()[0]).any() or parsed_texts.dt.hour().max() != 0
            )
        elif dtype == pl.Time:
            yield series.name, [Call(part, (node,)) for part in TIME_PARTS]
            continue
        elif not (dtype == pl.Date or has_clock):
            continue
        nodes: list[Node] = [Call(part, (node,)) for part in DATE_PARTS]
        nodes += [Call(start, (node,)) for start in ("month_start", "year_start")]
        nodes += [Call("date_text", (node, Constant(form))) for form in DATE_FORMS]
        nodes += [Call("epoch_seconds", (node,)), Call("epoch_milliseconds", (node,))]
        if has_clock:
            nodes += [Call(part, (node,)) for part in TIME_PARTS]
            nodes += [Call("date", (node,)), Call("hour_start", (node,)), Call("time", (node,))]
            nodes.append(Call("date_text", (node, Constant("%Y-%m-%d %H:%M:%S"))))
        elif dtype == pl.String:
            nodes.append(Call("date", (node,)))
        yield series.name, nodes


def _number_sources(frame: pl.DataFrame, texts: bool) -> Iterator[tuple[str, list[Node]]]:
    """Yield integer columns with the expressions that format them as text."""
    integer_names = [name for name, dtype in frame.schema.items() if dtype.is_integer()]
    for name in integer_names[: MOST_TEXTS if texts else 0]:
        node = Name(name)
        max_length = frame.get_column(name).cast(pl.String).str.len_chars().max()
        padded_texts = [Call("pad", (node, Constant(width))) for width in range(2, 11) if width >= int(max_length or 0)]  # type: ignore[arg-type]
        yield name, [Call("text", (node,)), *padded_texts]


def _text_sources(frame: pl.DataFrame) -> Iterator[tuple[str, list[Node]]]:
    text_names = [name for name, dtype in frame.schema.items() if kind_of_dtype(dtype) == "text"]
    for name in text_names[:MOST_TEXTS]:
        node, nodes = Name(name), []
        text_values = frame.get_column(name).cast(pl.String)
        for function in ("upper", "lower", "title", "strip"):
            nodes.append(Call(function, (node,)))
        for separator in (sign for sign in SEPARATORS if sign and text_values.str.contains(sign, literal=True).mean()):
            nodes += [Call(side, (node, Constant(separator))) for side in ("before", "after")]
        nodes += [Call(side, (node, Constant(n))) for side in ("left", "right") for n in range(1, MOST_LETTERS + 1)]
        yield name, [*nodes, *(Call("upper", (Call("left", (node, Constant(n))),)) for n in (2, 3))]


def _zone_parts(frame: pl.DataFrame) -> Iterator[Guess]:
    """Guess columns that are hours and date parts in the local time of another time zone."""
    hour_columns = {
        name: frame.get_column(name).cast(pl.Float64) for name in frame.columns if _is_hour(frame.get_column(name))
    }
    for series in frame if hour_columns else ():
        node: Node = Name(series.name)
        if series.dtype == pl.String:
            node = Call("datetime", (node,))
        elif not isinstance(series.dtype, pl.Datetime):
            continue
        timestamps = evaluate(node, frame)
        if timestamps.null_count() > 0.5 * len(timestamps):
            continue
        zone = next(
            (
                candidate
                for hour_values in hour_columns.values()
                if (candidate := _zone_of(node, timestamps, hour_values, frame)) is not None
            ),
            None,
        )
        if zone is not None:
            local_time = Call("in_zone", (node, Constant(zone)))
            for part in (*DATE_PARTS, "hour", "date"):
                local_part = Call(part, (local_time,))
                yield from (Guess(name, local_part) for name in _Screen(frame).alike(local_part) if name != series.name)


def _zone_of(node: Node, stamps: pl.Series, hours: pl.Series, frame: pl.DataFrame) -> str | None:
    """Return the time zone whose local time has these hours; None if there is none or the times already have them."""
    hour_offsets = (hours - stamps.dt.hour().cast(pl.Float64)).drop_nulls() % 24
    if not 1 <= hour_offsets.n_unique() <= 2 or (hour_offsets == 0).all():
        return None
    for zone in ZONES:
        local_hour = Call("hour", (Call("in_zone", (node, Constant(zone))),))
        if (evaluate(local_hour, frame).cast(pl.Float64) == hours).drop_nulls().mean() == 1.0:
            return zone
    return None


def _is_hour(series: pl.Series) -> bool:
    if kind_of_dtype(series.dtype) not in ("integer", "number") or series.dtype == pl.Boolean:
        return False
    values = series.cast(pl.Float64).drop_nulls()
    are_hours = len(values) and (values == values.round(0)).all() and values.min() >= 0 and values.max() < 24  # type: ignore[operator]
    return bool(are_hours) and values.n_unique() > 2


def _clock_sums(frame: pl.DataFrame) -> Iterator[Guess]:
    """Guess clock numbers that are another clock number plus a delay in minutes, across midnight."""
    clock_names = clock_columns(frame)
    if len(clock_names) < 2:
        return
    clock_values = {
        name: evaluate(Call("clock_minutes", (Name(name),)), frame).cast(pl.Float64).to_numpy() for name in clock_names
    }
    delay_names = [
        n for n, t in frame.schema.items() if n not in clock_names and kind_of_dtype(t) in ("integer", "number")
    ]
    for target, start in permutations(clock_names, 2):
        elapsed = clock_values[target] - clock_values[start]
        clock_function = "clock24" if frame.get_column(target).cast(pl.Float64).max() == 2400 else "clock"
        for delay in delay_names:
            residual = (elapsed - frame.get_column(delay).cast(pl.Float64).to_numpy()) % 1440
            is_known = ~np.isnan(residual)
            if is_known.sum() >= 30 and (residual[is_known] == 0).mean() >= LEAST_SHARE:
                end_minutes = Operation("+", Call("clock_minutes", (Name(start),)), Name(delay))
                yield Guess(target, Call(clock_function, (end_minutes,)))


def _text_sums(frame: pl.DataFrame) -> Iterator[Guess]:
    """Guess texts that are the concatenation of two columns, with or without a separator."""
    text_names = [
        n for n, dtype in frame.schema.items() if kind_of_dtype(dtype) == "text" and frame.get_column(n).n_unique() > 2
    ]
    if not 2 <= len(text_names) <= MOST_TEXTS:
        return
    integer_names = [n for n, dtype in frame.schema.items() if dtype.is_integer()][:MOST_TEXTS]
    text_columns = {name: frame.get_column(name).cast(pl.String) for name in [*text_names, *integer_names]}
    text_lengths = {name: series.str.len_chars().cast(pl.Int64) for name, series in text_columns.items()}
    for target in text_names:
        for first_name, second_name in permutations(text_columns, 2):
            if target in (first_name, second_name) or (first_name in integer_names and second_name in integer_names):
                continue
            extra_length = (text_lengths[target] - text_lengths[first_name] - text_lengths[second_name]).drop_nulls()
            if not len(extra_length) or not 0 <= int(extra_length.median()) <= 2:  # type: ignore[arg-type]
                continue
            for separator in SEPARATORS:
                if len(separator) == int(extra_length.median()):  # type: ignore[arg-type]
                    is_same = (
                        text_columns[first_name] + separator + text_columns[second_name] == text_columns[target]
                    ).drop_nulls()
                    if len(is_same) >= 10 and is_same.mean() >= LEAST_SHARE:  # type: ignore[operator]
                        yield Guess(target, _text_sum(frame, first_name, separator, second_name))


def _text_sum(frame: pl.DataFrame, one: str, separator: str, other: str) -> Node:
    left, right = (
        Name(name) if kind_of_dtype(frame.schema[name]) == "text" else Call("text", (Name(name),))
        for name in (one, other)
    )
    joined = Operation("+", left, Constant(separator)) if separator else left
    return Operation("+", joined, right)


def _time_sums(frame: pl.DataFrame) -> Iterator[Guess]:
    """Guess times that are another time plus a duration, or plus a number of days, hours, minutes or seconds."""
    timestamps = {
        n: _ticks(frame.get_column(n)) for n, t in frame.schema.items() if isinstance(t, pl.Date | pl.Datetime)
    }
    if len(timestamps) < 2:
        return
    durations: list[tuple[str, Node, np.ndarray[tuple[int], np.dtype[np.float64]]]] = []
    for name, dtype in frame.schema.items():
        if isinstance(dtype, pl.Duration):
            durations.append(
                (
                    name,
                    Name(name),
                    frame.get_column(name).cast(pl.Duration("us")).to_physical().cast(pl.Float64).to_numpy(),
                )
            )
        elif dtype.is_numeric():
            values = frame.get_column(name).cast(pl.Float64).to_numpy()
            durations += [(name, Call(unit, (Name(name),)), values * ticks) for unit, ticks in MICROSECONDS.items()]
    for target, start in permutations(timestamps, 2):
        elapsed = timestamps[target] - timestamps[start]
        for _, node, span in durations:
            is_known = ~np.isnan(elapsed) & ~np.isnan(span)
            if (
                is_known.sum() >= 10
                and (np.abs(elapsed - span)[is_known] <= 500_000).mean() >= LEAST_SHARE
                and np.any(span[is_known])
            ):
                yield Guess(target, Operation("+", Name(start), node))


def _ticks(series: pl.Series) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    zone = getattr(series.dtype, "time_zone", None)
    return series.cast(pl.Datetime("us", zone)).to_physical().cast(pl.Float64).to_numpy()
