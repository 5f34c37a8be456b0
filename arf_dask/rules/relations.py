"""The rules of a table, and the conversion of the user's rows to modelled rows and back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl

from arf_dask.data.value_sets import EVERYTHING, NOTHING, Box, Region, meet
from arf_dask.rules.evaluation import Flags, satisfied
from arf_dask.rules.expressions import Comparison, columns_of
from arf_dask.rules.grammar import parse_rule
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms import Transform
from arf_dask.rules.transforms.base import Repair, nulls_where
from arf_dask.typing import Floats

COMPARED = ("formula", "order", "difference")  # kinds of rules that compare two expressions
KINDS = (*COMPARED, "together", "grid")
MOST_BOXES = 64  # of a region; beyond that, it is no longer exact
PASSES = 3  # maximum number of passes in which known values imply others


@dataclass(frozen=True)
class Rule:
    """A relation between the columns of a row.

    Attributes:
        text: The rule as text; for formulas, orders and differences in the syntax of `rules=`.
        kind: "formula", "order", "difference", "together" or "grid".
        columns: The columns that the rule refers to.
        share: The share of the training rows in which the rule holds, among those in which it can be checked. Rules
            with a share of 1 and declared rules hold in every synthetic row.
        found: True if the rule was found in the data, False if it was declared.

    Examples:
        >>> import arf_dask, polars as pl
        >>> data = pl.DataFrame({"a": [i * 37 % 113 for i in range(200)], "b": [i % 7 for i in range(200)]})
        >>> print(arf_dask.fit(data.with_columns(c=pl.col("a") + pl.col("b")), trees=5, seed=1).rules[0])
        c == a + b  (formula, found)
    """

    text: str
    kind: str
    columns: tuple[str, ...]
    share: float
    found: bool

    @property
    def exact(self) -> bool:
        """Whether the rule holds in every synthetic row."""
        return not self.found or self.share >= 1.0

    def __str__(self) -> str:
        share = "" if self.share >= 1.0 else f", in {_percent(self.share)} of rows"
        return f"{self.text}  ({self.kind}, {'found' if self.found else 'declared'}{share})"


class Modelled(NamedTuple):
    """Rows of the user's table in modelled columns."""

    frame: pl.DataFrame
    known: Mapping[str, Flags]  # per modelled column: which cells are known
    contradictory: Flags  # rows that contradict a transform
    unresolved: Flags  # rows with a known value that depends on an unknown one, which has to be integrated out
    log_slopes: Floats | float = 0.0  # what the densities of the user's columns have in addition to the modelled ones


@dataclass(frozen=True)
class Relations:
    """The rules of a table and the resulting transforms, in the order in which columns are rebuilt."""

    names: tuple[str, ...] = ()  # the user's columns, in order
    dtypes: Mapping[str, pl.DataType] = field(default_factory=dict)
    decimals: Mapping[str, int | None] = field(default_factory=dict)  # of the numeric columns in rules
    rules: tuple[Rule, ...] = ()
    transforms: tuple[Transform, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.rules or self.transforms)

    def __getstate__(self) -> dict[str, object]:
        # Cached properties are not sent to workers.
        return {stored_field.name: getattr(self, stored_field.name) for stored_field in fields(self)}

    @cached_property
    def targets(self) -> dict[str, Transform]:
        """Transforms by the name of their column."""
        return {transform.target.name: transform for transform in self.transforms}

    @cached_property
    def owners(self) -> dict[str, Transform]:
        """Transforms by the names of the modelled columns in the place of their column."""
        return {name: transform for transform in self.transforms for name in transform.outputs}

    def user_name(self, name: str) -> str:
        """Return the column of the user's table that a modelled column belongs to."""
        return self.owners[name].target.name if name in self.owners else name

    def target_of(self, column: str) -> Target:
        """Return a column as the target of a formula that is solved for it."""
        return Target(column, self.dtypes[column], self.decimals.get(column))

    def fineness(self, column: str) -> float:
        """Return how fine the values of a column are: the finer, the more probably one of them solves an equation."""
        decimals = self.decimals.get(column)
        if self.dtypes[column].is_float():
            return 20.0 if decimals is None else 1.0 + decimals
        return float(decimals or 0)

    @cached_property
    def enforced(self) -> list[Comparison]:
        """Exact rules that must be checked in every synthetic row."""
        checked_rules = [rule for rule in self.rules if rule.exact and rule.kind in COMPARED]
        return [parse_rule(rule.text) for rule in checked_rules]

    @property
    def together(self) -> list[tuple[str, ...]]:
        """Columns that are declared to be modelled together, one tuple per rule."""
        return [rule.columns for rule in self.rules if rule.kind == "together"]

    @property
    def separate(self) -> list[str]:
        """Columns that cannot be modelled together with others: rounding changes their values after drawing."""
        return [name for name, transform in self.targets.items() if not transform.keeps_values]

    def modelled_names(self, columns: Iterable[str] | None = None) -> list[str]:
        """Return the names of the modelled columns that take the place of the user's columns, all or a selection."""
        names: list[str] = []
        for name in self.names if columns is None else columns:
            names += self.targets[name].outputs if name in self.targets else [name]
        return names

    def needed(self, columns: Iterable[str]) -> list[str]:
        """Return the columns of the user's table that these modelled columns are computed from."""
        needed_names: dict[str, None] = {}
        for name in columns:
            needed_names[self.user_name(name)] = None
            if name in self.owners:
                needed_names.update(dict.fromkeys(self.owners[name].inputs))
        return [name for name in self.names if name in needed_names]

    def forward(self, frame: pl.DataFrame, columns: Iterable[str] | None = None) -> pl.DataFrame:
        """Convert the user's rows to modelled rows, with all modelled columns or a selection."""
        column_names = self.modelled_names() if columns is None else list(columns)
        modelled_columns: dict[str, pl.Series] = {}
        for name in column_names:
            if name in self.owners:
                if name not in modelled_columns:
                    modelled_columns |= self.owners[name].forward(frame)
            elif name not in self.targets:
                modelled_columns[name] = frame.get_column(name)
        return pl.DataFrame({name: modelled_columns[name] for name in column_names if name in modelled_columns})

    def forward_known(self, frame: pl.DataFrame, dtypes: Mapping[str, pl.DataType]) -> Modelled:
        """Convert rows in which null means unknown, as far as their modelled columns are known.

        Args:
            frame: the rows; with all columns of the user's table if some are transformed.
            dtypes: the modelled columns, with their dtypes.
        """
        columns: dict[str, pl.Series] = {}
        known: dict[str, Flags] = {}
        for name in frame.columns:
            if name not in self.targets and name not in dtypes:
                continue
            if name in self.targets:
                parts, is_known = self.targets[name].forward_known(frame)
            else:
                parts, is_known = {name: frame.get_column(name)}, frame.get_column(name).is_not_null()
            for part, series in parts.items():
                columns[part] = nulls_where(~is_known, series.cast(dtypes[part]).alias(part))
                known[part] = is_known.to_numpy()
        none = np.zeros(frame.height, dtype=bool)
        return Modelled(pl.DataFrame({name: columns[name] for name in dtypes if name in columns}), known, none, none)

    def resolve(self, frame: pl.DataFrame, dtypes: Mapping[str, pl.DataType], *, null_is_value: bool) -> Modelled:
        """Convert rows with some of the user's columns for a density.

        Args:
            frame: the rows.
            dtypes: the modelled columns, with their dtypes.
            null_is_value: whether null is a value of its own, or unknown.
        """
        deduced = frame if null_is_value else self.deduce(frame)
        contradictory, unresolved = np.zeros(frame.height, dtype=bool), np.zeros(frame.height, dtype=bool)
        none = np.zeros(frame.height, dtype=bool)
        columns: dict[str, pl.Series] = {}
        free: dict[str, Flags] = {}
        log_slopes: Floats | float = 0.0
        for name in frame.columns:
            if name not in self.targets:
                columns[name] = deduced.get_column(name)
                continue
            resolved = self.targets[name].resolve(frame, deduced, null_is_value=null_is_value)
            contradictory, unresolved = contradictory | resolved.contradictory, unresolved | resolved.unresolved
            columns |= {part: series.cast(dtypes[part]).alias(part) for part, series in resolved.columns.items()}
            free |= resolved.free
            log_slopes = log_slopes + resolved.log_slopes
        is_known = {
            name: ~free.get(name, none) if null_is_value else series.is_not_null().to_numpy()
            for name, series in columns.items()
        }
        modelled = pl.DataFrame(columns) if columns else pl.DataFrame(height=frame.height)
        return Modelled(modelled, is_known, contradictory, unresolved, log_slopes)

    def deduce(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return rows with all columns of the user's table, with the values that known ones imply; null is unknown."""
        if not self.transforms:
            return frame
        blanks = {
            name: pl.Series(name, [None], dtype=self.dtypes[name]).new_from_index(0, frame.height)
            for name in self.names
            if name not in frame.columns
        }
        frame = pl.DataFrame({name: blanks[name] if name in blanks else frame.get_column(name) for name in self.names})
        for _ in range(PASSES):
            previous_frame = frame
            for transform in self.transforms:
                frame = transform.deduce(frame, self)
            if frame.equals(previous_frame):
                break
        return frame

    def repair(
        self, rows: pl.DataFrame, known: pl.DataFrame, drawn: pl.DataFrame, *, move_bases: bool = False
    ) -> pl.DataFrame:
        """Change unknown values of completed rows in which known values contradict a transform; see `Repair`."""
        task = Repair(known, drawn, self, move_bases)
        for transform in reversed(self.transforms):
            rows = transform.repair(rows, task)
        for transform in self.transforms:
            rows = transform.recompute(rows, task)
        return rows

    def contradicted(self, rows: pl.DataFrame) -> Flags:
        """Flag complete rows that break an exact rule or contradict a transform."""
        is_wrong = self.broken(rows, ranges=False)
        for transform in self.transforms:
            is_wrong |= transform.contradicts(rows)
        return is_wrong

    def inverse(self, modelled: pl.DataFrame) -> pl.DataFrame:
        """Convert modelled rows to the user's rows, without checking them against the rules.

        Modelled rows that no row of the user's stands for get values that `broken` and `cannot_occur` flag.
        """
        if not self.transforms:
            return modelled
        modelled_columns = {name: modelled.get_column(name) for name in modelled.columns}
        plain_columns = {name: series for name, series in modelled_columns.items() if name not in self.owners}
        frame = pl.DataFrame(plain_columns) if plain_columns else pl.DataFrame(height=modelled.height)
        for transform in self.transforms:
            name = transform.target.name
            series = transform.rebuild(frame, {part: modelled_columns[part] for part in transform.outputs})
            frame = frame.with_columns(series.alias(name))
        return frame.select([pl.nth(frame.columns.index(name)) for name in self.names])

    def translate(self, box: Box, *, observed: bool) -> Region:
        """Return the region of the modelled columns whose rows lie in a box of the user's columns.

        Args:
            box: sets of the user's columns.
            observed: whether floats keep their observed range; all other columns always do.
        """
        box = self._with_implied(box, observed=observed)
        if not all(box.values()):
            return NOTHING
        regions = [
            self.targets[name].translate(wanted, box, self) if name in self.targets else Region(({name: wanted},))
            for name, wanted in box.items()
        ]
        region = EVERYTHING
        for one in sorted(regions, key=lambda one: len(one.boxes)):
            region = region & (one if len(region.boxes) * len(one.boxes) <= MOST_BOXES else one.hull())
        return region

    def ranges(self, columns: Iterable[str], *, observed: bool) -> Box:
        """Return the sets of the values that transformed columns can have.

        Args:
            columns: columns of the user's table.
            observed: whether floats keep their observed range; all other columns always do.
        """
        targets = [self.targets[name].target for name in columns if name in self.targets]
        return {target.name: target.observed() for target in targets if observed or not target.is_float}

    def _with_implied(self, box: Box, *, observed: bool) -> Box:
        """Add what the sets of a box imply for other columns, and leave out values that cannot occur."""
        for transform in reversed(self.transforms):
            name = transform.target.name
            if name not in box:
                continue
            box = meet(box, self.ranges([name], observed=observed))
            box = meet(box, transform.implies(box[name], self))
        return box

    def broken(
        self,
        frame: pl.DataFrame,
        *,
        ranges: bool = True,
        observed: bool = True,
        columns: Collection[str] | None = None,
    ) -> Flags:
        """Flag the user's rows that break an exact rule, or hold values that cannot occur.

        Args:
            frame: the rows.
            ranges: whether values outside the observed range are flagged, and nulls in columns without nulls.
            observed: whether floats keep their observed range; all other columns always do.
            columns: the columns whose rules and ranges are checked; None for all.
        """
        is_broken = np.zeros(frame.height, dtype=bool)
        for rule in self.enforced:
            if columns is None or all(name in columns for name in columns_of_rule(rule)):
                is_broken |= self.breaks(rule, frame)
        for transform in self.transforms if ranges else ():
            target = transform.target
            if columns is None or target.name in columns:
                is_broken |= _faults(transform, frame, observed=observed).to_numpy()
        return is_broken

    def cannot_occur(self, rows: pl.DataFrame, known: pl.DataFrame, *, observed: bool) -> Flags:
        """Flag completed rows in which an unknown cell got a value that cannot occur: no drawn row has it.

        Args:
            rows: the completed rows.
            known: the known values, which are not looked at; null means unknown.
            observed: whether floats keep their observed range; all other columns always do.
        """
        is_wrong = np.zeros(rows.height, dtype=bool)
        for transform in self.transforms:
            name = transform.target.name
            faults = _faults(transform, rows, observed=observed) | transform.off_grid(rows.get_column(name))
            is_wrong |= (faults & known.get_column(name).is_null() if name in known.columns else faults).to_numpy()
        return is_wrong

    def unmarked(self, rows: pl.DataFrame, known: pl.DataFrame | None = None) -> pl.DataFrame:
        """Return rebuilt rows with null where modelled rows that no row of the user's stands for were marked.

        Args:
            rows: the rebuilt rows.
            known: the known values, which stay; null means unknown.
        """
        for name, transform in self.targets.items():
            values = rows.get_column(name)
            unmarked = transform.unmarked(values)
            if unmarked is values:
                continue
            if known is not None and name in known.columns:
                unmarked = values.zip_with(known.get_column(name).is_not_null(), unmarked)
            rows = rows.with_columns(unmarked)
        return rows

    def breaks(self, rule: Comparison, frame: pl.DataFrame) -> Flags:
        """Flag the user's rows that break a rule."""
        is_known, holds = satisfied(rule, frame, self.decimals)
        return is_known & ~holds

    def breaks_declared(self, frame: pl.DataFrame) -> Flags:
        """Flag the user's rows that break a declared rule."""
        is_broken = np.zeros(frame.height, dtype=bool)
        for rule in self.rules:
            if not rule.found and rule.kind in COMPARED:
                is_broken |= self.breaks(parse_rule(rule.text), frame)
        return is_broken

    def determined(self, columns: Iterable[str]) -> frozenset[str]:
        """Return columns of the user's table, and those that they determine."""
        known = set(columns)
        for transform in self.transforms:
            if not transform.outputs and known.issuperset(transform.inputs):
                known.add(transform.target.name)
        return frozenset(known)

    def checks(self, columns: Collection[str]) -> bool:
        """Return whether rows can be redrawn because of the values of these columns."""
        is_ruled = any(all(name in columns for name in columns_of_rule(rule)) for rule in self.enforced)
        return is_ruled or any(name in columns for name in self.targets)

    def with_inputs(self, columns: Iterable[str]) -> list[str]:
        """Return columns of the user's table, and all others that are needed to rebuild them."""
        needed = set(columns)
        for transform in reversed(self.transforms):
            if transform.target.name in needed:
                needed.update(transform.inputs)
        return [name for name in self.names if name in needed]


NO_RELATIONS = Relations()


def _faults(transform: Transform, frame: pl.DataFrame, *, observed: bool) -> pl.Series:
    """Flag rebuilt values outside the range that they keep, and unexpected nulls."""
    has_range = observed or not transform.target.is_float
    values = frame.get_column(transform.target.name)
    return transform.faults(frame) if has_range else transform.target.forbidden_null(values)


def columns_of_rule(rule: Comparison) -> tuple[str, ...]:
    """Return the columns that a rule compares."""
    return tuple(dict.fromkeys((*columns_of(rule.left), *columns_of(rule.right))))


def check_rules(
    rules: Sequence[Rule], relations: Relations, frame: pl.DataFrame, count_unseen: Callable[[Rule], int | None]
) -> pl.DataFrame:
    """One row per rule: rule, kind, columns, share (in training), found, rows (checked), broken (rows that break it).

    `count_unseen` counts the rows with an unseen combination, for rules about columns that are modelled together.
    """
    rule_rows = []
    for rule in rules:
        n_checked: int | None = None
        n_broken: int | None = None
        grid = relations.targets.get(rule.columns[0]) if rule.kind == "grid" else None
        if grid is not None and rule.columns[0] in frame.columns:
            grid_column = frame.get_column(rule.columns[0])
            n_checked, n_broken = len(grid_column) - grid_column.null_count(), int(grid.off_grid(grid_column).sum())
        elif rule.kind == "together":
            n_broken = count_unseen(rule)
            n_checked = None if n_broken is None else frame.height
        elif rule.kind != "grid" and all(name in frame.columns for name in rule.columns):
            is_known, holds = satisfied(parse_rule(rule.text), frame, relations.decimals)
            n_checked, n_broken = int(is_known.sum()), int((is_known & ~holds).sum())
        rule_rows.append({"rule": rule.text, "kind": rule.kind, "columns": list(rule.columns), "share": rule.share})
        rule_rows[-1].update({"found": rule.found, "rows": n_checked, "broken": n_broken})
    return pl.DataFrame(rule_rows, schema=CHECK_COLUMNS)


CHECK_COLUMNS: dict[str, pl.DataType] = {
    "rule": pl.String(),
    "kind": pl.String(),
    "columns": pl.List(pl.String()),
    "share": pl.Float64(),
    "found": pl.Boolean(),
    "rows": pl.UInt64(),
    "broken": pl.UInt64(),
}


def _percent(share: float) -> str:
    return f"{100 * share:.{0 if share < 0.9 else 1 if share < 0.999 else 3}f} %"
