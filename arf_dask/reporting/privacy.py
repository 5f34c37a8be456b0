"""The privacy section of a report: attacks on the synthetic rows, and their results."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl

from arf_dask.data.fingerprints import Key
from arf_dask.reporting.columns import Sides, has_levels, sample_frame
from arf_dask.reporting.copies import CopyRates, copy_rates, rare_levels, repeat_rates
from arf_dask.reporting.curves import Curve, make_curve
from arf_dask.reporting.legal_tests import Game, infer_attributes, link, single_out
from arf_dask.reporting.membership import (
    Arena,
    DensityModel,
    Refit,
    Scores,
    by_classifier,
    by_density_ratio,
    by_log_density,
    by_neighbour,
    isolation,
    make_arena,
)
from arf_dask.reporting.neighbours import embed, nearest
from arf_dask.reporting.shadows import black_box, cast_shadows, white_box
from arf_dask.runtime.progress import Progress
from arf_dask.typing import Flags, Floats

ATTACKED_ROWS = 4_000  # members, and the same number of non-members
COPY_ROWS = 200_000  # synthetic rows searched for copies
SHADOW_ROWS = 20_000  # maximum training rows of a shadow model
GAME_ROWS = 2_000  # members, and the same number of non-members, in singling out, linkability and inference
GAME_SYNTHETIC = 10_000
LEAST_ROWS = 20  # minimum held-out rows for meaningful attacks
EXPOSED_SHARE = 0.01
LEAST_ISOLATED = 30


class Privacy(NamedTuple):
    """All privacy figures of a report."""

    attacks: dict[str, Curve]
    isolated: dict[str, Curve]  # attacks on the most isolated rows
    model_attacks: dict[str, Curve]  # attacks that require the model file
    scores: dict[str, Scores]
    exposed: pl.DataFrame  # row, attack, outsiders (share of outsiders that score as high)
    copies: dict[str, CopyRates]  # of synthetic and held-out rows, and of real rows among themselves
    nearer: float | None  # share of synthetic rows nearer to training than to held-out rows
    games: dict[str, Game]
    inference: dict[str, Game]
    rare: dict[str, int]
    smallest_leaf: int | None
    shadows: int

    @property
    def worst(self) -> tuple[str, Curve] | None:
        """The attack with the largest AUC."""
        return max(self.attacks.items(), key=lambda pair: pair[1].auc) if self.attacks else None

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        worst = self.worst
        attacks = {name: curve.to_dict() for name, curve in self.attacks.items()}
        for name, curve in self.isolated.items():
            attacks[name]["isolated"] = curve.to_dict()
        return {
            "worst_attack": None if worst is None else worst[1].auc,
            "worst_attack_name": None if worst is None else worst[0],
            "attacks": attacks,
            "model_file": {name: curve.to_dict() for name, curve in self.model_attacks.items()},
            "copies": {name: rates._asdict() for name, rates in self.copies.items()},
            "nearer_to_training": self.nearer,
            "singling_out": _game_dict(self.games.get("singling_out")),
            "linkability": _game_dict(self.games.get("linkability")),
            "attribute_inference": {name: game.to_dict() for name, game in self.inference.items()},
            "exposed_rows": self.exposed.to_dicts(),
            "rare_levels": self.rare,
            "smallest_leaf": self.smallest_leaf,
            "shadows": self.shadows,
        }


def measure_privacy(
    sides: Sides,
    model: DensityModel | None,
    refit: Refit,
    shadows: int,
    smallest_leaf: int | None,
    rng: np.random.Generator,
    progress: Progress,
) -> Privacy:
    """Run all attacks that the frames allow; without held-out rows, report only copies and rare levels."""
    real, synthetic, holdout = sides.real, sides.synthetic, sides.holdout
    progress.stage("copies", 2)
    key = Key(int(rng.integers(2**62)), int(rng.integers(2**62)))
    frames = {"synthetic": synthetic} if holdout is None else {"synthetic": synthetic, "holdout": holdout}
    rates = copy_rates(real, [sample_frame(frame, COPY_ROWS, rng) for frame in frames.values()], key)
    copies = {**dict(zip(frames, rates, strict=True)), "real": repeat_rates(sample_frame(real, COPY_ROWS, rng), key)}
    progress.advance()
    rare = rare_levels(real, synthetic, [name for name, dtype in real.schema.items() if has_levels(dtype)])
    progress.advance()
    if holdout is None or holdout.height < LEAST_ROWS:
        return _without_attacks(copies, rare, smallest_leaf)
    arena = make_arena(real, synthetic, holdout, ATTACKED_ROWS, rng)
    scores, model_scores = _attack(arena, real, model, refit, shadows, rng, progress)
    progress.stage("singling out, linkability, inference", 3)
    games, inference = _play(arena, rng, progress)
    stands_out = _most_isolated(isolation(arena))
    return Privacy(
        {name: make_curve(*some, rng) for name, some in scores.items()},
        {name: make_curve(*_only(some, stands_out), rng) for name, some in scores.items()},
        {name: make_curve(*some, rng) for name, some in model_scores.items()},
        scores,
        _exposed(arena, scores),
        copies,
        _nearer(arena, real, holdout, rng),
        games,
        inference,
        rare,
        smallest_leaf,
        shadows,
    )


def _attack(
    arena: Arena,
    real: pl.DataFrame,
    model: DensityModel | None,
    refit: Refit,
    shadows: int,
    rng: np.random.Generator,
    progress: Progress,
) -> tuple[dict[str, Scores], dict[str, Scores]]:
    """Return scores by attack, on the synthetic rows and on the model file."""
    progress.stage("attacks", 4 + shadows)
    seed = int(rng.integers(2**31))
    scores = {"nearest_neighbour": by_neighbour(arena)}
    progress.advance(attack="nearest neighbour")
    scores["domias"] = by_density_ratio(arena, refit, seed)
    progress.advance(attack="DOMIAS")
    scores["logan"] = by_classifier(arena, seed)
    progress.advance(attack="LOGAN")
    model_scores = {}
    if model is not None:
        scores["log_density"] = by_log_density(arena, model)
    progress.advance(attack="log-density")
    if shadows:
        cast = cast_shadows(
            arena,
            real,
            refit,
            shadows,
            SHADOW_ROWS,
            rng,
            lambda: progress.advance(attack="LiRA, shadow models"),
            white=model is not None,
        )
        scores["lira"] = black_box(arena, cast)
        if model is not None:
            model_scores["lira_log_density"] = white_box(arena, cast, model)
    return scores, model_scores


def _play(arena: Arena, rng: np.random.Generator, progress: Progress) -> tuple[dict[str, Game], dict[str, Game]]:
    members, others = arena.members.head(GAME_ROWS), arena.others.head(GAME_ROWS)
    games = {"singling_out": single_out(arena.members, arena.others, arena.synthetic, rng)}
    progress.advance()
    synthetic = sample_frame(arena.synthetic, GAME_SYNTHETIC, rng)
    embedding = embed([synthetic, members, others])
    ordered = embedding._replace(points=[embedding.points[1], embedding.points[2], embedding.points[0]])
    games["linkability"] = link(ordered, rng)
    progress.advance()
    inference = infer_attributes(ordered, members, others, synthetic)
    progress.advance()
    return {name: game for name, game in games.items() if game is not None}, inference


def _most_isolated(found: Scores) -> tuple[Flags, Flags]:
    """Return masks of the most isolated one per cent of rows, among members and non-members by the same threshold.

    The choice does not depend on attack scores, so it does not bias the results on these rows.
    """
    both = np.concatenate(found)
    wanted = max(EXPOSED_SHARE * len(both), 2 * LEAST_ISOLATED)
    cut = np.quantile(both, max(0.0, 1 - wanted / len(both)))
    return _at_least(found.members, cut), _at_least(found.others, cut)


def _at_least(values: Floats, cut: float) -> Flags:
    """Return a mask of values of at least `cut`, and always of the two largest, as a curve needs both classes."""
    chosen: Flags = values >= cut
    chosen[np.argsort(-values, kind="stable")[:2]] = True
    return chosen


def _only(scores: Scores, chosen: tuple[Flags, Flags]) -> Scores:
    return Scores(scores.members[chosen[0]], scores.others[chosen[1]])


def _exposed(arena: Arena, scores: dict[str, Scores]) -> pl.DataFrame:
    """One row per member among the most exposed one per cent: row, attack, outsiders.

    `outsiders` is the share of held-out rows that score at least as high in the attack that is surest of the row.
    """
    names = list(scores)
    shares = np.stack([_share_above(scores[name]) for name in names])
    worst = shares.argmin(axis=0)
    least = shares.min(axis=0)
    top = np.lexsort((-np.mean(shares < 0.05, axis=0), least))[: max(1, round(EXPOSED_SHARE * len(least)))]
    return pl.DataFrame(
        {
            "row": arena.member_rows[top],
            "attack": [names[place] for place in worst[top]],
            "outsiders": least[top],
        }
    )


def _share_above(scores: Scores) -> Floats:
    others = np.sort(scores.others)
    return (len(others) - np.searchsorted(others, scores.members, side="left") + 1) / (len(others) + 1)


def _nearer(arena: Arena, real: pl.DataFrame, holdout: pl.DataFrame, rng: np.random.Generator) -> float:
    """Return the share of synthetic rows nearer to training than to held-out rows; ties count half."""
    rows = min(real.height, holdout.height, ATTACKED_ROWS)
    frames = [sample_frame(frame, rows, rng) for frame in (real, holdout, arena.synthetic)]
    points = embed(frames).points
    to_real, to_holdout = (nearest(points[2], points[place])[0][:, 0] for place in (0, 1))
    return float(np.where(to_real == to_holdout, 0.5, to_real < to_holdout).mean())


def _without_attacks(copies: dict[str, CopyRates], rare: dict[str, int], smallest_leaf: int | None) -> Privacy:
    empty = pl.DataFrame(schema={"row": pl.Int64, "attack": pl.String, "outsiders": pl.Float64})
    return Privacy({}, {}, {}, {}, empty, copies, None, {}, {}, rare, smallest_leaf, 0)


def _game_dict(game: Game | None) -> dict[str, Any] | None:
    return None if game is None else game.to_dict()
