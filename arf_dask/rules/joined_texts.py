"""Take joined texts apart: find the texts of columns from the text that they were joined to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from arf_dask.rules.evaluation import evaluate
from arf_dask.rules.expressions import Call, Name, Node, Operation
from arf_dask.typing import Floats

WRITING = ("text", "pad")  # functions that write a column as text


def take_apart(
    texts: pl.Series, formula: Node, frame: pl.DataFrame, chance: Floats | None = None
) -> dict[str, pl.Series]:
    """Return the texts of the unknown columns that a formula joins, by column.

    They are null in rows where they are known, cannot be found, or where several texts are possible.

    Args:
        texts: the joined texts.
        formula: the formula, such as `first + " " + last`.
        frame: the rows, in which null means unknown.
        chance: a number between 0 and 1 per row, which selects one of several possible texts.

    >>> from arf_dask.rules.grammar import parse_expression
    >>> rows = pl.DataFrame({"first": [None, None, "Mary Ann"], "last": ["Day", None, None]})
    >>> found = take_apart(
    ...     pl.Series(["Doris Day", "Ada Lovelace", "Mary Ann Lee"]), parse_expression('first + " " + last'), rows
    ... )
    >>> found["first"].to_list(), found["last"].to_list()
    (['Doris', 'Ada', None], [None, 'Lovelace', 'Lee'])
    """
    pieces = _pieces(formula)
    columns = [_column_of(piece) for piece in pieces]
    names = [name for name in columns if name is not None]
    if len(pieces) < 2 or not names or len(set(names)) < len(names):
        return {}
    values = [evaluate(piece, frame) for piece in pieces]
    is_unknown = np.array([value.is_null().to_numpy() for value in values]).T & texts.is_not_null().to_numpy()[:, None]
    patterns, pattern_of = np.unique(is_unknown, axis=0, return_inverse=True)
    places, frames = [np.empty(0, dtype=np.int64)], [pl.DataFrame(schema=dict.fromkeys(names, pl.String))]
    for number, pattern in enumerate(patterns):
        own_places = np.flatnonzero(pattern_of.ravel() == number)
        unknown = [column for column, is_one in zip(columns, pattern, strict=True) if is_one]
        found = dict.fromkeys(names, pl.Series([None], dtype=pl.String).new_from_index(0, len(own_places)))
        if unknown and None not in unknown:
            known = [None if is_one else value[own_places] for value, is_one in zip(values, pattern, strict=True)]
            own_chance = None if chance is None else pl.Series(chance[own_places])
            parts = _split(texts[own_places], known, own_chance)
            found |= {name: part for name, part in zip(unknown, parts, strict=True) if name is not None}
        places.append(own_places)
        frames.append(pl.DataFrame(found))
    return {column.name: column for column in pl.concat(frames)[np.argsort(np.concatenate(places))]}


def _pieces(formula: Node) -> list[Node]:
    """Return the texts that a formula joins, from left to right."""
    match formula:
        case Operation("+", left, right):
            return [*_pieces(left), *_pieces(right)]
    return [formula]


def _column_of(piece: Node) -> str | None:
    """Return the column that a piece writes, if it can be read back."""
    match piece:
        case Name(column):
            return column
        case Call(function, (Name(column), *_)) if function in WRITING:
            return column
    return None


def _split(texts: pl.Series, known: Sequence[pl.Series | None], chance: pl.Series | None) -> list[pl.Series]:
    """Return the unknown pieces of texts, given the known ones; null where they are not certain."""
    first = next(i for i, one in enumerate(known) if one is None)
    last = max(i for i, one in enumerate(known) if one is None)
    rest = texts
    for piece in known[:first]:
        rest = _without(rest, piece, "starts_with", "strip_prefix")
    for piece in reversed(known[last + 1 :]):
        rest = _without(rest, piece, "ends_with", "strip_suffix")
    marks = _marks(known[first : last + 1], len(texts))
    parts = []
    for number, mark in enumerate(marks):
        n_later = sum(((mark == other).cast(pl.Int64) for other in marks[number + 1 :]), start=mark.str.len_chars() * 0)
        part, rest, chance = _split_once(rest, mark, n_later, chance)
        parts.append(part)
    is_whole = pl.select(pl.all_horizontal([part.is_not_null() for part in (*parts, rest)])).to_series()
    return [pl.select(pl.when(is_whole).then(part)).to_series() for part in (*parts, rest)]


def _without(texts: pl.Series, piece: pl.Series | None, test: str, strip: str) -> pl.Series:
    """Remove a known piece from one end of texts; null where they do not have it there."""
    assert piece is not None
    frame = pl.DataFrame({"text": texts, "piece": piece})
    end, text = pl.col("piece"), pl.col("text").str
    return frame.select(pl.when(getattr(text, test)(end)).then(getattr(text, strip)(end))).to_series()


def _marks(known: Sequence[pl.Series | None], n_rows: int) -> list[pl.Series]:
    """Return the texts between neighbouring unknown pieces, from the first to the last unknown piece."""
    marks: list[pl.Series] = []
    for piece in known[:-1]:
        if piece is None:
            marks.append(pl.Series([""]).new_from_index(0, n_rows))
        else:
            marks[-1] = marks[-1] + piece
    return marks


def _split_once(
    texts: pl.Series, mark: pl.Series, n_later: pl.Series, chance: pl.Series | None
) -> tuple[pl.Series, pl.Series, pl.Series | None]:
    """Split texts at a mark: at its only occurrence, or at one chosen by chance; null where there is none.

    Args:
        texts: the texts.
        mark: per text, where it is split; empty for any place.
        n_later: the number of occurrences that are needed later.
        chance: see `take_apart`.

    Returns:
        The texts before and after the mark, and what is left of the chance.
    """
    has_mark, text = pl.col("mark") != "", pl.col("text").str
    n_places = pl.when(has_mark).then(text.count_matches(pl.col("mark"), literal=True)).otherwise(text.len_chars() + 1)
    frame = pl.DataFrame({"text": texts, "mark": mark}).with_columns(
        n_later=n_later.cast(pl.Int64), chance=pl.lit(None, pl.Float64) if chance is None else chance
    )
    n_ways = (n_places.cast(pl.Int64) - pl.when(has_mark).then(pl.col("n_later")).otherwise(0)).alias("n_ways")
    frame = frame.with_columns(n_ways)
    chosen = (pl.col("chance") * pl.col("n_ways")).floor().cast(pl.Int64)
    index = pl.when(pl.col("n_ways") == 1).then(0).when(pl.col("n_ways") > 1).then(chosen)
    frame = frame.with_columns(index.alias("index"), text.split(pl.col("mark")).alias("pieces"))
    before = pl.col("pieces").list.head(pl.col("index") + 1).list.join(pl.col("mark"))
    after = pl.col("pieces").list.slice(pl.col("index") + 1).list.join(pl.col("mark"))
    is_split = pl.col("index").is_not_null()
    found = frame.select(
        before=pl.when(is_split).then(pl.when(has_mark).then(before).otherwise(text.head(pl.col("index")))),
        after=pl.when(is_split).then(pl.when(has_mark).then(after).otherwise(text.slice(pl.col("index")))),
        chance=(pl.col("chance") * pl.col("n_ways")) % 1,
    )
    return found["before"], found["after"], None if chance is None else found["chance"]


def read_back(found: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Return texts that were taken apart as values of a column; null where it has no such value."""
    if isinstance(dtype, pl.String | pl.Categorical | pl.Enum):
        return found.cast(dtype, strict=False)
    return (
        found.cast(pl.Int64, strict=False).cast(dtype, strict=False)
        if dtype.is_integer()
        else found.clear().cast(dtype).extend_constant(None, len(found))
    )
