"""The errors and warnings of the package. Messages state the location, the problem and a remedy."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any


class ArfError(Exception):
    """Base class of all errors raised by this package."""


class OptionError(ArfError, ValueError):
    """An argument is invalid."""


class DataError(ArfError, ValueError):
    """The data cannot be read or modelled."""


class UnsupportedColumnError(ArfError, TypeError):
    """Columns have unsupported types (nested, binary, objects)."""

    @classmethod
    def from_dtypes(cls, columns: Iterable[tuple[str, object]]) -> UnsupportedColumnError:
        listed = ", ".join(f"{name!r} ({dtype})" for name, dtype in columns)
        return cls(
            f"unsupported columns: {listed}. Drop them, or turn them into plain columns first: "
            "unnest structs, explode or join lists, decode binary to strings."
        )


class ModelFormatError(ArfError, ValueError):
    """A model directory is damaged, not a model, or of an unknown version."""


class ReleaseError(ArfError, ValueError):
    """Data is rejected by a release policy, or a release violates its limits."""

    report: Any = None  # the report on a release that violates its limits


class ReleaseWarning(UserWarning):
    """A release policy protects less than the defaults."""


class PrivacyError(ArfError, ValueError):
    """A private fit would read something from the data that is neither declared nor paid for, or has no budget left."""


class PrivacyWarning(UserWarning):
    """A result about a private model is not itself private."""


class ImpossibleConditionError(ArfError, ValueError):
    """A condition has probability zero under the model."""


class ClusterError(ArfError, RuntimeError):
    """The Dask cluster is gone, has no workers, or repeatedly loses a task."""


class ForkError(ArfError, RuntimeError):
    """The process was forked from one in which Polars was running."""


class OutputError(ArfError, OSError):
    """Synthetic data cannot be written, or the target already holds other data."""


class MissingExtraError(ArfError, ImportError):
    """An optional dependency is not installed."""


class RuleWarning(UserWarning):
    """Training rows violate declared rules; sampled rows satisfy them."""


class KeyColumnWarning(UserWarning):
    """Columns were detected as identifiers and get new values, or hold texts that are sampled verbatim.

    Attributes:
        keys: The columns detected as identifiers.
        measures: The subset of `keys` that may be measurements instead.
        verbatim: Text columns with mostly distinct values, which are sampled verbatim.
        people: Columns that seem to name people with several rows, who are sampled as they are.
    """

    def __init__(
        self,
        keys: Sequence[str],
        measures: Sequence[str] = (),
        verbatim: Sequence[str] = (),
        people: Sequence[str] = (),
    ) -> None:
        self.keys, self.measures, self.verbatim, self.people = list(keys), list(measures), list(verbatim), list(people)
        super().__init__(self.text(command_line=False))

    def text(self, *, command_line: bool) -> str:
        """Return the message, with the names of Python or command-line options."""
        parts = []
        if self.keys:
            parts.append(
                f"treated as identifiers: {_quoted(self.keys)}. They are not modelled; new values of the same shape "
                "are generated."
            )
            confirm, model = self._remedies(command_line)
            parts.append(f"Pass {model}, or {confirm}." if self.measures else f"Pass {confirm}, or {model}.")
        if self.verbatim:
            how = " ".join(f"--key {name}" for name in self.verbatim) if command_line else f"keys={self.verbatim!r}"
            kept = self.verbatim[0]
            stay = f"--column {kept}=categorical" if command_line else f"columns={{{kept!r}: 'categorical'}}"
            parts.append(
                f"values of {_quoted(self.verbatim)} are mostly distinct, and are sampled verbatim. Pass {how} to "
                f"generate new values, or {stay} to confirm."
            )
        if self.people:
            how = " ".join(f"--renew {name}" for name in self.people) if command_line else f"renew={self.people!r}"
            parts.append(
                f"{_quoted(self.people)} seem to name people, who are sampled as they are. Pass {how} to rename."
            )
        return " ".join(parts)

    def _remedies(self, command_line: bool) -> tuple[str, str]:
        first = (self.measures or self.keys)[0]
        kind = "numeric" if self.measures else "categorical"
        if command_line:
            return " ".join(
                f"--key {name}" for name in self.keys
            ) + " to confirm", f"--column {first}={kind} to model it"
        return f"keys={self.keys!r} to confirm", f"columns={{{first!r}: {kind!r}}} to model it"


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


class IndexDroppedWarning(UserWarning):
    """The index of a pandas frame has a name or holds times, and is not learned."""


def missing_extra(what: str, extra: str) -> MissingExtraError:
    """Return the error for a missing package, naming the extra that installs it."""
    return MissingExtraError(f"{what}: a package is missing. Install it with pip install 'arf-dask[{extra}]'.")


def unknown_column(name: object, known: Iterable[str], where: str) -> OptionError:
    """Return the error for an unknown column, with suggestions."""
    near = near_names(str(name), known)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    return OptionError(f"{where}: no column {name!r} in the data.{hint}")


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """Return up to three names that resemble a name, whatever the case of their letters.

    >>> near_names("AGE", ["age", "wage", "sex"])
    ['age', 'wage']
    """
    by_folded: dict[str, str] = {}
    for one in known:
        by_folded.setdefault(one.casefold(), one)
    return [by_folded[folded] for folded in get_close_matches(name.casefold(), by_folded, n=3)]


# The same things as other libraries call them.
ELSEWHERE = {
    "random_state": "seed",
    "random_seed": "seed",
    "n_estimators": "trees",
    "num_trees": "trees",
    "min_samples_leaf": "min_leaf",
    "min_node_size": "min_leaf",
    "mtry": "max_features",
    "delta": "tolerance",
    "max_iters": "max_rounds",
    "max_iter": "max_rounds",
    "verbose": "progress",
    "primary_key": "keys",
    "constraints": "rules",
    "n_jobs": "client (trees grow on all cores, or on the Dask cluster of client=)",
}


def unknown_option(name: str, known: Iterable[str]) -> OptionError:
    """Return the error for an unknown option, with suggestions."""
    near = [ELSEWHERE[name]] if name in ELSEWHERE else get_close_matches(name, list(known), n=3)
    hint = f" Did you mean {' or '.join(near)}?" if near else f" Available options: {', '.join(sorted(known))}."
    return OptionError(f"no option {name!r}.{hint}")


def warn_user(message: str | Warning, category: type[Warning] | None = None) -> None:
    """Issue a warning that points to the caller's line outside this package."""
    inner = (__name__.partition(".")[0], "contextlib")  # contextlib enters the context managers of this package
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in inner:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
