"""Adversarial training (paper, Alg. 1): a forest in whose leaves the columns are independent.

Everything runs on codes. Each round a forest learns to tell real rows from synthetic ones; the next synthetic rows
are drawn column by column from the real rows of its leaves, until it can no longer tell.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arf_dask.encode import Codes
from arf_dask.forest import Ints, Tree, gate_tree, graft, grow_tree, leaf_nodes, leaf_numbers, prune
from arf_dask.progress import Progress
from arf_dask.seeds import Stage, generator
from arf_dask.tasks import Runner, Threads

logger = logging.getLogger(__name__)

LEAST_AHEAD = 5  # trees grown before asking whether a discriminator fails,
CLEARLY = 0.02  # by this much below the accuracy that ends the loop


class Training(NamedTuple):
    """How the trees are grown."""

    trees: int
    min_leaf: int  # real rows that every leaf holds
    max_rounds: int  # rounds after the first
    tolerance: float  # the paper's delta
    max_features: int
    rows_per_tree: int | None
    seed: int


class Round(NamedTuple):
    """One round of the adversarial loop."""

    round: int
    accuracy: float  # out-of-bag accuracy in telling real from synthetic
    leaves: int  # of the trees grown in this round, before pruning


class Forest(NamedTuple):
    """The generator that the loop ends with."""

    trees: list[Tree]
    leaves: list[Ints]  # per tree: the leaf number of every real row
    rounds: list[Round]  # all of them, also those whose forest was not kept


def train(codes: Codes, training: Training, runner: Runner, report: Progress, gates: Sequence[int] = ()) -> Forest:
    """Alg. 1, on the codes of the real rows. Every tree grown is reported.

    Trees split on the missingness of the `gates` first, each stratum growing its own branch: which rows miss what
    is then kept exactly, not only as far as random splits happen to find it.
    """
    limit = 0.5 + training.tolerance
    top = gate_tree(codes, gates)
    strata = leaf_numbers(top, codes)
    synthetic = draw_independent(codes, generator(training.seed, Stage.MARGINAL_DRAW), strata)
    report.stage("round 0", training.trees)
    grown, accuracy = _grow_forest(codes, synthetic, training, 0, runner, report, top)
    rounds = [Round(0, accuracy, _n_leaves(grown))]
    kept = _prune_forest(grown, codes, training, rounds)
    for number in range(1, training.max_rounds + 1):
        if accuracy <= limit:
            break
        synthetic = draw_from_leaves(codes, kept.leaves, generator(training.seed, Stage.LEAF_DRAW, number))
        report.stage(f"round {number}", training.trees)
        report.advance(0, accuracy=accuracy)  # of the round before, until this one has its own
        grown, new_accuracy = _grow_forest(codes, synthetic, training, number, runner, report, top)
        rounds.append(Round(number, new_accuracy, _n_leaves(grown)))
        # The discriminator that fails, or does no worse than before, has nothing to add: keep its generator.
        if new_accuracy <= limit or new_accuracy >= accuracy:
            break
        kept, accuracy = _prune_forest(grown, codes, training, rounds), new_accuracy
    logger.info("adversarial rounds: %s", ", ".join(f"{r.accuracy:.4f}" for r in rounds))
    return kept


def draw_independent(codes: Codes, rng: np.random.Generator, strata: Ints | None = None) -> Codes:
    """As many rows from the product of the marginals: a bootstrap of every column on its own, in every stratum."""
    drawn = np.empty_like(codes, order="F")
    strata = np.zeros(len(codes), dtype=np.int32) if strata is None else strata
    for stratum in np.unique(strata):
        rows = np.flatnonzero(strata == stratum)
        for column in range(codes.shape[1]):
            drawn[rows, column] = codes[rows[rng.integers(0, len(rows), len(rows))], column]
    return drawn


def draw_from_leaves(codes: Codes, leaves: list[Ints], rng: np.random.Generator) -> Codes:
    """As many rows, each from one leaf: trees at random, leaves by coverage, columns independent inside."""
    n = len(codes)
    drawn = np.empty_like(codes, order="F")
    tree_of_row = rng.integers(0, len(leaves), n)
    for tree, numbers in enumerate(leaves):
        rows = np.flatnonzero(tree_of_row == tree)
        order = np.argsort(numbers, kind="stable")
        counts = np.bincount(numbers)
        starts = np.cumsum(counts) - counts
        leaf = numbers[rng.integers(0, n, len(rows))]
        for column in range(codes.shape[1]):
            member = starts[leaf] + (rng.random(len(rows)) * counts[leaf]).astype(np.int64)
            drawn[rows, column] = codes[order[member], column]
    return drawn


def out_of_bag_accuracy(votes: NDArray[np.float32], voters: NDArray[np.int32], is_real: NDArray[np.int8]) -> float:
    """Share of rows whose averaged vote falls on the right side; rows without a voter do not count.

    >>> votes, voters = np.array([0.9, 0.2, 0.0], dtype=np.float32), np.array([1, 1, 0], dtype=np.int32)
    >>> out_of_bag_accuracy(votes, voters, np.array([1, 1, 0], dtype=np.int8))
    0.5
    """
    heard = voters > 0
    if not heard.any():
        return 0.5
    mean = votes[heard] / voters[heard]
    right = np.where(mean == 0.5, 0.5, (mean > 0.5) == (is_real[heard] == 1))
    return float(right.mean())


class _Branch(NamedTuple):
    """The rows of one stratum, real and synthetic."""

    rows: NDArray[np.int64]  # real rows first, then synthetic ones, counted on
    features: NDArray[np.float32]
    is_real: NDArray[np.int8]


class _Context:
    """What every tree of a round shares. It travels as codes; rows by branch are made where trees are grown."""

    def __init__(self, top: Tree, codes: Codes, synthetic: Codes, training: Training, number: int) -> None:
        self.top, self.codes, self.synthetic = top, codes, synthetic
        self.training, self.round = training, number
        self._branches: list[_Branch] | None = None
        self._lock = Lock()

    @property
    def branches(self) -> list[_Branch]:
        """One per leaf of the top, made by the first tree that asks."""
        with self._lock:
            if self._branches is None:
                self._branches = _branches(self.codes, self.synthetic, self.top)
            return self._branches

    def __reduce__(self) -> tuple[Any, ...]:
        return _Context, (self.top, self.codes, self.synthetic, self.training, self.round)


class _Grown(NamedTuple):
    """A whole tree, not pruned yet."""

    tree: Tree
    nodes: Ints  # the leaf node of every real row


class _Result(NamedTuple):
    grown: _Grown
    votes: NDArray[np.float32]
    unused: NDArray[np.bool_]


def _grow_forest(
    codes: Codes,
    synthetic: Codes,
    training: Training,
    number: int,
    runner: Runner,
    report: Progress,
    top: Tree,
) -> tuple[list[_Grown], float]:
    n = len(codes)
    context = _Context(top, codes, synthetic, training, number)
    votes, voters = np.zeros(2 * n, dtype=np.float32), np.zeros(2 * n, dtype=np.int32)
    is_real = np.repeat(np.array([1, 0], dtype=np.int8), n)
    forest: list[_Grown] = []
    accuracy = 0.5
    for trees in _batches(training.trees, number):
        for tree, result in zip(trees, runner.map(grow_one, context, trees), strict=True):
            votes += np.where(result.unused, result.votes, np.float32(0))
            voters += result.unused
            forest.append(result.grown)
            report.advance(tree=tree + 1)
        accuracy = out_of_bag_accuracy(votes, voters, is_real)
        if accuracy <= 0.5 + training.tolerance - CLEARLY:
            break  # a discriminator that fails is thrown away: its other trees need not be grown
    report.advance(0, accuracy=accuracy)
    return forest, accuracy


def _batches(trees: int, number: int) -> list[range]:
    """The trees of a round, in one go, or with a few ahead where the forest is only kept if it can still tell."""
    ahead = max(LEAST_AHEAD, trees // 4)
    return [range(trees)] if number == 0 or ahead >= trees else [range(ahead), range(ahead, trees)]


def _branches(codes: Codes, synthetic: Codes, top: Tree) -> list[_Branch]:
    """Real and synthetic rows by stratum, as scikit-learn wants them: float32, column by column."""
    n = len(codes)
    real, made = leaf_numbers(top, codes), leaf_numbers(top, synthetic)
    branches = []
    for stratum in range(len(leaf_nodes(top))):
        mine, theirs = np.flatnonzero(real == stratum), np.flatnonzero(made == stratum)
        features = np.empty((len(mine) + len(theirs), codes.shape[1]), dtype=np.float32, order="F")
        features[: len(mine)], features[len(mine) :] = codes[mine], synthetic[theirs]
        is_real = np.repeat(np.array([1, 0], dtype=np.int8), [len(mine), len(theirs)])
        branches.append(_Branch(np.concatenate([mine, n + theirs]), features, is_real))
    return branches


def grow_one(context: _Context, tree: int) -> _Result:
    """One tree of one round, grown branch by branch, with its votes."""
    training, n = context.training, len(context.codes)
    rng = generator(training.seed, Stage.TREE, context.round, tree)
    nodes, votes = np.empty(2 * n, dtype=np.int32), np.empty(2 * n, dtype=np.float32)
    unused = np.empty(2 * n, dtype=bool)
    grown = []
    for branch in context.branches:
        rows = None
        if training.rows_per_tree is not None:
            rows = max(2, round(2 * training.rows_per_tree * len(branch.rows) / (2 * n)))
        grown.append(grow_tree(branch.features, branch.is_real, rng, max_features=training.max_features, rows=rows))
    whole, roots, offsets = graft(context.top, [g.tree for g in grown])
    for branch, g, root, offset in zip(context.branches, grown, roots, offsets, strict=True):
        nodes[branch.rows] = np.where(g.nodes == 0, root, g.nodes + offset)
        votes[branch.rows], unused[branch.rows] = g.votes, g.unused
    return _Result(_Grown(whole, nodes[:n]), votes, unused)


def _prune_forest(forest: list[_Grown], codes: Codes, training: Training, rounds: list[Round]) -> Forest:
    """Only a forest that becomes the generator is pruned: a hundredth of the work of growing it, done here."""
    shared = (np.ascontiguousarray(codes), training.min_leaf)
    pruned = list(Threads().map(prune_one, shared, forest))
    return Forest([tree for tree, _ in pruned], [leaves for _, leaves in pruned], rounds)


def prune_one(shared: tuple[Codes, int], grown: _Grown) -> tuple[Tree, Ints]:
    """One tree without leaves of too few real rows, and the leaf number of every real row."""
    codes, min_leaf = shared
    return prune(grown.tree, grown.nodes, codes, min_leaf)


def _n_leaves(forest: list[_Grown]) -> int:
    return sum(int((grown.tree.left < 0).sum()) for grown in forest)
