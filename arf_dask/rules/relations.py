"""The rules of a table, and the conversion of the user's rows to modelled rows and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import polars as pl

from arf_dask.rules.evaluation import Flags, satisfied
from arf_dask.rules.expressions import Comparison
from arf_dask.rules.grammar import parse_rule
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms import Transform

KINDS = ("formula", "order", "difference", "together", "grid")


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

    @cached_property
    def affected(self) -> frozenset[str]:
        """Columns whose distribution may differ from that of the model."""
        compared_names = (name for rule in self.enforced for name in rule.columns)
        return frozenset((*self.targets, *compared_names))

    @cached_property
    def enforced(self) -> list[Comparison]:
        """Exact rules that must be checked in every synthetic row."""
        checked_rules = [rule for rule in self.rules if rule.exact and rule.kind in ("formula", "order", "difference")]
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

    def inverse(self, modelled: pl.DataFrame) -> pl.DataFrame:
        """Convert modelled rows to the user's rows, without checking them against the rules."""
        if not self.transforms:
            return modelled
        modelled_columns = {name: modelled.get_column(name) for name in modelled.columns}
        frame = pl.DataFrame({name: series for name, series in modelled_columns.items() if name not in self.owners})
        for transform in self.transforms:
            name = transform.target.name
            series = transform.inverse(frame, {part: modelled_columns[part] for part in transform.outputs})
            frame = frame.with_columns(series.alias(name)) if frame.width else pl.DataFrame({name: series})
        return frame.select([pl.nth(frame.columns.index(name)) for name in self.names])

    def broken(self, frame: pl.DataFrame, *, ranges: bool = True) -> Flags:
        """Flag the user's rows that break an exact rule or, with `ranges`, hold values outside the observed range."""
        is_broken = np.zeros(frame.height, dtype=bool)
        for rule in self.enforced:
            is_known, holds = satisfied(rule, frame, self.decimals)
            is_broken |= is_known & ~holds
        for transform in self.transforms if ranges else ():
            is_broken |= transform.faults(frame).to_numpy()
        return is_broken


NO_RELATIONS = Relations()


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
