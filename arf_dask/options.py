"""The options of `fit`, validated before any work starts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from inspect import Parameter, signature
from typing import Any, TypedDict, TypeVar, get_args

import numpy as np

from arf_dask.errors import OptionError, unknown_column, unknown_option
from arf_dask.typing import Bundles, DependenceKind, Family, OnImpossible, Refine, Support

FAMILIES = get_args(Family)
SUPPORTS = get_args(Support)
DEPENDENCES = get_args(DependenceKind)
KINDS = ("categorical", "numeric", "key")
ROWS_PER_FILE = 1_000_000  # default rows per file of a data set
SHADOWS = 16  # default number of shadow models that a report attacks with
LEAF_ROWS, REFINED_LEAF_ROWS = 20, 50  # defaults of min_leaf, without and with a refinement
REFINED_ROWS = 500  # minimum training rows of a refinement, unless it is asked for

Function = TypeVar("Function", bound=Any)


class FitOptions(TypedDict, total=False):
    """The options of `fit`, for type checkers and editors. `Options` has the defaults, `fit` the documentation."""

    trees: int
    min_leaf: int | None
    max_rounds: int
    tolerance: float
    max_features: int | None
    rows_per_tree: int | None
    family: Family
    columns: Mapping[str, str] | None
    keys: Sequence[str] | None
    renew: Sequence[str] | None
    bundles: Bundles
    support: Support
    dependence: DependenceKind
    refine: Refine
    rules: Sequence[Any] | None
    find_rules: bool
    strict_rules: bool
    allow_copies: bool


class SampleOptions(TypedDict, total=False):
    """The keyword arguments of `Model.sample` except `frame`, for type checkers and editors."""

    given: Any
    on_impossible: OnImpossible
    seed: int | None
    first_key: int | None
    progress: Any


@dataclass(frozen=True)
class Options:
    """The options of `fit` and their defaults, which are justified in docs/defaults.md.

    To add an option, add it here (with its default and its check) and to `FitOptions`, and describe it in `fit`.
    """

    trees: int = 20
    min_leaf: int | None = None
    max_rounds: int = 10
    tolerance: float = 0.0
    max_features: int | None = None
    rows_per_tree: int | None = None
    family: Family = "truncnorm"
    columns: Mapping[str, str] = field(default_factory=dict)
    keys: Sequence[str] = ()
    renew: Sequence[str] = ()
    bundles: Bundles = "auto"
    support: Support = "observed"
    dependence: DependenceKind = "tree"
    refine: Refine = "auto"
    rules: Sequence[Any] = ()
    find_rules: bool = True
    strict_rules: bool = False
    allow_copies: bool = False

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Options:
        """Validate the options given by a caller; None selects the default."""
        check_options(given, cls)
        options = cls(**{name: value for name, value in given.items() if value is not None})
        options.check()
        return options

    def refines(self, n_rows: int) -> bool:
        """Return whether a model of so many training rows is to be refined."""
        return self.refine is True or (self.refine == "auto" and n_rows >= REFINED_ROWS)

    def leaf_rows(self, n_rows: int) -> int:
        """Return the minimum number of rows per leaf for so many training rows."""
        if self.min_leaf is not None:
            return self.min_leaf
        return REFINED_LEAF_ROWS if self.refines(n_rows) else LEAF_ROWS

    def check(self) -> None:
        """Raise an OptionError for the first invalid value."""
        _whole("trees", self.trees, 1)
        if self.min_leaf is not None:
            _whole("min_leaf", self.min_leaf, 1)
        if self.refine != "auto" and not isinstance(self.refine, bool):
            raise OptionError(f"refine={self.refine!r}: say 'auto', True or False.")
        _whole("max_rounds", self.max_rounds, 0)
        if self.max_features is not None:
            _whole("max_features", self.max_features, 1)
        if self.rows_per_tree is not None:
            _whole("rows_per_tree", self.rows_per_tree, 1)
        if not _is_number(self.tolerance) or not 0 <= self.tolerance < 0.5:
            raise OptionError(f"tolerance={self.tolerance!r}: give a number from 0 up to, not including, 0.5.")
        _one_of("family", self.family, FAMILIES)
        _one_of("dependence", self.dependence, DEPENDENCES)
        _one_of("support", self.support, SUPPORTS)
        for name in ("find_rules", "strict_rules", "allow_copies"):
            if not isinstance(getattr(self, name), bool):
                raise OptionError(f"{name}={getattr(self, name)!r}: say True or False.")
        if isinstance(self.rules, str) or not isinstance(self.rules, Sequence):
            raise OptionError(f"rules={self.rules!r}: give a list of rules, such as ['start <= end'].")
        if not isinstance(self.columns, Mapping):
            raise OptionError(f"columns={self.columns!r}: give a dict such as {{'zip': 'categorical'}}.")
        for name, kind in self.columns.items():
            _one_of(f"columns[{name!r}]", kind, KINDS)
        _check_names("keys", self.keys)
        _check_names("renew", self.renew)
        self._check_bundles()
        clash = next((name for name in self.keys if self.columns.get(name, "key") != "key"), None)
        if clash is not None:
            raise OptionError(f"keys: {clash!r} is named in columns= as {self.columns[clash]!r} too. Choose one.")
        clash = next((name for name in self.renew if name in self.keys or name in self.columns), None)
        if clash is not None:
            where = "keys" if clash in self.keys else "columns"
            raise OptionError(
                f"renew: {clash!r} is named in {where}= too. Renewed columns are categorical: choose one."
            )

    def check_against(self, names: Sequence[str]) -> None:
        """Raise an OptionError for names that are not columns of the data."""
        for where, column_names in (
            ("columns", list(self.columns)),
            ("keys", list(self.keys)),
            ("renew", list(self.renew)),
            ("bundles", self.bundled()),
        ):
            for name in column_names:
                if name not in names:
                    raise unknown_column(name, names, where)
        key_names = self.all_keys()
        bundled_keys = sorted(key_names & set(self.bundled()))
        if bundled_keys:
            raise OptionError(
                f"bundles: {bundled_keys[0]!r} is a key and cannot be modelled. Take it out of one of the two."
            )

    @property
    def kinds(self) -> dict[str, str]:
        """The declared kinds of columns, those of renewed columns included."""
        return {**self.columns, **dict.fromkeys(self.renew, "categorical")}

    def all_keys(self) -> set[str]:
        """Return the columns declared as identifiers."""
        return {*self.keys, *(name for name, kind in self.columns.items() if kind == "key")}

    def bundled(self) -> list[str]:
        """Return the columns named in explicit bundles."""
        return [] if isinstance(self.bundles, str | bool) else [name for group in self.bundles for name in group]

    def as_dict(self) -> dict[str, object]:
        """Return the options as plain JSON values."""
        bundle_lists = self.bundles if isinstance(self.bundles, str | bool) else [list(group) for group in self.bundles]
        plain_values = {
            name: value.item() if isinstance(value, np.generic) else value for name, value in self.__dict__.items()
        }
        rule_texts = [list(rule) if isinstance(rule, list | tuple) else str(rule) for rule in self.rules]
        return {
            **plain_values,
            "columns": dict(self.columns),
            "keys": list(self.keys),
            "renew": list(self.renew),
            "bundles": bundle_lists,
            "rules": rule_texts,
        }

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


def check_options(given: Mapping[str, Any], options_class: type) -> None:
    """Raise an OptionError for the first option that is not a field of a dataclass, with suggestions."""
    option_names = {option_field.name for option_field in fields(options_class)}
    for name in given:
        if name not in option_names:
            raise unknown_option(name, option_names)


def shows_fields(options_class: type) -> Callable[[Function], Function]:
    """Return a decorator that replaces `**options` in a signature by the fields of a dataclass and their defaults."""
    defaults = options_class()
    field_parameters = [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=getattr(defaults, field.name), annotation=field.type)
        for field in fields(options_class)
    ]

    def show(function: Function) -> Function:
        old_signature = signature(function)
        own_parameters = [
            parameter for parameter in old_signature.parameters.values() if parameter.kind is not Parameter.VAR_KEYWORD
        ]
        first_keyword = next(
            parameter_index
            for parameter_index, parameter in enumerate(own_parameters)
            if parameter.kind is Parameter.KEYWORD_ONLY
        )
        function.__signature__ = old_signature.replace(
            parameters=[*own_parameters[:first_keyword], *field_parameters, *own_parameters[first_keyword:]]
        )
        return function

    return show


def shows_options(function: Function) -> Function:
    """Show the options of `fit` in the signature of a function that takes them as `**options`."""
    return shows_fields(Options)(function)


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
    unhashable = [name for name in names if not isinstance(name, Hashable)]
    if unhashable:
        raise OptionError(f"{where}: {unhashable[0]!r} is not a column name.")
    doubled = sorted({name for name in names if list(names).count(name) > 1}, key=str)
    if doubled:
        raise OptionError(f"{where}: {doubled[0]!r} is named twice.")
