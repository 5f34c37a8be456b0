"""Membership attacks: scores that are higher for rows that were in the training data.

The same number of members and held-out rows is attacked. The other half of the held-out rows serves as the attacker's
knowledge of the population (`reference`), so that attackers have not seen any attacked row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import polars as pl

from arf_dask.reporting.columns import sample_frame, sample_numbers
from arf_dask.reporting.learners import make_features, positive_scores, train_classifier
from arf_dask.reporting.neighbours import embed, nearest
from arf_dask.typing import Counts, Floats


class DensityModel(Protocol):
    """The methods of a fitted model that attacks use."""

    def log_density(self, data: Any) -> pl.Series:
        """Return the log-density of every row."""

    def sample(self, n: int, *, seed: int | None = None, progress: Any = None) -> Any:
        """Draw `n` synthetic rows."""


Refit = Callable[[pl.DataFrame, int], DensityModel]  # (rows, seed) -> model with the options of the attacked model


class Arena(NamedTuple):
    """The rows used by all attacks."""

    members: pl.DataFrame
    others: pl.DataFrame
    reference: pl.DataFrame  # real rows known to the attacker: neither members nor attacked
    synthetic: pl.DataFrame
    member_rows: Counts  # row indices in the real data
    other_rows: Counts  # row indices in the held-out data

    @property
    def attacked(self) -> pl.DataFrame:
        """The attacked rows: members, then non-members."""
        return pl.concat([self.members, self.others])

    def split(self, scores: Floats) -> Scores:
        """Split the scores of `attacked` into those of members and non-members."""
        return Scores(scores[: self.members.height], scores[self.members.height :])


class Scores(NamedTuple):
    """Scores of the attacked rows; higher means "was in the training data"."""

    members: Floats
    others: Floats


def make_arena(
    real: pl.DataFrame, synthetic: pl.DataFrame, holdout: pl.DataFrame, most: int, rng: np.random.Generator
) -> Arena:
    """Choose the rows to attack, and the reference rows known to the attacker."""
    shuffled = rng.permutation(holdout.height)
    attacked, known = shuffled[: (holdout.height + 1) // 2], shuffled[(holdout.height + 1) // 2 :]
    rows = min(len(attacked), real.height, most)
    member_rows = sample_numbers(real.height, rows, rng)
    other_rows = np.sort(attacked[:rows])
    reference = sample_frame(holdout[np.sort(known)] if len(known) else holdout, 4 * most, rng)
    return Arena(
        real[member_rows],
        _cast_like(holdout[other_rows], real),
        _cast_like(reference, real),
        _cast_like(sample_frame(synthetic, 8 * most, rng), real),
        member_rows,
        other_rows,
    )


def by_neighbour(arena: Arena) -> Scores:
    """Score by the distance to the nearest synthetic row: closer rows are more likely members."""
    points = embed([arena.synthetic, arena.attacked]).points
    return arena.split(-nearest(points[1], points[0])[0][:, 0])


def by_density_ratio(arena: Arena, refit: Refit, seed: int) -> Scores:
    """Score by DOMIAS (van Breugel et al., 2023): the ratio of synthetic density to reference density."""
    rows = min(arena.synthetic.height, max(arena.reference.height, 1_000))
    models = [refit(frame, seed) for frame in (arena.synthetic.head(rows), arena.reference)]
    densities = [floored_density(model, arena.attacked) for model in models]
    return arena.split(densities[0] - densities[1])


def by_classifier(arena: Arena, seed: int) -> Scores:
    """Score by black-box LOGAN (Hayes et al., 2019): a classifier of synthetic against reference rows."""
    rows = min(arena.synthetic.height, arena.reference.height)
    frames = [arena.reference.head(rows), arena.synthetic.head(rows), arena.attacked]
    features = make_features(frames, arena.members.columns)
    matrix = np.concatenate(features.matrices[:2])
    learner = train_classifier(matrix, np.repeat(np.array([0, 1]), rows), features.categorical, seed)
    return arena.split(positive_scores(learner, features.matrices[2]))


def by_log_density(arena: Arena, model: DensityModel) -> Scores:
    """Score by the exact log-density of the model."""
    return arena.split(floored_density(model, arena.attacked))


def isolation(arena: Arena) -> Scores:
    """Return the distance of every attacked row to its fifth reference neighbour, a measure of being an outlier."""
    points = embed([arena.reference, arena.attacked]).points
    return arena.split(nearest(points[1], points[0], 5)[0][:, -1])


def floored_density(model: DensityModel, rows: pl.DataFrame) -> Floats:
    """Return the log-density of every row; rows outside the support get one nat less than the lowest finite value.

    An arbitrary large value would dominate every variance estimated from these values.
    """
    log_densities: Floats = model.log_density(rows).to_numpy()
    inside = log_densities[np.isfinite(log_densities)]
    return np.maximum(log_densities, inside.min() - 1.0 if len(inside) else 0.0)


def _cast_like(frame: pl.DataFrame, like: pl.DataFrame) -> pl.DataFrame:
    """Cast to the dtypes of `like`, so that frames can be concatenated; unknown levels become null."""
    return frame.cast(like.schema, strict=False)
