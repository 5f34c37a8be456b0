"""Short rules that give synthetic rows away: conditions that far more synthetic than real rows meet, or far fewer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from arf_dask.reporting.columns import as_numbers, has_levels, level_codes
from arf_dask.reporting.distances import DISCREET, moment_labels
from arf_dask.reporting.learners import grow_tree
from arf_dask.reporting.words import plain_name
from arf_dask.typing import Counts, Flags, Floats

MOST_RULES = 5
DEPTH = 4  # maximum conditions per rule
LEAST_SHARE = 0.01  # minimum share of the rows that a rule covers
MOST_LEVELS = 20  # levels per column that a rule may name
CERTAIN = 3.0  # minimum difference of a rule's shares, in standard errors
TOLERANCE = 0.02  # thresholds are rounded by at most this share of the column's spread


class GiveawayRule(NamedTuple):
    """Conditions, and the shares of rows that meet all of them, on rows that were not used to find them."""

    rule: str
    columns: list[str]
    real: float
    synthetic: float


class _Feature(NamedTuple):
    """A property of rows that a rule can refer to, for real, then synthetic rows."""

    column: str
    dtype: pl.DataType
    values: Floats
    spread: float = 0.0  # of numbers; 0 for levels and missing values, whose values are 0 or 1
    words: tuple[str, str] = ("", "")  # of levels and missing values: the condition for 0, and for 1

    def threshold(self, found: float) -> float:
        """Round a threshold as far as the spread of the column allows."""
        if not self.spread:
            return 0.5
        if self.dtype.is_temporal():
            return found  # shown to the day or minute
        is_whole = self.dtype.is_integer()
        wanted = float(np.floor(found)) if is_whole else found
        first = -int(np.floor(np.log10(self.spread)))
        for digits in range(first, max(first, 0) + 1 if is_whole else first + 6):
            rounded = round(wanted, digits)
            if abs(rounded - wanted) <= TOLERANCE * self.spread:
                return rounded
        return wanted

    def describe(self, threshold: float, *, above: bool) -> str:
        """Return the condition in words."""
        if not self.spread:
            return f"{plain_name(self.column)} {self.words[above]}"
        shown = f"{threshold:,.10g}"
        if self.dtype.is_temporal():
            shown = moment_labels([threshold], self.dtype, self.spread)[0]
        return f"{plain_name(self.column)} {'>' if above else '≤'} {shown}"


class _Condition(NamedTuple):
    feature: int
    threshold: float
    above: bool


Path = tuple[_Condition, ...]


class _Shares(NamedTuple):
    """The shares of rows that meet all conditions of a path."""

    real: float
    synthetic: float
    gap: float  # their difference, in standard errors


def find_giveaway_rules(
    real: pl.DataFrame, synthetic: pl.DataFrame, scores: Floats, rng: np.random.Generator
) -> list[GiveawayRule]:
    """Find where a detector is surest: grow a shallow tree on its scores, and measure its leaves on other rows.

    Args:
        real: Real rows.
        synthetic: As many synthetic rows.
        scores: The scores of the detector for real, then synthetic rows, none of which it was trained on.
        rng: Chooses the half of the rows on which the tree is grown.

    Returns:
        The rules whose shares differ clearly, the clearest first.
    """
    rows = real.height
    features = [feature for name in real.columns for feature in _features([real[name], synthetic[name]])]
    if rows < 10 * DISCREET or not features:
        return []
    matrix = np.column_stack([feature.values for feature in features])
    labels = np.repeat(np.array([0, 1], dtype=np.int64), rows)
    learned = rng.random(2 * rows) < 0.5
    least = max(DISCREET, round(LEAST_SHARE * rows))
    # The tree sees ranks, as scikit-learn would cast numbers to 32 bits.
    values, ranks = zip(*(np.unique(column, return_inverse=True) for column in matrix.T), strict=True)
    tree = grow_tree(np.column_stack(ranks)[learned], scores[learned], DEPTH, least, int(rng.integers(2**31)))
    paths = [_rounded(path, features) for path in _paths(tree, values)]
    short = dict.fromkeys(_shortened(path, matrix[learned], labels[learned]) for path in paths)
    found = [(path, _shares(path, matrix[~learned], labels[~learned])) for path in short]
    certain = sorted((pair for pair in found if pair[1].gap >= CERTAIN), key=lambda pair: -pair[1].gap)
    return [_rule(path, features, shares) for path, shares in certain[:MOST_RULES]]


def _rounded(path: Sequence[_Condition], features: Sequence[_Feature]) -> Path:
    """Round thresholds. Of several conditions on the same side of one feature, the last is the strictest."""
    strictest = {(step.feature, step.above): step for step in path}.values()
    return tuple(step._replace(threshold=features[step.feature].threshold(step.threshold)) for step in strictest)


def _shares(path: Path, matrix: Floats, labels: Counts) -> _Shares:
    met: Flags = np.ones(len(matrix), dtype=bool)
    for number, threshold, above in path:
        met &= (matrix[:, number] > threshold) == above
    real, synthetic = (float(met[labels == side].mean()) for side in (0, 1))
    errors = [share * (1 - share) / (labels == side).sum() for side, share in enumerate((real, synthetic))]
    return _Shares(real, synthetic, abs(real - synthetic) / float(np.sqrt(sum(errors) + 1 / len(labels) ** 2)))


def _shortened(path: Path, matrix: Floats, labels: Counts) -> Path:
    """Drop conditions without which the shares differ as clearly."""
    gap = _shares(path, matrix, labels).gap
    for step in path:
        rest = tuple(other for other in path if other is not step)
        if rest and _shares(rest, matrix, labels).gap >= gap:
            return _shortened(rest, matrix, labels)
    return path


def _rule(path: Path, features: Sequence[_Feature], shares: _Shares) -> GiveawayRule:
    words = [features[step.feature].describe(step.threshold, above=step.above) for step in path]
    columns = list(dict.fromkeys(features[step.feature].column for step in path))
    return GiveawayRule(" and ".join(words), columns, shares.real, shares.synthetic)


def _features(columns: list[pl.Series]) -> list[_Feature]:
    """Return the features of one column: its common levels, or its number; and whether it is missing."""
    name, dtype = columns[0].name, columns[0].dtype
    found, missing = _level_features(columns) if has_levels(dtype) else _number_feature(columns)
    if missing.any():
        found.append(_Feature(name, dtype, missing.astype(np.float64), words=("is not missing", "is missing")))
    return found


def _level_features(columns: list[pl.Series]) -> tuple[list[_Feature], Flags]:
    """Return a feature per level that at least ten real rows have, and a mask of missing values."""
    codes, levels = level_codes(columns)
    counts = np.bincount(codes[0] + 1, minlength=len(levels) + 1)[1:]
    both = np.concatenate(codes)
    common = [int(code) for code in np.argsort(-counts, kind="stable")[:MOST_LEVELS] if counts[code] >= DISCREET]
    names = [plain_name(levels[code]) for code in common]
    found = [
        _Feature(
            columns[0].name, columns[0].dtype, (both == code).astype(np.float64), words=(f"≠ {level}", f"= {level}")
        )
        for code, level in zip(common, names, strict=True)
    ]
    return found, both < 0


def _number_feature(columns: list[pl.Series]) -> tuple[list[_Feature], Flags]:
    """Return a number with missing values at its median, and a mask of these; no feature if it hardly varies."""
    numbers = np.concatenate([as_numbers(column) for column in columns])
    missing: Flags = np.isnan(numbers)
    if missing.all():
        return [], missing
    low, middle, high = np.quantile(numbers[~missing], [0.01, 0.5, 0.99])
    values = np.where(missing, middle, numbers)
    return [_Feature(columns[0].name, columns[0].dtype, values, float(high - low))] if high > low else [], missing


def _paths(tree: Any, values: Sequence[Floats]) -> list[list[_Condition]]:
    """Return the conditions on the way to every leaf of a tree fitted to the ranks of these values."""
    found: list[list[_Condition]] = []
    waiting: list[tuple[int, list[_Condition]]] = [(0, [])]
    while waiting:
        node, path = waiting.pop()
        if tree.children_left[node] < 0:
            found += [path] if path else []
            continue
        feature, rank = int(tree.feature[node]), int(tree.threshold[node])
        threshold = float(values[feature][rank] / 2 + values[feature][rank + 1] / 2)
        waiting.append((int(tree.children_left[node]), [*path, _Condition(feature, threshold, above=False)]))
        waiting.append((int(tree.children_right[node]), [*path, _Condition(feature, threshold, above=True)]))
    return found
