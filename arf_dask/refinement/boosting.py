"""Learn the log ratio of two samples with scikit-learn's gradient boosting, and read its trees.

Only this module knows where scikit-learn keeps the trees of a fitted learner: the attribute that explainers and
converters of models read as well. A test compares the scores of the trees that are read with the learner's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from arf_dask.refinement.boosted_trees import LEAF, BoostedTrees
from arf_dask.refinement.features import MOST_CODES, N_CODES, Codes, Feature
from arf_dask.typing import Counts, Flags, Floats

ONE_THREAD = {"limits": 1, "user_api": "openmp"}  # sums of gradients depend on the number of threads


class Boosting(NamedTuple):
    """The settings of the learner, which docs/defaults.md justifies."""

    learning_rate: float = 0.15
    max_leaves: int = 31
    min_rows: int = 50  # per leaf, real and drawn ones
    l2: float = 10.0
    feature_share: float = 0.8  # of the features, tried at every split
    max_rounds: int = 500
    patience: int = 30  # rounds without a gain on the validation rows before learning stops
    min_people: int = 0  # per leaf, counted in real rows: trees are pruned after they were learned


class Sides(NamedTuple):
    """Real and drawn rows as codes; real rows and drawn rows weigh the same in total."""

    codes: Mapping[int, Codes]  # per feature
    is_real: Flags
    is_validation: Flags  # rows by which it is decided when to stop
    subjects: Counts | None = None  # per row, the number of its person; of drawn rows any; None: every row is a person
    emphasis: Floats | None = None  # per row, the ratio by which drawn rows are accepted already; None: all of them are

    def has_both(self) -> bool:
        """Return whether there are real and drawn rows, both to learn from and to validate by."""
        return len(set(zip(self.is_real.tolist(), self.is_validation.tolist(), strict=True))) == 4

    def weights(self) -> Floats:
        """Return the weight of every row: real rows weigh one, drawn rows as much in total."""
        n_real = max(int(self.is_real.sum()), 1)
        weights = np.ones(len(self.is_real)) if self.emphasis is None else self.emphasis
        return np.where(self.is_real, 1.0, weights * n_real / max(float(weights[~self.is_real].sum()), 1e-300))


def boost(
    features: Sequence[Feature],
    numbers: Sequence[int],
    sides: Sides,
    settings: Boosting,
    seed: int,
    n_rounds: int | None = None,
) -> BoostedTrees:
    """Learn log(real density / density of drawn rows).

    Args:
        features: all features.
        numbers: those that trees may split on.
        sides: the rows.
        settings: of the learner.
        seed: chooses the features that are tried at every split.
        n_rounds: the number of trees; None: chosen by the validation rows, from which nothing is learned.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier  # imported here: using a model does not need it

    # The learner puts categories first and numbers their codes by rank; so do we, to know what its trees mean.
    order = sorted(numbers, key=lambda number: features[number].is_ordered)
    is_held_out = sides.is_validation
    seen = [np.unique(sides.codes[number][~is_held_out]) for number in order]
    weights = sides.weights()
    learner = HistGradientBoostingClassifier(
        learning_rate=settings.learning_rate,
        max_iter=settings.max_rounds if n_rounds is None else n_rounds,
        max_leaf_nodes=settings.max_leaves,
        min_samples_leaf=settings.min_rows,
        l2_regularization=settings.l2,
        max_features=settings.feature_share,
        max_bins=MOST_CODES,
        categorical_features=[not features[number].is_ordered for number in order],
        early_stopping=n_rounds is None,
        n_iter_no_change=settings.patience,
        random_state=seed,
    )
    held_out = {
        "X_val": _matrix(sides.codes, order, seen, is_held_out),
        "y_val": sides.is_real[is_held_out],
        "sample_weight_val": weights[is_held_out],
    }
    with threadpool_limits(**ONE_THREAD):
        learner.fit(
            _matrix(sides.codes, order, seen, ~is_held_out),
            sides.is_real[~is_held_out],
            sample_weight=weights[~is_held_out],
            **(held_out if n_rounds is None else {}),
        )
    best_round = int(np.argmax(learner.validation_score_)) if n_rounds is None else n_rounds
    return read_trees(learner, best_round, order, seen)


def _matrix(
    codes: Mapping[int, Codes], order: Sequence[int], seen: Sequence[NDArray[np.uint8]], chosen: Flags
) -> Floats:
    """Return the ranks of the codes of some rows, as the learner would convert them: another type would be copied."""
    matrix = np.empty((int(chosen.sum()), len(order)))
    for place, number in enumerate(order):
        matrix[:, place] = _ranks(codes[number][chosen], seen[place])
    return matrix


def _ranks(codes: Codes, seen: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the rank of each code among the codes of the training rows; others get that of the nearest below."""
    return np.maximum(np.searchsorted(seen, codes, side="right") - 1, 0)


def read_trees(learner: Any, n_trees: int, order: Sequence[int], seen: Sequence[NDArray[np.uint8]]) -> BoostedTrees:
    """Read the first trees of a fitted learner as sets of codes.

    Args:
        learner: a fitted classifier of two classes.
        n_trees: how many trees to read.
        order: the feature of every column of the learner.
        seen: per column of the learner, the codes of its ranks.
    """
    ranks = [_ranks(np.arange(N_CODES).astype(np.uint8), codes) for codes in seen]
    trees, features, left_codes, values = [], [], [], []
    for number in range(n_trees):
        predictor = learner._predictors[number][0]
        for node in _preorder(predictor.nodes):
            record = predictor.nodes[node]
            column = record["feature_idx"]
            trees.append(number)
            features.append(LEAF if record["is_leaf"] else order[column])
            values.append(float(record["value"]) if record["is_leaf"] else 0.0)
            is_left = _left(record, predictor.raw_left_cat_bitsets)
            left_codes.append(np.zeros(N_CODES, dtype=bool) if record["is_leaf"] else is_left[ranks[column]])
    return BoostedTrees(
        np.array(trees, np.int64),
        np.array(features, np.int32),
        np.array(left_codes, dtype=bool).reshape(len(trees), N_CODES),
        np.array(values, np.float64),
        float(np.ravel(learner._baseline_prediction)[0]),
    )


def _left(record: Any, bitsets: NDArray[np.uint32]) -> Flags:
    """Return which ranks go left at a node."""
    ranks = np.arange(N_CODES)
    if record["is_categorical"]:
        bits = bitsets[record["bitset_idx"]]
        return np.asarray((bits[ranks // 32] >> (ranks % 32).astype(np.uint32)) & 1, dtype=bool)
    return np.asarray(ranks <= record["num_threshold"])


def _preorder(nodes: Any) -> list[int]:
    """Return the nodes of a tree in preorder."""
    order, pending = [], [0]
    while pending:
        node = pending.pop()
        order.append(node)
        if not nodes[node]["is_leaf"]:
            pending += [int(nodes[node]["right"]), int(nodes[node]["left"])]
    return order
