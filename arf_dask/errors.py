"""Everything that can go wrong, each with where, what, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class ArfError(Exception):
    """The base of every error this package raises on purpose."""


class OptionError(ArfError, ValueError):
    """An argument has a value that cannot be used."""


class DataError(ArfError, ValueError):
    """The data cannot be modelled as they are."""


class UnsupportedColumnError(ArfError, TypeError):
    """Columns of a type that has no distribution here (nested, binary, objects)."""

    @classmethod
    def from_dtypes(cls, columns: Iterable[tuple[str, object]]) -> UnsupportedColumnError:
        listed = ", ".join(f"{name!r} ({dtype})" for name, dtype in columns)
        return cls(
            f"unsupported columns: {listed}. Drop them, or turn them into plain columns first: "
            "unnest structs, explode or join lists, decode binary to strings."
        )


class ModelFormatError(ArfError, ValueError):
    """A model directory is damaged, foreign, or of an unknown version."""


class ImpossibleConditionError(ArfError, ValueError):
    """A condition that the model gives probability zero."""


class ClusterError(ArfError, RuntimeError):
    """The Dask cluster is gone, has no workers, or keeps losing a task."""


class OutputError(ArfError, OSError):
    """Synthetic data cannot be written, or lie where others already are."""


class KeyColumnWarning(UserWarning):
    """Columns were taken for identifiers: they are replaced by fresh values, not modelled."""


def unknown_column(name: object, known: Iterable[str], where: str) -> OptionError:
    """The error for a column that is not there, with the nearest names."""
    near = get_close_matches(str(name), list(known), n=3)
    hint = f" Did you mean {', '.join(map(repr, near))}?" if near else ""
    return OptionError(f"{where}: no column {name!r} in the data.{hint}")


def unknown_option(name: str, known: Iterable[str]) -> OptionError:
    """The error for an option that does not exist, with the nearest names."""
    near = get_close_matches(name, list(known), n=3)
    hint = f" Did you mean {', '.join(near)}?" if near else f" There are {', '.join(sorted(known))}."
    return OptionError(f"no option {name!r}.{hint}")
