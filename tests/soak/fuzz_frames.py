"""Random tables for the fuzzer: columns of all types, relations between them, declared rules and options of `fit`.

Everything about a case is a function of its seed. A relation adds columns that others determine or bound, and the rules
that describe it; a rule is declared now and then, and has a truth of its own, written in Polars, to be checked by.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import polars as pl

Rng = np.random.Generator
MONDAY = date(2018, 1, 1)
ZONES = (None, None, "UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata")
UNITS: tuple[Any, ...] = ("ms", "us", "ns")
INTEGERS = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)
NAMES = ("a", "b", "total", "Unit price", "x`y", "größe", "start", "end", "n.1", "date", "min", "q", "hour", "kind")
WORDS = ("red", "green", "blue", "Grey", "black or white", "a|b", "", "ünï", "=x", "null", "0", "violet")
MOST_COLUMNS = 9


class Rule(NamedTuple):
    """A rule that can be declared."""

    given: Any  # as in `rules=`
    truth: pl.Expr | None  # whether a row satisfies it; null counts as true. None: only `Model.check` knows


class Made(NamedTuple):
    """Columns that belong together, and the rules about them."""

    columns: dict[str, pl.Series]
    rules: list[Rule]


class Case(NamedTuple):
    """One random table, and how it is fitted."""

    seed: int
    frame: pl.DataFrame
    rules: list[Rule]
    options: dict[str, Any]


def make_case(seed: int) -> Case:
    """Return the random table of a seed, its declared rules and the options of `fit`."""
    rng = np.random.default_rng(seed)
    n = int(np.exp(rng.uniform(np.log(200), np.log(1_500))))
    group = rng.integers(0, int(rng.integers(2, 6)), n)  # what columns depend on
    names = _names(rng)
    made = Made({}, [])
    n_columns = int(rng.integers(2, MOST_COLUMNS + 1))
    while len(made.columns) < n_columns:
        maker = choice(rng, RELATIONS if rng.random() < 0.45 else COLUMNS)
        new = maker(rng, group, names)
        made = Made({**made.columns, **new.columns}, [*made.rules, *new.rules])
    columns = [_with_gaps(rng, series).alias(name) for name, series in made.columns.items()]
    frame = pl.DataFrame([columns[i] for i in rng.permutation(len(columns))])
    rules = [rule for rule in made.rules if rng.random() < 0.5] + _chance_rules(rng, frame)
    return Case(seed, frame, rules, _options(rng, [rule.given for rule in rules]))


def choice(rng: Rng, values: Any) -> Any:
    """Return a random element; NumPy would change its type."""
    return list(values)[int(rng.integers(len(values)))]


def quoted(name: str) -> str:
    """Return a column as it is written in rules."""
    return "`" + name.replace("`", "``") + "`"


def _options(rng: Rng, rules: list[Any]) -> dict[str, Any]:
    return {
        "trees": int(rng.integers(3, 6)),
        "min_leaf": choice(rng, (None, None, 5, 20)),
        "max_rounds": int(rng.integers(1, 4)),
        "support": choice(rng, ("observed", "observed", "open")),
        "dependence": choice(rng, ("tree", "tree", "none")),
        "bundles": choice(rng, ("auto", "auto", False)),
        "family": choice(rng, ("truncnorm", "truncnorm", "uniform")),
        "refine": choice(rng, (False, False, False, False, "auto", True)),
        "find_rules": bool(rng.random() < 0.85),
        "rules": rules or None,
        "seed": int(rng.integers(1_000)),
    }


def _names(rng: Rng) -> list[str]:
    """Return names for new columns, to be taken from the end."""
    plain = [f"c{i}" for i in range(40)][::-1]
    return [*plain, *(NAMES[i] for i in rng.permutation(len(NAMES)))] if rng.random() < 0.5 else plain


def _with_gaps(rng: Rng, series: pl.Series) -> pl.Series:
    """Replace some values by null, or by NaN."""
    n = len(series)
    if rng.random() < 0.2:
        is_lost = rng.random(n) < choice(rng, (0.005, 0.05, 0.3))
        series = pl.select(pl.when(~pl.Series(is_lost)).then(series)).to_series()
    if series.dtype.is_float() and rng.random() < 0.1:
        series = series.set(pl.Series(rng.random(n) < 0.05) & series.is_not_null(), float("nan"))
    return series


# Columns without a relation.


def _one(make: Callable[[Rng, Any], pl.Series]) -> Callable[[Rng, Any, list[str]], Made]:
    return lambda rng, group, names: Made({names.pop(): make(rng, group)}, [])


def integers(rng: Rng, group: Any) -> pl.Series:
    """Whole numbers of all widths: counts, wide ranges, multiples, and numbers near the ends of their type."""
    dtype, n = choice(rng, INTEGERS), len(group)
    least, most = whole_limits(dtype)
    high = min(most, 2**50)
    kind = choice(rng, ("count", "count", "wide", "multiple", "spiked", "edge"))
    if kind == "wide":
        values = rng.integers(0, min(high, 10 ** int(rng.integers(2, 12))), n)
    elif kind == "multiple":
        step = choice(rng, (2, 5, 25, 100))
        values = np.minimum(rng.integers(0, 12 + 8 * group, n), high // step) * step
    elif kind == "edge":
        inner, is_upper = rng.integers(0, 100, n).tolist(), rng.random() < 0.5
        return pl.Series([most - i if is_upper else least + i for i in inner], dtype=dtype)
    else:
        values = np.minimum(rng.poisson(3 + 4 * group), high)
        values = np.where(rng.random(n) < 0.3, 40, values) if kind == "spiked" else values
    sign = -1 if dtype in (pl.Int16, pl.Int32, pl.Int64) and rng.random() < 0.2 else 1
    return pl.Series(sign * values).cast(dtype)


def whole_limits(dtype: Any) -> tuple[int, int]:
    """Return the smallest and the largest number of a dtype of whole numbers."""
    info = np.iinfo(str(dtype()).lower())
    return int(info.min), int(info.max)


def floats(rng: Rng, group: Any) -> pl.Series:
    """Floats: any, rounded, of mixed decimals, multiples of a step, with spikes, heavy tails or large offsets."""
    n = len(group)
    kind = choice(rng, ("normal", "rounded", "mixed", "steps", "spiked", "heavy", "offset", "tiny"))
    values = rng.normal(group, 0.7)
    if kind == "rounded":
        values = np.round(10 * values, int(rng.integers(0, 4)))
    elif kind == "mixed":
        values = np.where(rng.random(n) < 0.6, np.round(values, 1), np.round(values, 4))
    elif kind == "steps":
        values = np.round(values * 8) * choice(rng, (0.25, 0.5, 2.5))
    elif kind == "spiked":
        values = np.where(rng.random(n) < 0.4, choice(rng, (0.0, 99.99)), values)
    elif kind == "heavy":
        values = np.exp(3 * values)
    elif kind == "offset":
        values = 1e6 + np.round(values, 2)
    elif kind == "tiny":
        values = values * 1e-9
    return pl.Series(values).cast(pl.Float32 if rng.random() < 0.3 else pl.Float64)


def decimals(rng: Rng, group: Any) -> pl.Series:
    scale = int(rng.integers(0, 5))
    units = rng.integers(-100, 10_000 * (1 + group))
    return pl.Series([Decimal(int(u)).scaleb(-scale) for u in units], dtype=pl.Decimal(choice(rng, (12, 38)), scale))


def levels(rng: Rng, group: Any) -> pl.Series:
    """Booleans, texts, enums and categoricals that depend on the group."""
    n, n_levels = len(group), int(rng.integers(2, len(WORDS) + 1))
    numbers = np.where(rng.random(n) < 0.5, group, rng.integers(0, n_levels, n)) % n_levels
    if rng.random() < 0.2:
        return pl.Series(numbers % 2 == 0)
    values = pl.Series([WORDS[i] for i in numbers])
    return values.cast(choice(rng, (pl.String, pl.String, pl.Categorical, pl.Enum([*WORDS, "unused"]))))


def dates(rng: Rng, group: Any) -> pl.Series:
    """Days: any, business days, first days of months, quarters and years, or on a few weekdays."""
    kind = choice(rng, ("day", "business", "month", "quarter", "year", "weekday"))
    number = rng.integers(0, 200 + 300 * group)
    if kind in ("month", "quarter", "year"):
        months = (
            number % 60 // {"month": 1, "quarter": 3, "year": 12}[kind] * {"month": 1, "quarter": 3, "year": 12}[kind]
        )
        return pl.Series([date(2010 + int(m) // 12, int(m) % 12 + 1, 1) for m in months])
    if kind == "business":
        number = number // 5 * 7 + number % 5
    if kind == "weekday":
        number = number // 7 * 7 + rng.choice(7, len(group), p=[0.3, 0.3, 0.1, 0.1, 0.1, 0.08, 0.02])
    return pl.Series([MONDAY + timedelta(days=int(d)) for d in number])


def instants(rng: Rng, group: Any) -> list[datetime]:
    """Times of the local clock, at any second or at busy hours."""
    n, kind = len(group), choice(rng, ("any", "busy", "busy", "midnight"))
    hours = np.clip(rng.normal(12 + group, 3), 0, 23).astype(int) if kind == "busy" else rng.integers(0, 24, n)
    step = choice(rng, (1, 60, 900, 3600))
    seconds = hours * 3600 + rng.integers(0, 3600, n) // step * step
    seconds = np.where(kind == "midnight", 0, seconds)
    days = rng.integers(0, 400, n)
    return [datetime(2020, 1, 6) + timedelta(days=int(d), seconds=int(s)) for d, s in zip(days, seconds, strict=True)]


def datetimes(rng: Rng, group: Any) -> pl.Series:
    """Timestamps of all units, with and without a zone."""
    zone = choice(rng, ZONES)
    local = pl.Series(instants(rng, group)).cast(pl.Datetime(choice(rng, UNITS)))
    return local if zone is None else local.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")


def durations(rng: Rng, group: Any) -> pl.Series:
    step = choice(rng, (1, 60, 86_400))
    seconds = rng.poisson(20 * (1 + group)) * step
    return pl.Series([timedelta(seconds=int(s)) for s in seconds]).cast(pl.Duration(choice(rng, UNITS)))


def times(rng: Rng, group: Any) -> pl.Series:
    seconds = rng.integers(0, 86_400, len(group)) // (step := choice(rng, (1, 60, 900))) * step
    return pl.Series([time(s // 3600, s // 60 % 60, s % 60) for s in seconds.tolist()])


def clocks(rng: Rng, group: Any) -> pl.Series:
    minutes = np.clip(rng.normal(600 + 100 * group, 200), 1, 1_439).astype(int) // (step := choice(rng, (1, 5))) * step
    return pl.Series(minutes // 60 * 100 + minutes % 60)


def date_texts(rng: Rng, group: Any) -> pl.Series:
    form = choice(rng, ("%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%SZ"))
    return pl.Series([t.strftime(form) for t in instants(rng, group)])


def rare(rng: Rng, group: Any) -> pl.Series:
    """Columns that are nothing but one value, null or an identifier."""
    n, kind = len(group), choice(rng, ("constant", "empty", "number", "text"))
    if kind == "constant":
        return pl.Series([choice(rng, (7, 1.5, "same", True, MONDAY))] * n)
    if kind == "empty":
        return pl.Series([None] * n, dtype=choice(rng, (pl.Int32, pl.String, pl.Float64)))
    start = int(rng.integers(1, 10_000))
    return pl.Series(range(start, start + n)) if kind == "number" else pl.Series([f"id-{i:05}" for i in range(n)])


COLUMNS = [
    *(_one(make) for make in (integers, integers, floats, floats, floats, decimals, levels, levels, levels)),
    *(_one(make) for make in (dates, dates, datetimes, datetimes, durations, times, clocks, date_texts)),
    _one(rare),
]


# Relations.


def _comparison(left: str, sign: str, right: str) -> Rule:
    """Return the rule that one column is below, above or unlike another."""
    one, two = pl.col(left), pl.col(right)
    truths = {"<=": one <= two, "<": one < two, "!=": one != two, ">=": one >= two, ">": one > two}
    return Rule(f"{quoted(left)} {sign} {quoted(right)}", truths[sign])


def _equation(target: str, formula: str, truth: pl.Expr, half_unit: float = 0.0) -> Rule:
    """Return the rule that a column has the value of a formula, up to rounding."""
    is_equal = (pl.col(target) - truth).abs() <= half_unit if half_unit else pl.col(target) == truth
    return Rule(f"{quoted(target)} == {formula}", is_equal)


def _share_of_rows(rng: Rng, values: Any, others: Any) -> Any:
    """Replace values by others, in no row or in a share of rows."""
    return (
        values
        if rng.random() < 0.6
        else np.where(rng.random(len(values)) < choice(rng, (0.02, 0.3, 0.8)), others, values)
    )


def sums(rng: Rng, group: Any, names: list[str]) -> Made:
    a, b, c = names.pop(), names.pop(), names.pop()
    one, two = rng.poisson(20 + 10 * group), rng.integers(0, 50, len(group))
    minus = rng.random() < 0.3
    total = one - two if minus else one + two
    rules = (
        []
        if (mixed := _share_of_rows(rng, total, one)) is not total
        else [
            _equation(
                c,
                f"{quoted(a)} {'-' if minus else '+'} {quoted(b)}",
                pl.col(a) - pl.col(b) if minus else pl.col(a) + pl.col(b),
            )
        ]
    )
    return Made({a: pl.Series(one), b: pl.Series(two), c: pl.Series(mixed)}, rules)


def products(rng: Rng, group: Any, names: list[str]) -> Made:
    price, count, total = names.pop(), names.pop(), names.pop()
    prices, counts = np.round(rng.gamma(3, 5 + 5 * group), 2) + 0.5, rng.integers(1, 9, len(group))
    totals = np.round(prices * counts, 2)
    mixed = _share_of_rows(rng, totals, np.round(totals * 0.9, 2))
    rule = _equation(total, f"{quoted(price)} * {quoted(count)}", pl.col(price) * pl.col(count), 0.0051)
    columns = {price: pl.Series(prices), count: pl.Series(counts), total: pl.Series(mixed)}
    if rng.random() < 0.2:
        columns |= {name: columns[name].cast(pl.Decimal(14, 2)) for name in (price, total)}
        return Made(columns, [])
    return Made(columns, [rule] if mixed is totals else [])


def remainders(rng: Rng, group: Any, names: list[str]) -> Made:
    """A bill that is a price and one of a few fees, or the price in a share of rows."""
    price, bill = names.pop(), names.pop()
    prices = np.round(rng.gamma(3, 5 + 5 * group), 2)
    if rng.random() < 0.5:
        bills, formula = np.round(prices + rng.choice([0, 3.9, 9.9], len(group)), 2), "one_of(0, 3.9, 9.9)"
        fees = (pl.col(bill) - pl.col(price)).round(4)
        truth = pl.any_horizontal((fees - fee).abs() < 0.0051 for fee in (0, 3.9, 9.9))
        rules = [Rule(f"{quoted(bill)} == {quoted(price)} + {formula}", truth)]
        return Made({price: pl.Series(prices), bill: pl.Series(bills)}, rules)
    paid = np.where(
        rng.random(len(group)) < rng.uniform(0.1, 0.9), prices, np.round(prices * rng.random(len(group)), 2)
    )
    return Made({price: pl.Series(prices), bill: pl.Series(paid)}, [])


def orders(rng: Rng, group: Any, names: list[str]) -> Made:
    """A column that is never below another one: numbers, dates or times."""
    low, high = names.pop(), names.pop()
    n, kind = len(group), choice(rng, ("integer", "float", "decimals", "date", "datetime", "float32"))
    gaps = rng.poisson(3, n) if rng.random() < 0.7 else 1 + rng.poisson(3, n)
    first: Any
    if kind in ("date", "datetime"):
        first = dates(rng, group) if kind == "date" else datetimes(rng, group)
        unit = pl.Series([timedelta(days=int(g)) if kind == "date" else timedelta(minutes=7 * int(g)) for g in gaps])
        return Made({low: first, high: first + unit}, [_comparison(low, "<=", high)])
    first = rng.poisson(10 * (1 + group)) if kind == "integer" else rng.normal(10 * group, 5)
    first = np.round(first, 2) if kind == "decimals" else first
    second = first + gaps if kind == "integer" else first + np.where(gaps == 0, 0, np.round(rng.gamma(2, 2, n), 2))
    dtype = {"integer": pl.Int64, "float32": pl.Float32}.get(kind, pl.Float64)
    second = np.round(second, 2) if kind == "decimals" else second
    return Made(
        {low: pl.Series(first).cast(dtype), high: pl.Series(second).cast(dtype)}, [_comparison(low, "<=", high)]
    )


def differences(rng: Rng, group: Any, names: list[str]) -> Made:
    home, away = names.pop(), names.pop()
    k = int(rng.integers(3, 10))
    one = (group + rng.integers(0, k, len(group))) % k
    two = (one + rng.integers(1, k, len(group))) % k
    columns = {home: pl.Series(one), away: pl.Series(two)}
    if rng.random() < 0.6:
        columns = {name: pl.Series([WORDS[i] for i in series]) for name, series in columns.items()}
    return Made(columns, [_comparison(home, "!=", away)])


def clock_parts(rng: Rng, group: Any, names: list[str]) -> Made:
    """A timestamp and its hour, date, month, year or weekday."""
    at, part = names.pop(), names.pop()
    stamps = datetimes(rng, group)
    kind = choice(rng, ("hour", "hour", "date", "month", "year", "weekday", "minute"))
    rule = Rule(f"{quoted(part)} == {kind}({quoted(at)})", pl.col(part) == getattr(pl.col(at).dt, kind)())
    return Made({at: stamps, part: getattr(stamps.dt, kind)()}, [rule])


def joined_texts(rng: Rng, group: Any, names: list[str]) -> Made:
    one, two, both = names.pop(), names.pop(), names.pop()
    first = pl.Series([f"{'ABCDE'[g]}{i}" for g, i in zip(group.tolist(), rng.integers(0, 9, len(group)), strict=True)])
    second = pl.Series([str(i) for i in rng.integers(10, 40, len(group))])
    rule = Rule(
        f'{quoted(both)} == {quoted(one)} + "-" + {quoted(two)}', pl.col(both) == pl.col(one) + "-" + pl.col(two)
    )
    return Made({one: first, two: second, both: first + "-" + second}, [rule])


def bundles(rng: Rng, group: Any, names: list[str]) -> Made:
    """A city, its country and its price level, which go together."""
    city, country = names.pop(), names.pop()
    places = (group * 3 + rng.integers(0, 3, len(group))) % 12
    cities = pl.Series([f"city {i}" for i in places])
    nations: Any = (
        [("NO", "IT", "PE")[i % 3] for i in places] if rng.random() < 0.6 else [10 * (i // 2) for i in places]
    )
    return Made({city: cities, country: pl.Series(nations)}, [Rule([city, country], None)])


def spans_of_time(rng: Rng, group: Any, names: list[str]) -> Made:
    """A start, an end, and the days between them."""
    start, end, length = names.pop(), names.pop(), names.pop()
    starts, gaps = dates(rng, group), rng.poisson(5, len(group))
    ends = starts + pl.Series([timedelta(days=int(g)) for g in gaps])
    rule = Rule(
        f"{quoted(length)} == in_days({quoted(end)} - {quoted(start)})",
        pl.col(length) == (pl.col(end) - pl.col(start)).dt.total_days(),
    )
    return Made({start: starts, end: ends, length: pl.Series(gaps)}, [rule, _comparison(start, "<=", end)])


def clock_sums(rng: Rng, group: Any, names: list[str]) -> Made:
    """A departure, and an arrival some minutes later, across midnight."""
    start, end = names.pop(), names.pop()
    departures = clocks(rng, group)
    minutes = (departures // 100 * 60 + departures % 100 + pl.Series(rng.integers(20, 600, len(group)))) % 1_440
    arrivals = minutes // 60 * 100 + minutes % 60
    if rng.random() < 0.4:
        delay = names.pop()
        late = pl.Series(rng.integers(-10, 60, len(group)))
        moved = (departures // 100 * 60 + departures % 100 + late) % 1_440
        rule = f"{quoted(end)} == clock(clock_minutes({quoted(start)}) + {quoted(delay)})"
        return Made({start: departures, delay: late, end: moved // 60 * 100 + moved % 60}, [Rule(rule, None)])
    return Made({start: departures, end: arrivals}, [])


def copies(rng: Rng, group: Any, names: list[str]) -> Made:
    """A column, and another with the same value in all rows or in a share of them."""
    one, two = names.pop(), names.pop()
    make = choice(rng, (integers, floats, levels, dates, datetimes))
    first = make(rng, group)
    other = first.sample(len(first), shuffle=True, seed=int(rng.integers(1_000)))
    is_same = pl.Series(rng.random(len(group)) < choice(rng, (1.0, 0.9, 0.5)))
    second = first.zip_with(is_same, other)
    return Made({one: first, two: second}, [Rule(f"{quoted(two)} == {quoted(one)}", None)] if is_same.all() else [])


def scaled(rng: Rng, group: Any, names: list[str]) -> Made:
    """A number in two units, or a rounded function of it."""
    one, two = names.pop(), names.pop()
    grams = rng.integers(1, 100 * (1 + group)) * 5
    factor = choice(rng, (1000, 60, 7))
    rule = _equation(two, f"{quoted(one)} * {factor}", pl.col(one) * factor)
    return Made({one: pl.Series(grams), two: pl.Series(grams * factor)}, [rule])


RELATIONS = [
    *(sums, products, remainders, orders, orders, differences, clock_parts, clock_parts, joined_texts, bundles),
    *(spans_of_time, clock_sums, copies, scaled),
]


def _chance_rules(rng: Rng, frame: pl.DataFrame) -> list[Rule]:
    """Return a rule now and then that holds in many rows by chance: between two columns, or with a bound."""
    rules: list[Rule] = []
    numbers = [name for name in frame.columns if frame.schema[name].is_integer() or frame.schema[name] == pl.Float64]
    if len(numbers) >= 2 and rng.random() < 0.15:
        one, two = (numbers[i] for i in rng.permutation(len(numbers))[:2])
        rules.append(_comparison(one, choice(rng, ("<=", "<", ">=", ">", "!=")), two))
    if numbers and rng.random() < 0.1:
        name = choice(rng, numbers)
        bound = frame[name].cast(pl.Float64).fill_nan(None).quantile(0.8)
        if bound is not None and 0 <= bound < 1e15:
            rules.append(Rule(f"{quoted(name)} <= {bound:.4f}", pl.col(name) <= float(f"{bound:.4f}")))
    if rng.random() < 0.05 and frame.width >= 2:
        rules.append(Rule([frame.columns[i] for i in rng.permutation(frame.width)[:2]], None))
    return [rule for rule in rules if rule.truth is None or _share(frame, rule.truth) >= 0.4]


def _share(frame: pl.DataFrame, truth: pl.Expr) -> float:
    return float(frame.select(truth.fill_null(True).mean().cast(pl.Float64)).item())


def holds(frame: pl.DataFrame, truth: pl.Expr) -> pl.Series:
    """Flag the rows in which a truth is not false; null and NaN are unknown."""
    return frame.fill_nan(None).select(truth.fill_null(True).alias("holds"))["holds"]
