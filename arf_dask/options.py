"""The options of `fit`, checked before any work starts."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from arf_dask.errors import OptionError, unknown_column
from arf_dask.plan import Bundles

FAMILIES = ("truncnorm", "uniform")
SUPPORTS = ("observed", "open")
KINDS = ("categorical", "numeric", "key")


@dataclass(frozen=True)
class Options:
    """How a model is fitted; the defaults are chosen by evidence (docs/defaults.md)."""

    trees: int = 20
    min_leaf: int = 10
    max_rounds: int = 10
    tolerance: float = 0.0
    max_features: int | None = None
    rows_per_tree: int | None = None
    family: str = "truncnorm"
    columns: Mapping[str, str] = field(default_factory=dict)
    keys: Sequence[str] = ()
    bundles: Bundles = "auto"
    support: str = "observed"

    def check(self) -> None:
        """Raise an OptionError for the first value that cannot be used."""
        _whole("trees", self.trees, 1)
        _whole("min_leaf", self.min_leaf, 1)
        _whole("max_rounds", self.max_rounds, 0)
        if self.max_features is not None:
            _whole("max_features", self.max_features, 1)
        if self.rows_per_tree is not None:
            _whole("rows_per_tree", self.rows_per_tree, 1)
        if not _is_number(self.tolerance) or not 0 <= self.tolerance < 0.5:
            raise OptionError(f"tolerance={self.tolerance!r}: give a number from 0 up to, not including, 0.5.")
        _one_of("family", self.family, FAMILIES)
        _one_of("support", self.support, SUPPORTS)
        if not isinstance(self.columns, Mapping):
            raise OptionError(f"columns={self.columns!r}: give a dict such as {{'zip': 'categorical'}}.")
        for name, kind in self.columns.items():
            _one_of(f"columns[{name!r}]", kind, KINDS)
        _check_names("keys", self.keys)
        self._check_bundles()
        odd = [name for name in self.keys if self.columns.get(name, "key") != "key"]
        if odd:
            raise OptionError(f"keys: {odd[0]!r} is named in columns= as {self.columns[odd[0]]!r} too. Choose one.")

    def check_against(self, names: Sequence[str]) -> None:
        """Raise an OptionError for a name that is no column of the data."""
        for where, some in (
            ("columns", list(self.columns)),
            ("keys", list(self.keys)),
            ("bundles", self.bundled()),
        ):
            for name in some:
                if name not in names:
                    raise unknown_column(name, names, where)
        keys = {*self.keys, *(name for name, kind in self.columns.items() if kind == "key")}
        both = sorted(keys & set(self.bundled()))
        if both:
            raise OptionError(f"bundles: {both[0]!r} is a key and cannot be modelled. Take it out of one of the two.")

    def bundled(self) -> list[str]:
        """The columns named in explicit bundles."""
        return [] if isinstance(self.bundles, str | bool) else [name for group in self.bundles for name in group]

    def as_dict(self) -> dict[str, object]:
        """The options as plain JSON values."""
        bundles = self.bundles if isinstance(self.bundles, str | bool) else [list(group) for group in self.bundles]
        plain = {name: v.item() if isinstance(v, np.generic) else v for name, v in self.__dict__.items()}
        return {**plain, "columns": dict(self.columns), "keys": list(self.keys), "bundles": bundles}

    def _check_bundles(self) -> None:
        if self.bundles == "auto" or isinstance(self.bundles, bool):
            return
        if isinstance(self.bundles, str) or not isinstance(self.bundles, Sequence):
            raise OptionError(f"bundles={self.bundles!r}: give 'auto', False, or lists of column names.")
        for group in self.bundles:
            _check_names("bundles", group)
            if len(group) < 2:
                raise OptionError(f"bundles: {list(group)!r} names fewer than two columns.")
        _check_names("bundles", self.bundled())


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise OptionError(f"{name}={value!r}: give a whole number of at least {least}.")


def _one_of(name: str, value: object, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise OptionError(f"{name}={value!r}: give one of {', '.join(map(repr, allowed))}.")


def _check_names(where: str, names: object) -> None:
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise OptionError(f"{where}={names!r}: give a list of column names.")
    odd = [name for name in names if not isinstance(name, Hashable)]
    if odd:
        raise OptionError(f"{where}: {odd[0]!r} is not a column name.")
    doubled = sorted({name for name in names if list(names).count(name) > 1}, key=str)
    if doubled:
        raise OptionError(f"{where}: {doubled[0]!r} is named twice.")
