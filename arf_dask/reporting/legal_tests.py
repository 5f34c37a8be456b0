"""Singling out, linkability and inference: the three criteria of European data protection for anonymous data.

Each is a game in which an attacker uses only the synthetic rows, played once against people in the training data and
once against held-out people. The risk is the difference: correct guesses about outsiders reflect the population, not a
leak.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl

from arf_dask.reporting.columns import as_numbers, has_levels, level_codes
from arf_dask.reporting.curves import rate_interval, rate_of
from arf_dask.reporting.neighbours import Embedding, Points, nearest
from arf_dask.typing import Counts, Flags, Floats

COLUMN_SETS = 40  # random column sets tried for singling out
SET_SIZES = (2, 3, 4)
NUMBER_BINS = 50  # bins that define an attacker's knowledge of a number
CLOSE = 0.05  # a guess within five per cent of the ranks is correct
LINK_NEIGHBOURS = 10
MOST_COLUMNS = 30  # maximum columns tested for inference


class Game(NamedTuple):
    """Success rates of an attacker against members and non-members."""

    members: float
    others: float
    excess: float  # difference of the two rates
    interval: tuple[float, float]  # 95 % interval of the difference
    trials: int

    def to_dict(self) -> dict[str, Any]:
        """Return the rates as plain JSON values."""
        return {**self._asdict(), "interval": list(self.interval)}


def make_game(
    members: Floats, others: Floats, people: tuple[Counts | None, Counts | None] = (None, None)
) -> Game | None:
    """Compute success rates and the interval of their difference from outcomes 0 and 1.

    `people` identifies the person of each outcome if people are attacked repeatedly: such trials are dependent.
    """
    if len(members) < 2 or len(others) < 2:
        return None
    rates = [rate_of(hits, whose) for hits, whose in zip((members, others), people, strict=True)]
    excess, low, high = rate_interval(rates[0], rates[1])
    return Game(rates[0].value, rates[1].value, excess, (low, high), len(members) + len(others))


def single_out(
    members: pl.DataFrame, others: pl.DataFrame, synthetic: pl.DataFrame, rng: np.random.Generator
) -> Game | None:
    """Test whether combinations unique to one person occur more often in the synthetic rows for members.

    Uses random sets of two to four columns; numbers are known to within two per cent of the ranks. Uniqueness refers to
    a population of equally many members and non-members.
    """
    size = min(members.height, others.height)
    frames = [members.head(size), others.head(size), synthetic]
    codes = [_coarse([frame[name] for frame in frames]) for name in members.columns]
    widths = [width for width in SET_SIZES if width <= len(codes)] or [len(codes)]
    outcomes: list[list[Flags]] = [[], []]
    people: list[list[Counts]] = [[], []]
    for _ in range(COLUMN_SETS):
        chosen = rng.choice(len(codes), int(rng.choice(widths)), replace=False)
        alone, present = _alone_and_present([codes[place] for place in chosen], size)
        for side, rows in enumerate((slice(0, size), slice(size, 2 * size))):
            people[side].append(np.flatnonzero(alone[rows]))
            outcomes[side].append(present[rows][alone[rows]])
    results = [np.concatenate(some).astype(np.float64) for some in outcomes]
    whose = [np.concatenate(some) for some in people]
    return make_game(results[0], results[1], (whose[0], whose[1]))


def link(embedding: Embedding, rng: np.random.Generator) -> Game | None:
    """Test whether the synthetic rows reveal which of two candidate second halves belongs to the first half of a row.

    `embedding` holds members, non-members and synthetic rows. Columns are split at random; the attacker finds the ten
    synthetic rows nearest to the first half, and chooses the candidate whose second half is nearer to theirs.
    """
    members, others, synthetic = embedding.points
    order = rng.permutation(len(embedding.spans))
    half = len(order) // 2
    if not half:
        return None
    first, second = (_pick(embedding, some) for some in (order[:half], order[half:]))
    outcomes = []
    for points in (members, others):
        near = nearest(points[:, first], synthetic[:, first], LINK_NEIGHBOURS)[1]
        own = _least_gap(points[:, second], synthetic[:, second], near)
        stranger = _least_gap(np.roll(points[:, second], 1, axis=0), synthetic[:, second], near)
        outcomes.append(np.where(own == stranger, 0.5, own < stranger))
    return make_game(outcomes[0], outcomes[1])


def infer_attributes(
    embedding: Embedding, members: pl.DataFrame, others: pl.DataFrame, synthetic: pl.DataFrame
) -> dict[str, Game]:
    """Test, by column, whether it can be inferred better for members, given all other columns.

    The guess is the value of the synthetic row that is nearest in all other columns. A guessed number is correct within
    five per cent of the ranks.
    """
    games = {}
    for place, name in enumerate(members.columns[:MOST_COLUMNS]):
        kept = _pick(embedding, np.delete(np.arange(len(embedding.spans)), place))
        if not len(kept):
            continue
        outcomes = []
        for frame, points in zip((members, others), embedding.points[:2], strict=True):
            guess = nearest(points[:, kept], embedding.points[2][:, kept])[1][:, 0]
            outcomes.append(_right(frame[name], synthetic[name], guess))
        game = make_game(outcomes[0], outcomes[1])
        if game is not None:
            games[name] = game
    return games


def _coarse(columns: list[pl.Series]) -> list[Counts]:
    """Encode values with the precision known to an attacker: levels, or bins of numbers."""
    if has_levels(columns[0].dtype):
        return level_codes(columns)[0]
    numbers = [as_numbers(column) for column in columns]
    known = np.concatenate(numbers[:2])
    known = known[~np.isnan(known)]
    cuts = np.unique(np.quantile(known, np.linspace(0, 1, NUMBER_BINS + 1)[1:-1])) if len(known) else known
    return [np.where(np.isnan(some), -1, np.searchsorted(cuts, some)).astype(np.int64) for some in numbers]


def _alone_and_present(codes: list[list[Counts]], size: int) -> tuple[Flags, Flags]:
    """Return two masks over members, then non-members: unique combinations, and those found in a synthetic row."""
    joint = np.zeros(2 * size + len(codes[0][2]), dtype=np.int64)
    for sides in codes:
        both = np.concatenate(sides)
        joint = joint * (int(both.max(initial=0)) + 2) + both + 1
        joint = np.unique(joint, return_inverse=True)[1]
    people, rows = joint[: 2 * size], joint[2 * size :]
    alone = np.bincount(people, minlength=int(joint.max()) + 1)[people] == 1
    return alone, np.isin(people, rows)


def _pick(embedding: Embedding, columns: Counts) -> Counts:
    spans = [embedding.spans[int(place)] for place in columns]
    return np.concatenate([np.arange(span.start, span.stop) for span in spans]) if spans else np.empty(0, np.int64)


def _least_gap(points: Points, synthetic: Points, near: Counts) -> Floats:
    gaps = points[:, None, :] - synthetic[near]
    least: Floats = np.einsum("ijk,ijk->ij", gaps, gaps).min(axis=1).astype(np.float64)
    return least


def _right(truth: pl.Series, synthetic: pl.Series, guess: Counts) -> Floats:
    if has_levels(truth.dtype):
        codes, _ = level_codes([truth, synthetic])
        return np.equal(codes[0], codes[1][guess]).astype(np.float64)
    real, guessed = as_numbers(truth), as_numbers(synthetic)[guess]
    reference = np.sort(real[~np.isnan(real)])
    ranks = [np.searchsorted(reference, values) / max(1, len(reference)) for values in (real, guessed)]
    missing = np.isnan(real), np.isnan(guessed)
    close = np.abs(ranks[0] - ranks[1]) <= CLOSE
    return np.where(missing[0] | missing[1], missing[0] == missing[1], close).astype(np.float64)
