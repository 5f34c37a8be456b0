"""Sources of rows in the user's columns: draw modelled rows, rebuild, and redraw what breaks a rule or the condition.

A block is a pure function of (model, condition, seed, block): rows that violate a rule, or a condition that modelled
columns do not express exactly, are replaced by further draws with derived seeds. If few rows satisfy the condition, one
input of a formula is solved for, and rows are resampled in proportion to their density (importance sampling).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from arf_dask.data.value_sets import Box, Region, ValueSet
from arf_dask.errors import ImpossibleConditionError
from arf_dask.inference.density import ZeroProbabilityError
from arf_dask.inference.forge import BLOCK_ROWS, Sampler
from arf_dask.inference.given import Given, contradicts_rules, impossible
from arf_dask.inference.pinning import pin_rows
from arf_dask.inference.sources import Block, NullSource, Source, make_source, single_values
from arf_dask.rules.relations import Relations
from arf_dask.runtime.seeds import Stage, generator
from arf_dask.typing import Counts, Flags, Floats, OnImpossible

ATTEMPTS = 60  # attempts before it is judged whether all rows would be found in MOST_ATTEMPTS
MOST_ATTEMPTS = 1_000
LEAST_DRAWN = 256
MOST_FRUITLESS = 8 * BLOCK_ROWS  # rows that are drawn before giving up if none of them fits
LOST_SHARE = 0.02  # of the sum of all weights, where inputs are solved for
MOST_CANDIDATES = 1_024  # rows of which at least one is kept, however different their weights are
RARE = 0.02  # acceptance rate below which inputs are solved for


class Checked(NamedTuple):
    """A source of rows in the user's columns that satisfy all rules and the condition."""

    source: Source  # source of modelled rows
    sampler: Sampler
    given: Given | None

    @property
    def relations(self) -> Relations:
        return self.sampler.relations

    @property
    def is_checked(self) -> bool:
        """Whether rows must be checked against the condition."""
        return self.given is not None and not self.given.region.exact

    def draw(self, seed: int, block: Block) -> pl.DataFrame:
        block_rows = self._rebuilt(self.source.draw(seed, block))
        wrong_rows = np.flatnonzero(self.wrong(block_rows))
        if not len(wrong_rows):
            return block_rows
        valid_frames: list[pl.DataFrame] = []
        n_valid, n_tried, pinned = 0, 0, False
        for attempt in range(MOST_ATTEMPTS):
            n_missing = len(wrong_rows) - n_valid
            is_hopeless = attempt >= ATTEMPTS and n_valid * MOST_ATTEMPTS < len(wrong_rows) * attempt
            if n_missing <= 0 or is_hopeless or (not n_valid and n_tried >= MOST_FRUITLESS):
                break
            attempt_block = block._replace(rows=_draws(n_missing, n_valid, n_tried))
            modelled_rows = self.source.draw(_attempt_seed(seed, attempt), attempt_block)
            valid_rows = self._fitting(modelled_rows, pinned, n_missing, seed, block.number, attempt)
            valid_frames.append(valid_rows)
            n_valid, n_tried = n_valid + valid_rows.height, n_tried + modelled_rows.height
            pinned = pinned or (n_tried >= LEAST_DRAWN and n_valid < RARE * n_tried)
        fresh_rows = pl.concat(valid_frames) if valid_frames else block_rows[:0]
        return self._filled(block_rows, wrong_rows, fresh_rows)

    def draw_fitting(self, seed: int, block: Block) -> pl.DataFrame:
        """Draw one block and return only the rows that fit, none of which is drawn again."""
        rows = self._rebuilt(self.source.draw(seed, block))
        return rows.filter(pl.Series(~self.wrong(rows)))

    def _rebuilt(self, modelled: pl.DataFrame) -> pl.DataFrame:
        rows = self.relations.inverse(modelled)
        if self.given is None:
            return rows
        # Values that are given are not rounded.
        choices = self._choices()
        rows = rows.with_columns(self._chosen(rows, modelled, name, known) for name, known in choices.items())
        given_values = single_values(self.given.boxes[0], rows.height) if len(self.given.boxes) == 1 else {}
        return rows.with_columns([given_values[name] for name in self.relations.separate if name in given_values])

    def _choices(self) -> dict[str, ValueSet]:
        """The single values that are given for columns that are rounded after drawing."""
        choices: dict[str, list[ValueSet]] = {}
        for box in () if self.given is None else self.given.boxes:
            for name in self.relations.separate:
                is_chosen = name in box and self.relations.targets[name].one_to_one
                if is_chosen and box[name].spans and len(box[name].points) == len(box[name].spans):
                    choices.setdefault(name, []).append(box[name])
        return {name: ValueSet.union(sets) for name, sets in choices.items()}

    def _chosen(self, rows: pl.DataFrame, modelled: pl.DataFrame, name: str, given: ValueSet) -> pl.Series:
        """Return a column in which drawn values that are among the given ones are not rounded."""
        transform = self.relations.targets[name]
        drawn = transform.unchanged({part: modelled.get_column(part) for part in transform.outputs}).alias(name)
        return drawn.zip_with(pl.Series(given.contains(drawn)), rows.get_column(name))

    def wrong(self, rows: pl.DataFrame) -> Flags:
        """Flag rows that violate a rule or the condition."""
        is_wrong = self.relations.broken(rows, observed=self.sampler.fitted.observed)
        return is_wrong | ~self.given.fits(rows) if self.given is not None and self.is_checked else is_wrong

    def _fitting(
        self, modelled: pl.DataFrame, pinned: bool, missing: int, seed: int, block: int, attempt: int
    ) -> pl.DataFrame:
        """Return the valid rows, solving for an input if `pinned`."""
        rebuilt_rows = self._rebuilt(modelled)
        if not pinned or self.given is None or not self.is_checked:
            return rebuilt_rows.filter(pl.Series(~self.wrong(rebuilt_rows)))
        rng = generator(seed, Stage.RULES, block, attempt)
        solved_rows, row_weights = pin_rows(self.sampler.fitted, self.given.boxes, modelled, rng)
        rebuilt_rows = self._rebuilt(solved_rows)
        row_weights = np.where(self.wrong(rebuilt_rows), 0.0, row_weights)
        if not row_weights.any():
            return rebuilt_rows[:0]
        chosen_rows = weighted_rows(row_weights, rng)
        if len(chosen_rows) > missing:
            chosen_rows = rng.choice(chosen_rows, missing, replace=False)
        return rebuilt_rows[np.sort(chosen_rows)]

    def _filled(self, rows: pl.DataFrame, wrong: np.ndarray, fresh: pl.DataFrame) -> pl.DataFrame:
        """Replace wrong rows by fresh ones; identifiers keep their positions."""
        if not fresh.height and len(wrong) == rows.height:
            raise self._impossible()
        if fresh.height < len(wrong):
            raise self._too_few(rows.height - len(wrong) + fresh.height, rows.height)
        row_order = np.arange(rows.height)
        row_order[wrong] = rows.height + np.arange(len(wrong))
        merged_rows = pl.concat([rows, fresh[: len(wrong)]])[row_order]
        return merged_rows.with_columns([rows.get_column(name) for name in self.sampler.fitted.schema.keys])

    def _too_few(self, n_found: int, n_asked: int) -> ImpossibleConditionError:
        what = "the rules" if self.given is None else self.given.text
        remedy = "Leave out one of the declared rules" if self.given is None else "Widen the condition"
        return ImpossibleConditionError(
            f"{what}: only {n_found:,} of {n_asked:,} rows were found: hardly any row that the model draws fits. "
            f"{remedy}, or ask for fewer rows."
        )

    def _impossible(self) -> ImpossibleConditionError:
        if self.given is None:
            return ImpossibleConditionError(
                "no row that the model draws satisfies all rules. Leave out one of the declared rules."
            )
        return impossible(self.given, self.sampler.fitted)


class Held(NamedTuple):
    """A source whose rows get the single values of a condition, which they contradict otherwise."""

    source: Source
    box: Box

    def draw(self, seed: int, block: Block) -> pl.DataFrame:
        return self.source.draw(seed, block).with_columns(list(single_values(self.box, block.rows).values()))


def make_checked_source(sampler: Sampler, given: Given | None, on_impossible: OnImpossible) -> Source:
    """Return a source of rows in the user's columns, with or without a condition."""
    fitted = sampler.fitted
    boxes = ({},) if given is None else given.region.boxes
    try:
        if given is not None and contradicts_rules(given, fitted):
            raise ZeroProbabilityError
        source = make_source(sampler, boxes)
    except ZeroProbabilityError:
        assert given is not None
        if on_impossible == "raise":
            raise impossible(given, fitted) from None
        if on_impossible == "null":
            return NullSource(fitted.dtypes, given.boxes[0])
        return _relaxed(sampler, given)
    is_exact = given is None or given.region.exact
    return source if not fitted.relations and is_exact else Checked(source, sampler, given)


def _relaxed(sampler: Sampler, given: Given) -> Source:
    """Return a source of rows that keep the single values of an impossible condition, and as much else as possible."""
    fitted = sampler.fitted
    if not fitted.relations:
        return make_source(sampler, given.region.boxes, relax=True)
    observed = fitted.observed
    region = Region(({},))
    for name, wanted in given.boxes[0].items():
        own_region = fitted.relations.translate({name: wanted}, observed=observed)
        if own_region.boxes:  # columns that are impossible on their own are left out
            region = region & own_region.hull()
    source = make_source(sampler, region.boxes or ({},), relax=True)
    return Held(Checked(source, sampler, None), given.boxes[0])


def weighted_rows(weights: Floats, rng: np.random.Generator) -> Counts:
    """Choose rows with probabilities proportional to their weights, of which some are positive, none of them twice.

    The largest weights, by at most `LOST_SHARE` of the sum, are reduced, because one of them may stand for very many
    rows.
    """
    ascending = np.sort(weights)
    sums = np.cumsum(ascending) + ascending * np.arange(len(weights) - 1, -1, -1)  # if larger weights are cut to each
    limit = ascending[np.searchsorted(sums, (1 - LOST_SHARE) * sums[-1])]
    chosen = np.flatnonzero(rng.random(len(weights)) * limit < weights)
    n_least = min(max(1, len(weights) // MOST_CANDIDATES), int((weights > 0).sum()))
    if len(chosen) >= n_least:
        return chosen
    return rng.choice(len(weights), n_least, replace=False, p=weights / weights.sum())


def _attempt_seed(seed: int, attempt: int) -> int:
    return int(generator(seed, Stage.RULES, attempt).integers(2**62))


def _draws(missing: int, held: int, asked: int) -> int:
    """Return the number of rows to draw for the missing ones, given the acceptance rate so far."""
    acceptance_rate = (held + 1) / (asked + 2) if asked else 0.5
    return int(min(max(1.2 * missing / acceptance_rate, LEAST_DRAWN), BLOCK_ROWS))
