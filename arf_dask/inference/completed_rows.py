"""Completion of rows in the user's columns: fill in the values that rules imply, then draw the rest."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from arf_dask.data.copy_guard import Candidates
from arf_dask.forest.fitted import Fitted
from arf_dask.inference.density import ZeroProbabilityError
from arf_dask.inference.forge import BLOCK_ROWS, Sampler, new_identifiers
from arf_dask.inference.given import impossible_row, user_frame
from arf_dask.inference.impute import impute
from arf_dask.inference.pinning import log_changed_weights, log_weights
from arf_dask.inference.refined_rows import choose
from arf_dask.inference.sources import Block, block_seed, complete_rows, prepare_rows
from arf_dask.rules.relations import Modelled
from arf_dask.rules.transforms import Transform
from arf_dask.runtime.seeds import Stage, generator
from arf_dask.schema.encoding import possible
from arf_dask.typing import Counts, Flags, Floats, OnImpossible

ATTEMPTS = 30
LEAST_CANDIDATES, MOST_CANDIDATES = 32, 256  # per row, in the first attempt and later
# Attempts after which candidates are accepted whose known cells have density zero, or whose unknown ones are null.
HOPE = 8
LEAST_LOG = -1e6
MOST_FOLLOWING = 0.999  # probability of following a formula, where rows beside it are weighed
FAULT_LOG = -1e9  # what a fault takes from the log weight of a candidate where none of them fits
FIRST_CANDIDATES, LAST_CANDIDATES = 8, 32  # of refined models, per row: at most in the first attempt, and in the last
IMPUTED_CANDIDATES = 64  # of refined models, per row and draw of an imputation, at most
PATIENCE = 10  # attempts after which the base of an inequality is moved next to the known column


class CompletedRows(NamedTuple):
    """A source of rows for a frame of conditions, the same number for each, in order."""

    sampler: Sampler
    conditions: pl.DataFrame  # in the user's columns; null means unknown
    first: int  # number of the first condition among all conditions
    on_impossible: OnImpossible

    def draw(self, seed: int, block: Block) -> pl.DataFrame:
        conditions = self.conditions[block.low - self.first : block.high - self.first]
        rows_each = block.rows // max(conditions.height, 1)
        seeds = Seeds(block_seed(seed, block.number), seed, block.first)
        return complete_refined(self.sampler, conditions, rows_each, seeds, self.on_impossible, block.low)

    def candidates(self, seed: int, block: Block, places: Counts, n: int) -> Candidates:
        """Draw `n` other rows for each of some rows of a block, each under its own condition."""
        conditions = self.condition_numbers(block)[places]
        seeds = Seeds(seed, seed, 0)
        rows = complete_refined(self.sampler, self.conditions[conditions - self.first], n, seeds, self.on_impossible)
        return Candidates(rows, np.repeat(places, n))

    def condition_numbers(self, block: Block) -> Counts:
        """Return the number of the condition of every row of a block."""
        rows_each = max(1, block.rows // max(1, block.high - block.low))
        return block.low + np.arange(block.rows) // rows_each


class Seeds(NamedTuple):
    """The seeds of completions."""

    draws: int
    keys: int  # of the identifiers
    first_row: int  # position of the first row in the whole result, which identifiers depend on


def complete(
    sampler: Sampler,
    frame: pl.DataFrame,
    n: int,
    seeds: Seeds,
    on_impossible: OnImpossible,
    first: int = 0,
    *,
    values_only: bool = False,
) -> pl.DataFrame:
    """Draw `n` rows for every row of a frame of the user's columns, in which null means unknown.

    Args:
        sampler: the model.
        frame: the known values.
        n: the number of rows to draw per row of `frame`.
        seeds: the seeds of the draws and of the identifiers.
        on_impossible: what to do with conditions that cannot be satisfied.
        first: the number of the first condition, for error messages.
        values_only: whether unknown cells get values, no nulls, where they can have one.
    """
    relations, observed = sampler.relations, sampler.fitted.observed
    implied_frame = relations.deduce(frame)
    modelled = known_cells(implied_frame, sampler.fitted)
    try:
        completed_rows = _drawn(sampler, modelled, n, seeds, on_impossible, values_only=values_only)
    except ZeroProbabilityError as error:
        raise impossible_row(frame, error.row or 0, sampler.fitted, first) from None
    if not relations:
        return completed_rows
    known_frame = frame[np.repeat(np.arange(frame.height), n)]
    completed_rows = _with_known(completed_rows, known_frame)
    unresolved = relations.resolve(implied_frame, sampler.fitted.schema.dtypes, null_is_value=False).unresolved
    is_wrong = relations.contradicted(completed_rows) | np.repeat(unresolved, n)
    wrong_rows = np.flatnonzero(is_wrong | relations.cannot_occur(completed_rows, known_frame, observed=observed))
    completed_rows = relations.unmarked(completed_rows, known_frame)
    candidates = Candidacy(sampler, implied_frame, known_frame, completed_rows, n, seeds, values_only)
    is_hopeless = np.repeat(relations.broken(implied_frame, ranges=False), n)  # their known cells break a rule
    hopeless_rows, wrong_rows = wrong_rows[is_hopeless[wrong_rows]], wrong_rows[~is_hopeless[wrong_rows]]
    for attempt in range(ATTEMPTS):
        if not len(wrong_rows):
            break
        places, rows = candidates.choose(wrong_rows, attempt)
        completed_rows = _replaced(completed_rows, places, rows)
        wrong_rows = np.setdiff1d(wrong_rows, places)
        if attempt == HOPE and on_impossible != "raise":  # known cells imply values that cannot occur
            wrong_rows = wrong_rows[is_wrong[wrong_rows]]
    # What is left contradicts the model in its known cells.
    wrong_rows = np.union1d(wrong_rows, hopeless_rows)
    if len(wrong_rows) and on_impossible != "raise":
        places, rows = candidates.choose(wrong_rows, ATTEMPTS)
        return _replaced(completed_rows, places, rows)
    rows, known_frame = completed_rows[wrong_rows], known_frame[wrong_rows]
    is_left = relations.contradicted(rows) | relations.cannot_occur(rows, known_frame, observed=observed)
    if is_left.any():
        raise impossible_row(frame, int(wrong_rows[is_left][0] // n), sampler.fitted, first)
    return completed_rows


def complete_refined(
    sampler: Sampler, frame: pl.DataFrame, n: int, seeds: Seeds, on_impossible: OnImpossible, first: int = 0
) -> pl.DataFrame:
    """Draw `n` rows of the refined model for every row of a frame, as `complete` does from the forest.

    Rows are chosen among several of the forest, the same number for every row; where none of them is accepted, among
    more, and then by weight.
    """
    refinement = sampler.fitted.refinement
    if refinement is None or not frame.height or not n:
        return complete(sampler, frame, n, seeds, on_impossible, first)
    rng = generator(seeds.draws, Stage.REFINE)
    n_each = min(max(int(np.ceil(1.5 / refinement.acceptance)), 2), FIRST_CANDIDATES)
    n_conditions = max(1, BLOCK_ROWS // (n * n_each))
    chosen = []
    for start in range(0, frame.height, n_conditions):
        conditions = frame[start : start + n_conditions]
        own_seeds = seeds._replace(draws=int(rng.integers(2**62)))
        rows = complete(sampler, conditions, n * n_each, own_seeds, on_impossible, first + start)
        picked, is_accepted = _pick(sampler, rows, n_each, rng)
        left = np.flatnonzero(~is_accepted)
        if len(left):
            own_seeds = seeds._replace(draws=int(rng.integers(2**62)))
            rows = complete(sampler, conditions[left // n], LAST_CANDIDATES, own_seeds, on_impossible, first + start)
            picked = _replaced(picked, left, _pick(sampler, rows, LAST_CANDIDATES, rng)[0])
        chosen.append(picked)
    result = pl.concat(chosen)
    keys = new_identifiers(sampler.fitted.schema, result.height, seeds.keys, seeds.first_row, rng)
    return result.with_columns([keys[name] for name in result.columns if name in keys])


def _pick(sampler: Sampler, rows: pl.DataFrame, n_each: int, rng: np.random.Generator) -> tuple[pl.DataFrame, Flags]:
    """Return one of every `n_each` consecutive rows, and whether it was accepted."""
    refinement = sampler.fitted.refinement
    assert refinement is not None
    log_ratios = refinement.log_ratio(rows, sampler.relations).reshape(-1, n_each)
    index, is_accepted = choose(log_ratios, refinement.log_cap, rng)
    return rows[index + n_each * np.arange(len(index))], is_accepted


class Candidacy(NamedTuple):
    """Candidates for rows whose known cells the modelled columns do not express, or that break a rule.

    Candidates are drawn without such cells, which are put in afterwards, so that modelled columns change: one of the
    candidates is chosen with weights proportional to the density of these columns given the others.
    """

    sampler: Sampler
    implied: pl.DataFrame  # per condition: the known values and what they imply
    known: pl.DataFrame  # per row: the known values
    completed: pl.DataFrame  # per row: an earlier completion, for the identifiers
    n: int  # rows per condition
    seeds: Seeds
    values_only: bool

    def choose(self, wrong_rows: Counts, attempt: int) -> tuple[Counts, pl.DataFrame]:
        """Return the rows for which a candidate fits, and one candidate for each.

        After the last attempt, candidates that break rules fit as well, if there is no better one.
        """
        n_each = min(LEAST_CANDIDATES * 2**attempt, MOST_CANDIDATES)
        n_chunks = -(-len(wrong_rows) * n_each // BLOCK_ROWS)
        chosen = [
            self._choose(places, n_each, attempt, generator(self.seeds.draws, Stage.RULES, attempt, chunk))
            for chunk, places in enumerate(np.array_split(wrong_rows, n_chunks))
        ]
        return np.concatenate([places for places, _ in chosen]), pl.concat([rows for _, rows in chosen])

    def _choose(
        self, wrong_rows: Counts, n_each: int, attempt: int, rng: np.random.Generator
    ) -> tuple[Counts, pl.DataFrame]:
        fitted, relations = self.sampler.fitted, self.sampler.relations
        conditions = known_cells(self.implied[wrong_rows // self.n], fitted)
        seeds = self.seeds._replace(draws=int(rng.integers(2**62)))
        values_only = self.values_only and attempt < HOPE  # cells that no rule leaves a value stay null
        drawn_rows = _drawn(self.sampler, conditions, n_each, seeds, "relax", values_only=values_only)
        places = np.repeat(wrong_rows, n_each)
        known_rows = self.known[places]
        rows = relations.repair(
            _with_known(drawn_rows, known_rows), known_rows, drawn_rows, move_bases=attempt >= PATIENCE
        )
        rows = rows.with_columns([self.completed.get_column(name)[places] for name in fitted.schema.keys])
        log_weights = _log_weights(fitted, drawn_rows, rows)
        if attempt >= HOPE:  # known cells that the model calls impossible
            log_weights = np.maximum(log_weights, LEAST_LOG)
        is_wrong = relations.contradicted(rows) | relations.cannot_occur(rows, known_rows, observed=fitted.observed)
        if attempt < ATTEMPTS:
            log_weights[is_wrong] = -np.inf
        else:  # the rows with the fewest faults
            log_weights += FAULT_LOG * (is_wrong + 1.0 * relations.breaks_declared(rows))
        log_weights[_changed_impossibly(fitted, drawn_rows, rows, known_rows)] = -np.inf
        # The largest of perturbed logarithms is a draw with these weights.
        perturbed = (log_weights + rng.gumbel(size=len(places))).reshape(-1, n_each)
        best = perturbed.argmax(axis=1) + np.arange(len(wrong_rows)) * n_each
        fits = np.isfinite(log_weights[best])
        return wrong_rows[fits], rows[best[fits]]


def _changed_impossibly(fitted: Fitted, drawn: pl.DataFrame, rows: pl.DataFrame, known: pl.DataFrame) -> Flags:
    """Flag the rows in which an unknown cell of an untransformed column got a value that the column cannot have."""
    is_wrong = np.zeros(rows.height, dtype=bool)
    for column in fitted.schema.columns:
        name = column.name
        if column.kind == "key" or name not in rows.columns or name in fitted.relations.targets:
            continue
        values = rows.get_column(name)
        is_changed = drawn.get_column(name).ne_missing(values)
        if name in known.columns:
            is_changed &= known.get_column(name).is_null()
        places = np.flatnonzero(is_changed)
        is_wrong[places] |= ~possible(values[places], column, observed=fitted.observed)
    return is_wrong


def _log_weights(fitted: Fitted, drawn: pl.DataFrame, rows: pl.DataFrame) -> Floats:
    """Return the log density of the modelled columns that differ from the drawn ones, given all others.

    Where a formula holds in a share of the rows, it must hold in a row if it did when the row was drawn, and only then:
    densities of other values are those of rows beside the formula.
    """
    before, after = fitted.relations.forward(drawn), fitted.relations.forward(rows)
    names = [name for name in after.columns if name not in fitted.schema.keys]
    changes = [before.get_column(name).alias("").ne_missing(after.get_column(name).alias("")) for name in names]
    is_changed = np.array([change.to_numpy() for change in changes]).reshape(len(names), rows.height).T
    log_densities = log_changed_weights(fitted, after, names, is_changed)
    for transform in fitted.relations.transforms:
        if transform.following is None:
            continue
        was_following, is_following = (transform.follows_expression(one).to_numpy() for one in (before, after))
        position = names.index(transform.target.name)
        places = np.flatnonzero(is_changed[:, position] & ~is_following & ~was_following)
        log_following = _log_following(fitted, after[places], names, is_changed[places], transform)
        log_densities[places] -= np.log1p(-np.minimum(np.exp(log_following), MOST_FOLLOWING))
        log_densities[was_following != is_following] = -np.inf
    return log_densities


def _log_following(
    fitted: Fitted, rows: pl.DataFrame, names: list[str], is_changed: Flags, transform: Transform
) -> Floats:
    """Return the log probability that rows follow a formula, given the modelled columns that did not change."""
    name = transform.target.name
    following = pl.Series(name, [transform.following], dtype=rows.schema[name]).new_from_index(0, rows.height)
    rows, log_densities = rows.with_columns(following), np.zeros(rows.height)
    patterns, pattern_of = np.unique(is_changed, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        places = np.flatnonzero(pattern_of.ravel() == number)
        unknown = [other for other, is_one in zip(names, pattern, strict=True) if is_one and other != name]
        log_densities[places] = log_weights(fitted, rows[places].drop(unknown), [name])
    return log_densities


def impute_refined(
    sampler: Sampler, frame: pl.DataFrame, draws: int | None, seed: int, *, fill_all: bool
) -> list[pl.DataFrame]:
    """Fill the missing values of the model's columns as `impute_rows` does, with draws of the refined model.

    Expectations are those of the forest.
    """
    refinement = sampler.fitted.refinement
    if refinement is None or draws is None or not frame.height:
        return impute_rows(sampler, frame, draws, seed, fill_all=fill_all)
    names = [name for name in sampler.fitted.dtypes if name not in sampler.fitted.schema.keys]
    known = user_frame(frame, sampler.fitted)
    is_incomplete = np.zeros(frame.height, dtype=bool)
    for name in names:
        if name in known.columns:
            is_incomplete |= known.get_column(name).is_null().to_numpy()
    places = np.flatnonzero(is_incomplete)
    if not len(places):
        return [frame] * draws
    absent = [
        pl.Series(name, [None], dtype=sampler.fitted.dtypes[name]).new_from_index(0, len(places))
        for name in names
        if name not in known.columns
    ]
    rows = frame[places]
    n_each = min(max(int(np.ceil(4 / refinement.acceptance)), 2), IMPUTED_CANDIDATES)
    candidates = impute_rows(sampler, rows.with_columns(absent), draws * n_each, seed, fill_all=fill_all)
    rng = generator(seed, Stage.REFINE)
    filled = []
    for draw in range(draws):
        some = candidates[draw * n_each : (draw + 1) * n_each]
        whole = [user_frame(one, sampler.fitted) for one in some]
        log_ratios = np.stack([refinement.log_ratio(one, sampler.relations) for one in whole], axis=1)
        index, _ = choose(log_ratios, refinement.log_cap, rng)
        stacked = pl.concat([one.select(pl.nth(range(frame.width))) for one in some])
        filled.append(_replaced(frame, places, stacked[index * len(places) + np.arange(len(places))]))
    return filled


def impute_rows(
    sampler: Sampler, frame: pl.DataFrame, draws: int | None, seed: int, *, fill_all: bool
) -> list[pl.DataFrame]:
    """Fill the missing values of the model's columns, with `draws` random completions, or with expectations if None.

    Cells that can only be null given the known ones stay null, unless `fill_all`.
    """
    fitted = sampler.fitted
    relations = fitted.relations
    if not relations:
        return impute(sampler, frame, draws, seed, fill_all=fill_all)
    known_frame = user_frame(frame, fitted)
    implied_frame = relations.deduce(known_frame)
    modelled_frame = known_cells(implied_frame, fitted).frame
    names = [name for name in known_frame.columns if name not in fitted.schema.keys]
    unresolved = relations.resolve(implied_frame, fitted.schema.dtypes, null_is_value=False).unresolved
    drawn_frames, wrong_rows = [], []
    for imputed_rows in impute(sampler, modelled_frame, draws, seed, fill_all=fill_all):
        user_rows = _with_known(relations.inverse(_with_keys(imputed_rows, fitted)), implied_frame)
        user_rows = _with_known(user_rows, known_frame)
        is_wrong = relations.contradicted(user_rows) | unresolved
        is_wrong |= relations.cannot_occur(user_rows, known_frame, observed=fitted.observed)
        drawn_frames.append(relations.unmarked(user_rows, known_frame))
        wrong_rows.append(np.flatnonzero(is_wrong))
    redrawn = _redrawn(sampler, known_frame, wrong_rows, seed)
    return [
        _fill_nulls(frame, _replaced(rows, places, new_rows.select(rows.columns)) if len(places) else rows, names)
        for rows, places, new_rows in zip(drawn_frames, wrong_rows, redrawn, strict=True)
    ]


def _redrawn(sampler: Sampler, known: pl.DataFrame, rows: list[Counts], seed: int) -> list[pl.DataFrame]:
    """Draw some rows of a frame once for each of several lists of them, with values in their unknown cells."""
    every_row = np.concatenate(rows)
    if not len(every_row):
        return [known[:0]] * len(rows)
    seeds = Seeds(int(generator(seed, Stage.RULES).integers(2**62)), seed, 0)
    redrawn = complete(sampler, known[every_row], 1, seeds, "relax", values_only=True)
    ends = np.cumsum([len(one) for one in rows])
    return [redrawn[end - len(one) : end] for one, end in zip(rows, ends.tolist(), strict=True)]


def known_cells(frame: pl.DataFrame, fitted: Fitted) -> Modelled:
    """Convert rows in which null means unknown to modelled columns, without identifiers."""
    dtypes = {name: dtype for name, dtype in fitted.schema.dtypes.items() if name not in fitted.schema.keys}
    return fitted.relations.forward_known(frame, dtypes)


def _with_keys(rows: pl.DataFrame, fitted: Fitted) -> pl.DataFrame:
    """Add missing identifier columns to modelled rows, filled with nulls."""
    missing_names = [name for name in fitted.schema.names if name not in rows.columns]
    blank_columns = [
        pl.Series(n, [None], dtype=fitted.schema.dtypes[n]).new_from_index(0, rows.height) for n in missing_names
    ]
    return rows.with_columns(blank_columns)


def _drawn(
    sampler: Sampler, modelled: Modelled, n: int, seeds: Seeds, on_impossible: OnImpossible, *, values_only: bool
) -> pl.DataFrame:
    """Draw `n` rows for each row of known cells, and rebuild the user's columns."""
    if values_only:
        frames = impute(sampler, modelled.frame, n, seeds.draws, fill_all=False)
        row_order = np.arange(n * modelled.frame.height).reshape(n, -1).T.ravel()
        return sampler.relations.inverse(_with_keys(pl.concat(frames)[row_order], sampler.fitted))
    prepared_rows = prepare_rows(sampler, modelled.frame, on_impossible, n, modelled.known)
    return sampler.relations.inverse(complete_rows(prepared_rows, n, *seeds))


def _with_known(rows: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """Overwrite rows with the exact known values."""
    return rows.with_columns(
        [
            known_values.zip_with(known_values.is_not_null(), rows.get_column(name).alias("")).alias(name)
            for name in known.columns
            for known_values in (known.get_column(name).alias(""),)
        ]
    )


def _replaced(rows: pl.DataFrame, places: Counts, new_rows: pl.DataFrame) -> pl.DataFrame:
    """Replace some rows of a frame."""
    row_order = np.arange(rows.height)
    row_order[places] = rows.height + np.arange(len(places))
    return pl.concat([rows, new_rows])[row_order]


def _fill_nulls(frame: pl.DataFrame, whole: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """Return the caller's frame with nulls replaced by the values of `whole`."""
    filled_columns = []
    for name in names:
        own_values, new_values = frame.get_column(name).alias(""), whole.get_column(name).alias("")
        if own_values.null_count():
            dtype = new_values.dtype if own_values.dtype == pl.Null else own_values.dtype
            filled_columns.append(
                own_values.cast(dtype).zip_with(own_values.is_not_null(), new_values.cast(dtype)).alias(name)
            )
    return frame.with_columns(filled_columns)
