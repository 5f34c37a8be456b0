"""The accountant of a private fit: every answer about rows is paid from a budget of zero-concentrated privacy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from arf_dask.errors import PrivacyError

ROUNDING = 1e-9  # relative error of sums of costs


class Spending(NamedTuple):
    """One use of a mechanism."""

    purpose: str
    mechanism: str
    scale: float
    sensitivity: int
    rho: float
    delta: float = 0.0


@dataclass
class Accountant:
    """Adds up the costs of mechanisms, and refuses those that exceed the budget before they run.

    >>> accountant = Accountant(rho=1.0)
    >>> accountant.spend(Spending("rows", "discrete Gaussian", 1.0, 1, 0.5))
    >>> accountant.left
    0.5
    >>> accountant.spend(Spending("rows", "discrete Gaussian", 0.5, 1, 2.0))
    Traceback (most recent call last):
    arf_dask.errors.PrivacyError: rows: costs rho 2, and only 0.5 of 1 is left.
    """

    rho: float
    delta: float = 0.0  # for levels that are learned
    spendings: list[Spending] = field(default_factory=list)

    @property
    def left(self) -> float:
        """The rho that has not been spent."""
        return max(self.rho - sum(spending.rho for spending in self.spendings), 0.0)

    def spend(self, spending: Spending) -> None:
        """Record a use of a mechanism, or raise a PrivacyError if the budget does not suffice."""
        if spending.rho > self.left + ROUNDING * self.rho:
            raise PrivacyError(
                f"{spending.purpose}: costs rho {spending.rho:.3g}, and only {self.left:.3g} of {self.rho:.3g} is left."
            )
        spent_delta = sum(earlier.delta for earlier in self.spendings)
        if spending.delta + spent_delta > self.delta * (1 + ROUNDING):
            raise PrivacyError(f"{spending.purpose}: exceeds the delta for learned levels, {self.delta:.3g}.")
        self.spendings.append(spending)
