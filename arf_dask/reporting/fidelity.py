"""The fidelity section of a report: every figure, with the score of held-out rows as its ceiling."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl

from arf_dask.reporting.associations import Pairs, compare_pairs
from arf_dask.reporting.columns import Sides, sample_frame
from arf_dask.reporting.detector import Detection, detect
from arf_dask.reporting.distances import ColumnDistance, Histogram, column_distance, histogram
from arf_dask.reporting.neighbours import embed
from arf_dask.reporting.utility import Manifold, Usefulness, density_coverage, train_on_synthetic
from arf_dask.runtime.progress import Progress

PAIR_ROWS = 100_000  # rows used for associations
PICTURE_ROWS = 100_000  # rows used for a histogram
DETECTOR_ROWS = 20_000  # rows per class for the detector and for the target
MANIFOLD_ROWS = 4_000  # rows used for density and coverage
DETAILED_COLUMNS = 200  # columns used for pairs and the detector; wider tables use the first ones


class Fidelity(NamedTuple):
    """All fidelity figures of a report."""

    columns: dict[str, ColumnDistance]
    ceilings: dict[str, ColumnDistance]  # held-out vs. training rows; empty without a holdout
    histograms: dict[str, Histogram]
    pairs: Pairs
    pairs_ceiling: Pairs | None
    detection: Detection  # synthetic vs. held-out rows, or training rows without a holdout
    detection_ceiling: float | None  # training vs. held-out rows
    manifold: Manifold
    manifold_ceiling: Manifold | None
    usefulness: Usefulness | None
    rules: list[dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        return {
            "detector_auc": self.detection.auc,
            "detector_auc_ceiling": self.detection_ceiling,
            "detector_rows": self.detection.rows,
            "shape": mean_shape(self.columns),
            "shape_ceiling": mean_shape(self.ceilings),
            "trend": self.pairs.trend,
            "trend_ceiling": None if self.pairs_ceiling is None else self.pairs_ceiling.trend,
            "density": self.manifold.density,
            "density_ceiling": None if self.manifold_ceiling is None else self.manifold_ceiling.density,
            "coverage": self.manifold.coverage,
            "coverage_ceiling": None if self.manifold_ceiling is None else self.manifold_ceiling.coverage,
            "columns": {name: _column_dict(found, self.ceilings.get(name)) for name, found in self.columns.items()},
            "pairs": {
                "names": self.pairs.names,
                "real": self.pairs.real.tolist(),
                "synthetic": self.pairs.synthetic.tolist(),
                "trends": self.pairs.trends.tolist(),
                "difference": self.pairs.difference,
                "difference_ceiling": None if self.pairs_ceiling is None else self.pairs_ceiling.difference,
            },
            "giveaways": [{"column": name, "auc_lost": lost} for name, lost in self.detection.giveaways],
            "giveaway_rules": [found._asdict() for found in self.detection.rules],
            "surest_rows": [{"row": row, "probability": p} for row, p in self.detection.surest],
            "rules": self.rules,
            "target": None if self.usefulness is None else self.usefulness.to_dict(),
        }


def measure_fidelity(
    sides: Sides, target: str | None, rules: list[dict[str, Any]], rng: np.random.Generator, progress: Progress
) -> Fidelity:
    """Compute all figures of fidelity."""
    real, synthetic, holdout = sides.real, sides.synthetic, sides.holdout
    progress.stage("columns", real.width)
    columns, ceilings, histograms = {}, {}, {}
    shown = [sample_frame(frame, PICTURE_ROWS, rng) for frame in (real, synthetic)]
    for name in real.columns:
        columns[name] = column_distance(real[name], synthetic[name])
        if holdout is not None:
            ceilings[name] = column_distance(real[name], holdout[name])
        histograms[name] = histogram([frame[name] for frame in shown])
        progress.advance()
    progress.stage("pairs, detector, target", 4)
    narrow = [frame if frame is None else frame[:, :DETAILED_COLUMNS] for frame in (real, synthetic, holdout)]
    pairs, pairs_ceiling = _pairs(narrow, rng)
    progress.advance()
    detection, detection_ceiling = _detection(narrow, rng)
    progress.advance()
    manifold, manifold_ceiling = _manifold(narrow, rng)
    progress.advance()
    useful = None
    if target is not None and holdout is not None:
        useful = train_on_synthetic((real, synthetic), holdout, target, DETECTOR_ROWS, rng)
    progress.advance()
    return Fidelity(
        columns,
        ceilings,
        histograms,
        pairs,
        pairs_ceiling,
        detection,
        detection_ceiling,
        manifold,
        manifold_ceiling,
        useful,
        rules,
    )


def mean_shape(columns: dict[str, ColumnDistance]) -> float | None:
    """Return the mean shape score of the columns, as in the quality report of SDMetrics."""
    known = [found.shape for found in columns.values() if found.shape is not None and not np.isnan(found.shape)]
    return float(np.mean(known)) if known else None


Narrow = list[pl.DataFrame | None]


def _pairs(narrow: Narrow, rng: np.random.Generator) -> tuple[Pairs, Pairs | None]:
    real, synthetic, holdout = (None if frame is None else sample_frame(frame, PAIR_ROWS, rng) for frame in narrow)
    assert real is not None
    assert synthetic is not None
    return compare_pairs(real, synthetic), None if holdout is None else compare_pairs(real, holdout)


def _detection(narrow: Narrow, rng: np.random.Generator) -> tuple[Detection, float | None]:
    real, synthetic, holdout = narrow
    assert real is not None
    assert synthetic is not None
    if holdout is None:
        return detect(real, synthetic, DETECTOR_ROWS, rng), None
    ceiling = detect(holdout, real, DETECTOR_ROWS, rng, explain=False)
    return detect(holdout, synthetic, DETECTOR_ROWS, rng), ceiling.auc


def _manifold(narrow: Narrow, rng: np.random.Generator) -> tuple[Manifold, Manifold | None]:
    frames = [frame for frame in narrow if frame is not None]
    rows = min(MANIFOLD_ROWS, *(frame.height for frame in frames))
    points = embed([sample_frame(frame, rows, rng) for frame in frames]).points
    found = density_coverage(points[0], points[1])
    return found, density_coverage(points[0], points[2]) if len(points) > 2 else None


def _column_dict(found: ColumnDistance, ceiling: ColumnDistance | None) -> dict[str, Any]:
    figures = {
        "kind": found.kind,
        "distance": found.distance,
        "tvd": found.tvd,
        "ks": found.ks,
        "wasserstein": found.wasserstein,
        "shape": found.shape,
        "missing": {"real": found.missing[0], "synthetic": found.missing[1]},
    }
    if ceiling is not None:
        figures["ceiling"] = {
            name: getattr(ceiling, name) for name in ("distance", "tvd", "ks", "wasserstein", "shape")
        }
    return figures
