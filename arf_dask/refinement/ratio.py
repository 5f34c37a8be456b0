"""The refinement of a model: the ratio of real density to model density, by which drawn rows are accepted.

The refined density is q(x) = q0(x) r(x) / Z with the density q0 of the forest, the ratio r and its mean Z under q0. The
logarithm of r is the sum F of boosted trees, limited to `log_cap`; and after the trees of each stage it is limited to
their sum plus a slack, so that rows which no later trees can save are rejected by a few trees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.refinement.boosted_trees import LEAF, BoostedTrees
from arf_dask.refinement.features import Feature, Rows, encode
from arf_dask.rules.relations import Relations
from arf_dask.runtime.display import TextInNotebooks, count, describe_facts, printable
from arf_dask.typing import Flags, Floats


class Gain(NamedTuple):
    """What the ratio gained on rows that it was not learned from."""

    nats: float  # mean log-likelihood of telling a real from a drawn row, above that of a coin
    error: float  # its standard error


@dataclass(frozen=True, eq=False, repr=False)
class Refinement(TextInNotebooks):
    """The refinement of a model by a boosted ratio of densities, as in `Model.refinement`.

    Attributes:
        log_cap: The largest logarithm of the ratio: no row becomes more probable by a larger factor.
        log_z: The logarithm of Z, the mean ratio of rows of the unrefined model.
        z_error: The standard error of `log_z`.
        gain: What the ratio gains on validation rows, in nats per row, with its standard error.

    Examples:
        >>> import arf_dask, polars as pl
        >>> model = arf_dask.fit(pl.DataFrame({"x": [i % 7 for i in range(200)]}), trees=5, seed=1)
        >>> print(model.refinement)  # too few rows
        None
    """

    features: tuple[Feature, ...]
    trees: BoostedTrees
    slacks: tuple[float, ...]  # per stage: how much the trees after it may add to the logarithm of the ratio
    log_cap: float
    log_z: float
    z_error: float
    gain: Gain

    @property
    def rounds(self) -> int:
        """The number of boosted trees."""
        return self.trees.n_trees

    @property
    def acceptance(self) -> float:
        """The share of the rows drawn from the forest that are accepted."""
        return float(np.exp(self.log_z - self.log_cap))

    @property
    def importance(self) -> pl.DataFrame:
        """One row per feature that any tree splits on: feature, splits; in descending order of the splits."""
        numbers = self.trees.feature[self.trees.feature != LEAF]
        splits = np.bincount(numbers, minlength=len(self.features))
        names = [one.name for one in self.features]
        table = pl.DataFrame({"feature": names, "splits": splits}, schema_overrides={"splits": pl.UInt32})
        return table.filter(pl.col("splits") > 0).sort(["splits", "feature"], descending=[True, False])

    @property
    def summary(self) -> str:
        """The number of trees, the gain and the acceptance in a line."""
        accepted = f"{self.acceptance:.1%} of drawn rows accepted"
        return f"by {count(self.rounds, 'boosted tree')}: {self.gain.nats:.4f} nats per row gained, {accepted}"

    def __repr__(self) -> str:
        names = self.importance["feature"].head(3).to_list()
        facts = {
            "gain": f"{self.gain.nats:.4f} nats per row (standard error {self.gain.error:.4f})",
            "features": ", ".join(map(printable, names)),
            "accepted": f"{self.acceptance:.1%} of the rows drawn from the forest",
            "log Z": f"{self.log_z:.4f} (standard error {self.z_error:.4f})",
        }
        return describe_facts(f"Refinement by {count(self.rounds, 'boosted tree')}", facts)

    def log_ratio(self, frame: pl.DataFrame, relations: Relations) -> Floats:
        """Return the logarithm of the ratio of every row of the user's table."""
        rows = Rows(frame, relations)
        codes = encode(self.features, rows, self.trees.used)
        totals = np.full(len(rows), self.trees.base)
        limits = np.full(len(rows), self.log_cap)
        for stage, slack in enumerate((*self.slacks, 0.0)):
            self.trees.add_scores(stage, codes, totals)
            np.minimum(limits, totals + slack, out=limits)
        return limits

    def above(self, frame: pl.DataFrame, relations: Relations, thresholds: Floats) -> Flags:
        """Flag the rows whose logarithm of the ratio is above a threshold; most others are recognised by few trees."""
        rows = Rows(frame, relations)
        codes = encode(self.features, rows, self.trees.used)
        places = np.flatnonzero(thresholds < self.log_cap)
        totals = np.full(len(places), self.trees.base)
        for stage, slack in enumerate((*self.slacks, 0.0)):
            self.trees.add_scores(stage, {name: column[places] for name, column in codes.items()}, totals)
            is_left = totals + slack > thresholds[places]
            places, totals = places[is_left], totals[is_left]
        is_above = np.zeros(len(rows), dtype=bool)
        is_above[places] = True
        return is_above


class Limit(NamedTuple):
    """A limit of the ratio, and what it costs."""

    log_cap: float
    acceptance: float  # share of rows that are accepted


def choose_cap(log_ratios: Floats, *, most_clipped: float, least_acceptance: float) -> Limit:
    """Return the smallest limit that few of the accepted rows would exceed, unless too few rows would be accepted.

    Args:
        log_ratios: of drawn rows.
        most_clipped: share of the weight of all rows that may lie above the limit.
        least_acceptance: share of rows that must be accepted; a smaller limit is chosen where it is not reached.
    """
    ordered = np.sort(np.exp(log_ratios))[::-1]
    ends = np.arange(1, len(ordered) + 1)
    above = np.cumsum(ordered) - ends * ordered  # weight above a limit at each value
    total = ordered.sum()
    accepted = (total - above) / np.maximum(ordered, 1e-300) / len(ordered)
    is_allowed = above <= most_clipped * total
    place = int(np.flatnonzero(is_allowed)[-1])
    if accepted[place] < least_acceptance:
        place = int(np.argmax(accepted >= least_acceptance))
    return Limit(float(np.log(ordered[place])), float(accepted[place]))


def stage_sums(trees: BoostedTrees, codes: dict[int, NDArray[np.uint8]], n_rows: int) -> Iterator[Floats]:
    """Yield the sum of the trees up to the end of every stage, and then of all trees."""
    totals = np.full(n_rows, trees.base)
    for stage in range(len(trees.words)):
        trees.add_scores(stage, codes, totals)
        yield totals.copy()


def find_slacks(sums: Sequence[Floats], quantile: float) -> tuple[float, ...]:
    """Return, per stage, how much later trees add to the sum of all but a few of the accepted rows."""
    final = sums[-1]
    if len(sums) == 1:
        return ()
    weights = np.exp(final - final.max())
    slacks = []
    for partial in sums[:-1]:
        added = final - partial
        order = np.argsort(added)
        cumulative = np.cumsum(weights[order])
        place = int(np.searchsorted(cumulative, quantile * cumulative[-1]))
        slacks.append(float(added[order[min(place, len(order) - 1)]]))
    return tuple(slacks)
