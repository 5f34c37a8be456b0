"""Adversarial training (paper, Alg. 1) of a forest in whose leaves the columns are independent.

Training operates on codes. In each round a forest, the discriminator, learns to distinguish real from synthetic rows.
If it succeeds, it becomes the generator: the next synthetic rows are drawn, column by column, from the real rows of its
leaves.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arf_dask.forest.growing import gate_tree, graft, grow_tree
from arf_dask.forest.pruning import prune_tree
from arf_dask.forest.routing import route_to_leaves, routing_table
from arf_dask.forest.tables import Round
from arf_dask.forest.trees import Tree, count_leaves, leaf_nodes
from arf_dask.runtime.progress import Progress
from arf_dask.runtime.seeds import Stage, generator
from arf_dask.runtime.tasks import Runner, Threads
from arf_dask.typing import Codes, Counts, Ints

logger = logging.getLogger(__name__)

FIRST_TREES = 5  # minimum number of trees of a round to grow before its accuracy is checked
CLEAR_FAILURE = 0.005  # stop a round early if its accuracy is this far below the accuracy that ends the loop
LEAST_GAIN = 0.01  # minimum decrease of accuracy in a round for training to continue


class Training(NamedTuple):
    """Options of adversarial training."""

    trees: int
    min_leaf: int  # minimum number of real rows per leaf
    max_rounds: int  # maximum number of rounds after the first
    tolerance: float  # the paper's delta
    max_features: int  # number of variables tried at every split
    rows_per_tree: int | None  # real rows drawn for each tree; None: a bootstrap of all rows
    seed: int


class Forest(NamedTuple):
    """The generator that results from training."""

    trees: list[Tree]
    leaves: list[Ints]  # per tree: the leaf index of every real row
    rounds: list[Round]  # all rounds, including those whose forest was discarded


def train(codes: Codes, training: Training, runner: Runner, report: Progress, gates: Sequence[int] = ()) -> Forest:
    """Run adversarial training (paper, Alg. 1).

    Args:
        codes: the codes of the real rows.
        training: the options.
        runner: runs one task per tree.
        report: receives progress updates.
        gates: variables on whose missingness all trees split first. Every stratum has a separate branch, so that
            patterns of missing values are preserved exactly rather than only as far as random splits find them.

    Returns:
        The last generator. A discriminator that fails, or whose first trees are hardly less accurate than those of the
        previous round, is discarded and not completed. If the complete discriminator is hardly less accurate than the
        previous one, it is kept and training ends.
    """
    accuracy_limit = 0.5 + training.tolerance
    top_tree = gate_tree(codes, gates)
    strata = route_to_leaves(routing_table(top_tree), codes)
    synthetic = draw_independent(codes, generator(training.seed, Stage.MARGINAL_DRAW), strata)
    report.stage("round 0", training.trees)
    grown = _grow_forest(codes, synthetic, training, 0, runner, report, top_tree)
    rounds = [Round(0, grown.accuracy, _n_leaves(grown.trees))]
    kept_forest, accuracy = _prune_forest(grown.trees, codes, training, rounds), grown.accuracy
    for round_index in range(1, training.max_rounds + 1):
        if accuracy <= accuracy_limit:
            break
        synthetic = draw_from_leaves(codes, kept_forest.leaves, generator(training.seed, Stage.LEAF_DRAW, round_index))
        report.stage(f"round {round_index}", training.trees)
        report.advance(0, accuracy=accuracy)  # of the previous round, until this round has a result
        grown = _grow_forest(codes, synthetic, training, round_index, runner, report, top_tree, grown.first_accuracy)
        rounds.append(Round(round_index, grown.accuracy, _n_leaves(grown.trees)))
        # Discard a discriminator that fails, is no less accurate than before, or was stopped early: keep the generator.
        if grown.accuracy <= accuracy_limit or grown.accuracy >= accuracy or not grown.is_whole:
            break
        accuracy_gain, accuracy = accuracy - grown.accuracy, grown.accuracy
        kept_forest = _prune_forest(grown.trees, codes, training, rounds)
        if accuracy_gain < LEAST_GAIN:
            break  # another round would cost as much and gain even less
    logger.info("adversarial rounds: %s", ", ".join(f"{r.accuracy:.4f}" for r in rounds))
    return kept_forest


def draw_independent(codes: Codes, rng: np.random.Generator, strata: Counts | None = None) -> Codes:
    """Draw as many rows from the product of marginals: bootstrap every column independently within each stratum."""
    drawn = np.empty_like(codes, order="F")
    strata = np.zeros(len(codes), dtype=np.int64) if strata is None else strata
    for stratum in np.unique(strata):
        rows = np.flatnonzero(strata == stratum)
        for column in range(codes.shape[1]):
            drawn[rows, column] = codes[rows[rng.integers(0, len(rows), len(rows))], column]
    return drawn


def draw_from_leaves(codes: Codes, leaves: list[Ints], rng: np.random.Generator) -> Codes:
    """Draw as many rows from the leaves of a forest (paper, Alg. 1 and Eq. 1).

    Trees are drawn uniformly, leaves by their coverage, and columns independently from the real rows of the leaf.

    Args:
        codes: the codes of the real rows.
        leaves: per tree, the leaf index of every real row.
        rng: the source of randomness.
    """
    n = len(codes)
    drawn = np.empty_like(codes, order="F")
    tree_of_row = rng.integers(0, len(leaves), n)
    for tree, leaf_index in enumerate(leaves):
        row_index = np.flatnonzero(tree_of_row == tree)
        by_leaf = np.argsort(leaf_index, kind="stable")
        leaf_counts = np.bincount(leaf_index)
        leaf_starts = np.cumsum(leaf_counts) - leaf_counts
        leaf = leaf_index[rng.integers(0, n, len(row_index))]
        for column in range(codes.shape[1]):
            member = leaf_starts[leaf] + (rng.random(len(row_index)) * leaf_counts[leaf]).astype(np.int64)
            drawn[row_index, column] = codes[by_leaf[member], column]
    return drawn


def out_of_bag_accuracy(votes: NDArray[np.float32], voters: NDArray[np.int32], is_real: NDArray[np.int8]) -> float:
    """Return the share of rows whose mean vote is correct, among the rows with a vote.

    >>> votes, voters = np.array([0.9, 0.2, 0.0], dtype=np.float32), np.array([1, 1, 0], dtype=np.int32)
    >>> out_of_bag_accuracy(votes, voters, np.array([1, 1, 0], dtype=np.int8))
    0.5
    """
    has_votes = voters > 0
    if not has_votes.any():
        return 0.5
    mean_votes = votes[has_votes] / voters[has_votes]
    is_correct = np.where(mean_votes == 0.5, 0.5, (mean_votes > 0.5) == (is_real[has_votes] == 1))
    return float(is_correct.mean())


class _Branch(NamedTuple):
    """The rows of one stratum, real and synthetic."""

    rows: NDArray[np.int64]  # row indices: real rows, then synthetic rows, which are numbered after all real rows
    features: NDArray[np.float32]
    is_real: NDArray[np.int8]


class RoundContext:
    """The data shared by all trees of a round.

    It is pickled as codes; the features of the branches are computed where trees are grown.
    """

    def __init__(self, top: Tree, codes: Codes, synthetic: Codes, training: Training, number: int) -> None:
        self.top, self.codes, self.synthetic = top, codes, synthetic
        self.training, self.round = training, number
        self._branches: list[_Branch] | None = None
        self._lock = Lock()

    @property
    def branches(self) -> list[_Branch]:
        """One branch per leaf of the top tree, computed on first use."""
        with self._lock:
            if self._branches is None:
                self._branches = _branches(self.codes, self.synthetic, self.top)
            return self._branches

    def __reduce__(self) -> tuple[Any, ...]:
        return RoundContext, (self.top, self.codes, self.synthetic, self.training, self.round)


class TreeResult(NamedTuple):
    """The result of growing one tree, kept small because a cluster sends it to the client."""

    tree: Tree  # before pruning
    shares: NDArray[np.float32]  # per leaf: share of real rows among the rows drawn for this tree
    unused: NDArray[np.uint8]  # one bit per real and synthetic row: whether it is out of bag
    leaves: NDArray[np.unsignedinteger]  # leaf of every real row, then of every out-of-bag synthetic row

    def votes(self, n: int) -> tuple[Counts, NDArray[np.float32]]:
        """Return the out-of-bag rows, of n real and n synthetic rows, and the vote on each of them."""
        is_unused = np.unpackbits(self.unused, count=2 * n).view(np.bool_)
        voting_leaves = np.concatenate([self.leaves[:n][is_unused[:n]], self.leaves[n:]])
        return np.flatnonzero(is_unused), self.shares[voting_leaves]


class _GrownForest(NamedTuple):
    """The trees of a round, and their accuracy in distinguishing real from synthetic rows."""

    trees: list[TreeResult]
    accuracy: float
    first_accuracy: float  # of its first few trees, for comparison with other rounds
    is_whole: bool  # False if the round was stopped after the first trees


def _grow_forest(
    codes: Codes,
    synthetic: Codes,
    training: Training,
    number: int,
    runner: Runner,
    report: Progress,
    top: Tree,
    before: float | None = None,
) -> _GrownForest:
    """Grow the trees of a round; stop after the first few if they fail or improve little on the accuracy `before`."""
    n = len(codes)
    context = RoundContext(top, codes, synthetic, training, number)
    votes, voters = np.zeros(2 * n, dtype=np.float32), np.zeros(2 * n, dtype=np.int32)
    is_real = np.repeat(np.array([1, 0], dtype=np.int8), n)
    tree_results: list[TreeResult] = []
    first_accuracy = 0.5
    batches = _tree_batches(training.trees)
    for trees in [batches[0] + batches[1]] if before is None else batches:
        for tree, result in zip(trees, runner.map(grow_one, context, trees), strict=True):
            rows, vote = result.votes(n)
            votes[rows] += vote
            voters[rows] += 1
            tree_results.append(result)
            report.advance(tree=tree + 1)
            if len(tree_results) == len(batches[0]):
                first_accuracy = out_of_bag_accuracy(votes, voters, is_real)
        is_failure = first_accuracy <= 0.5 + training.tolerance - CLEAR_FAILURE
        if before is not None and (is_failure or first_accuracy > before - LEAST_GAIN):
            break  # the forest will be discarded: skip its other trees
    accuracy = out_of_bag_accuracy(votes, voters, is_real)
    report.advance(0, accuracy=accuracy)
    return _GrownForest(tree_results, accuracy, first_accuracy, len(tree_results) == training.trees)


def _tree_batches(trees: int) -> tuple[list[int], list[int]]:
    """Split the tree indices into those whose accuracy is checked first, and the rest."""
    n_first = max(FIRST_TREES, trees // 4)
    tree_index = list(range(trees))
    return tree_index[:n_first], tree_index[n_first:]


def _branches(codes: Codes, synthetic: Codes, top: Tree) -> list[_Branch]:
    """Group real and synthetic rows by stratum, as float32 in column-major order for scikit-learn."""
    n = len(codes)
    real_strata, synthetic_strata = (route_to_leaves(routing_table(top), rows) for rows in (codes, synthetic))
    branches = []
    for stratum in range(count_leaves(top)):
        real_rows, synthetic_rows = np.flatnonzero(real_strata == stratum), np.flatnonzero(synthetic_strata == stratum)
        features = np.empty((len(real_rows) + len(synthetic_rows), codes.shape[1]), dtype=np.float32, order="F")
        features[: len(real_rows)], features[len(real_rows) :] = codes[real_rows], synthetic[synthetic_rows]
        is_real = np.repeat(np.array([1, 0], dtype=np.int8), [len(real_rows), len(synthetic_rows)])
        branches.append(_Branch(np.concatenate([real_rows, n + synthetic_rows]), features, is_real))
    return branches


def grow_one(context: RoundContext, tree: int) -> TreeResult:
    """Grow one tree of a round, branch by branch."""
    training, n = context.training, len(context.codes)
    rng = generator(training.seed, Stage.TREE, context.round, tree)
    grown_branches = []
    for branch in context.branches:
        n_drawn = None
        if training.rows_per_tree is not None:
            n_drawn = max(2, round(2 * training.rows_per_tree * len(branch.rows) / (2 * n)))
        grown_branches.append(
            grow_tree(
                branch.features,
                branch.is_real,
                rng,
                max_features=training.max_features,
                rows=n_drawn,
                min_leaf=training.min_leaf,
            )
        )
    whole_tree, roots, offsets = graft(context.top, [grown_branch.tree for grown_branch in grown_branches])
    leaf_number = np.cumsum(whole_tree.left < 0) - 1
    shares, unused = np.zeros(len(whole_tree.left), dtype=np.float32), np.empty(2 * n, dtype=bool)
    leaves = np.empty(2 * n, dtype=np.min_scalar_type(int(leaf_number[-1])))
    for branch, grown_branch, root, offset in zip(context.branches, grown_branches, roots, offsets, strict=True):
        shares[offset : offset + len(grown_branch.shares)] = grown_branch.shares
        shares[root] = grown_branch.shares[0]
        leaves[branch.rows] = leaf_number[np.where(grown_branch.nodes == 0, root, grown_branch.nodes + offset)]
        unused[branch.rows] = grown_branch.unused
    kept_leaves = np.concatenate([leaves[:n], leaves[n:][unused[n:]]])
    return TreeResult(whole_tree, shares[whole_tree.left < 0], np.packbits(unused), kept_leaves)


def _prune_forest(forest: list[TreeResult], codes: Codes, training: Training, rounds: list[Round]) -> Forest:
    """Prune the trees of a forest to obtain a generator, at about 1 % of the cost of growing them."""
    shared = (np.ascontiguousarray(codes), training.min_leaf)
    pruned_trees = list(Threads().map(prune_one, shared, forest))
    return Forest([tree for tree, _ in pruned_trees], [leaves for _, leaves in pruned_trees], rounds)


def prune_one(shared: tuple[Codes, int], grown: TreeResult) -> tuple[Tree, Ints]:
    """Prune one tree; return it with the leaf index of every real row."""
    codes, min_leaf = shared
    return prune_tree(grown.tree, leaf_nodes(grown.tree)[grown.leaves[: len(codes)]], codes, min_leaf)


def _n_leaves(forest: list[TreeResult]) -> int:
    return sum(count_leaves(grown.tree) for grown in forest)
