"""What the user declares for a private fit: the guarantee, whom it protects, and the domain of every column."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import polars as pl

from arf_dask.errors import OptionError, PrivacyError, unknown_column

ROW = "row"  # the unit that is one row
PRIVATE = "private"  # bounds or levels that are bought from the budget
LARGEST_DELTA = 1e-3


@dataclass(frozen=True)
class DifferentialPrivacy:
    """A differentially private fit: `fit(data, privacy=DifferentialPrivacy(...))`.

    Nothing is read from the data unless it is paid for with epsilon. The domain of every column is therefore declared
    here, or follows from its type (Boolean and Enum), or is bought: "private" takes a part of the budget.

    Args:
        epsilon: The privacy loss that the fit may cause at most.
        delta: The probability with which the loss may exceed epsilon; far less than one over the number of units.
        unit: The column that identifies whom the guarantee protects, such as a customer. "row" protects single rows.
        max_rows_per_unit: The maximum number of rows per unit that are used, drawn at random; required with a unit.
        bounds: The smallest and largest value of numeric and temporal columns, such as {"age": (17, 90)}, with a third
            value for the step of a grid: {"price": (0, 100, 0.01)}; or {"amount": "private"}. Values outside are
            moved to the nearest bound.
        levels: The values of columns with few values, such as {"city": ["Rome", "Oslo"]}, or {"city": "private"} to
            learn those that many units share. Other texts become "(other)", other numbers the nearest value.
        nullable: The columns in which values may be missing, or True for all. Elsewhere, a missing value is treated
            as the lower bound, as the first level, or as "(other)".
        spikes: Numbers that many rows hold, such as {"hours": [40]}; bounds and 0 are always among them.
        key_patterns: The shape of text identifiers, such as {"order_id": "ORD-######"}, where # is a digit.

    Raises:
        PrivacyError: If an argument is invalid.

    Examples:
        >>> import arf_dask
        >>> private = arf_dask.DifferentialPrivacy(epsilon=1.0, delta=1e-6, bounds={"age": (17, 90)})
        >>> private.unit
        'row'
        >>> arf_dask.DifferentialPrivacy(epsilon=0)
        Traceback (most recent call last):
        arf_dask.errors.PrivacyError: epsilon=0: give a positive number, such as 1.0.
    """

    epsilon: float
    delta: float = 1e-9
    unit: str = ROW
    max_rows_per_unit: int | None = None
    bounds: Mapping[str, Any] = field(default_factory=dict)
    levels: Mapping[str, Any] = field(default_factory=dict)
    nullable: Sequence[str] | bool = ()
    spikes: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    key_patterns: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _is_positive(self.epsilon):
            raise PrivacyError(f"epsilon={self.epsilon!r}: give a positive number, such as 1.0.")
        if not _is_positive(self.delta) or self.delta > LARGEST_DELTA:
            raise PrivacyError(
                f"delta={self.delta!r}: give a positive number of at most {LARGEST_DELTA}, such as 1e-9."
            )
        self._check_unit()
        for name, given in (("bounds", self.bounds), ("levels", self.levels), ("spikes", self.spikes)):
            if not isinstance(given, Mapping):
                raise PrivacyError(f"{name}={given!r}: give a dict by column.")
        if isinstance(self.nullable, str) or not isinstance(self.nullable, bool | Sequence):
            raise PrivacyError(f"nullable={self.nullable!r}: give a list of columns, or True for all.")
        both = sorted(set(self.bounds) & set(self.levels))
        if both:
            raise PrivacyError(f"column {both[0]!r}: bounds and levels are both declared. Choose one.")
        for name, bounds in self.bounds.items():
            is_range = isinstance(bounds, Sequence) and not isinstance(bounds, str) and len(bounds) in (2, 3)
            if bounds != PRIVATE and not is_range:
                raise PrivacyError(
                    f"column {name!r}: bounds={bounds!r}. Give (low, high), (low, high, step) or 'private'."
                )
        for name, levels in self.levels.items():
            is_list = isinstance(levels, pl.Series | Sequence) and not isinstance(levels, str) and len(levels) > 0
            if not is_list and not (isinstance(levels, str) and levels == PRIVATE):
                raise PrivacyError(f"column {name!r}: levels={levels!r}. Give a list of values, or 'private'.")
        for name, pattern in self.key_patterns.items():
            if not isinstance(pattern, str) or "#" not in pattern:
                raise PrivacyError(f"column {name!r}: key pattern {pattern!r}. Give a text with # for digits.")

    @property
    def rows_per_unit(self) -> int:
        """The maximum number of rows of one unit."""
        return 1 if self.max_rows_per_unit is None else int(self.max_rows_per_unit)

    @property
    def unit_column(self) -> str | None:
        """The column that identifies units; None if every row is one."""
        return None if self.unit == ROW else self.unit

    def is_nullable(self, name: str) -> bool:
        """Return whether values of a column may be missing."""
        return self.nullable if isinstance(self.nullable, bool) else name in self.nullable

    def check_against(self, names: Sequence[str]) -> None:
        """Raise an OptionError for names that are not columns of the data."""
        nullable: Sequence[str] = () if isinstance(self.nullable, bool) else self.nullable
        named = {
            "bounds": self.bounds,
            "levels": self.levels,
            "nullable": nullable,
            "spikes": self.spikes,
            "key_patterns": self.key_patterns,
            "unit": () if self.unit_column is None else (self.unit_column,),
        }
        for where, columns in named.items():
            for name in columns:
                if name not in names:
                    raise unknown_column(name, names, f"privacy: {where}")
        if self.unit == ROW and ROW in names:
            raise PrivacyError(
                f"unit={ROW!r} means single rows, but there is a column of this name. Rename the column."
            )

    def _check_unit(self) -> None:
        if not isinstance(self.unit, str):
            raise PrivacyError(f"unit={self.unit!r}: give the name of a column, or 'row'.")
        most = self.max_rows_per_unit
        if most is not None and (isinstance(most, bool) or not isinstance(most, int | np.integer) or most < 1):
            raise PrivacyError(f"max_rows_per_unit={most!r}: give a whole number of at least 1.")
        if self.unit != ROW and most is None:
            raise PrivacyError(
                f"unit={self.unit!r}: say max_rows_per_unit= too, the number of rows of a unit that may be used."
            )
        if self.unit == ROW and most not in (None, 1):
            raise PrivacyError("max_rows_per_unit: say unit= too, the column that identifies a unit.")


def checked_privacy(privacy: object) -> DifferentialPrivacy:
    """Return the declaration, or raise an OptionError if it is not a DifferentialPrivacy."""
    if not isinstance(privacy, DifferentialPrivacy):
        raise OptionError(f"privacy={privacy!r}: give arf_dask.DifferentialPrivacy(...).")
    return privacy


def _is_positive(value: object) -> bool:
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return is_number and 0 < float(value) < math.inf  # type: ignore[arg-type]


DomainKind = Literal["levels", "line", "key", "empty"]
