"""The release policy, and the limits that a release must satisfy before it is published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from arf_dask.errors import OptionError, unknown_column

HANDLINGS = ("merge", "suppress")
OTHER = "(other)"  # the level that rare levels are merged into


@dataclass(frozen=True)
class ReleasePolicy:
    """Protection of the training data for publishing synthetic rows: `fit(..., release=ReleasePolicy())`.

    Args:
        min_leaf: The minimum number of subjects per leaf. A larger `fit(..., min_leaf=)` takes precedence.
        min_level: The minimum number of subjects per level, per spike of a number, and per combination of columns
            modelled together. Rarer levels are merged into the level "(other)" or suppressed, rarer spikes move to
            the nearest common value, and rows with rarer combinations are dropped.
        clip_extremes: The rank k of clipping: numbers beyond those of the k-th smallest and k-th largest subject are
            neither stored nor drawn.
        round_bounds: Whether to round range bounds, split points and bounds of identifiers, so that they do not equal
            anyone's value.
        forbid_copies: Whether to redraw synthetic rows that equal a unique real row in all columns, or in all but one.
        subject: The column that identifies a person, if a person can have several rows. None treats every row as a
            person.
        max_rows_per_subject: The maximum number of rows per subject used for training, drawn at random.
        rare: How to treat rare levels: "merge", "suppress" (null), or a dict by column such as
            {"diagnosis": "suppress"}; other columns are merged.
        shrinkage: The strength, in rows, with which every leaf is shrunk towards its parent; at least twice the number
            of levels of a column. Larger values reveal less about the rows of a leaf. Without a release it is 2.

    Raises:
        OptionError: If an argument is invalid.

    Examples:
        >>> import arf_dask
        >>> arf_dask.ReleasePolicy(min_leaf=10).loosened()
        ['min_leaf=10 (default 20)']
    """

    min_leaf: int = 20
    min_level: int = 10
    clip_extremes: int = 10
    round_bounds: bool = True
    forbid_copies: bool = True
    subject: str | None = None
    max_rows_per_subject: int | None = None
    rare: str | Mapping[str, str] = "merge"
    shrinkage: float = 40.0

    def __post_init__(self) -> None:
        for name, least in (("min_leaf", 1), ("min_level", 1), ("clip_extremes", 0)):
            _check_whole(name, getattr(self, name), least)
        if self.max_rows_per_subject is not None:
            _check_whole("max_rows_per_subject", self.max_rows_per_subject, 1)
            if self.subject is None:
                raise OptionError("max_rows_per_subject: say subject= too, the column that names a person.")
        handlings = self.rare.values() if isinstance(self.rare, Mapping) else [self.rare]
        for handling in handlings:
            if handling not in HANDLINGS:
                raise OptionError(f"rare={handling!r}: give 'merge' or 'suppress', or a dict of these by column.")
        if not isinstance(self.shrinkage, int | float) or not self.shrinkage > 0:
            raise OptionError(f"shrinkage={self.shrinkage!r}: give a number of rows above 0.")

    def check_against(self, names: Sequence[str]) -> None:
        """Raise an OptionError for names that are not columns of the data."""
        asked = [] if self.subject is None else [("release: subject", self.subject)]
        if isinstance(self.rare, Mapping):
            asked += [("release: rare", name) for name in self.rare]
        for where, name in asked:
            if name not in names:
                raise unknown_column(name, names, where)

    def handling(self, name: str) -> str:
        """Return how rare levels of a column are treated: "merge" or "suppress"."""
        return self.rare.get(name, "merge") if isinstance(self.rare, Mapping) else self.rare

    def loosened(self) -> list[str]:
        """Describe every argument that protects less than its default."""
        found = []
        for field in fields(self):
            value = getattr(self, field.name)
            protects_by_size = field.name in ("min_leaf", "min_level", "clip_extremes", "shrinkage")
            if (protects_by_size and value < field.default) or (field.default is True and value is False):
                found.append(f"{field.name}={value!r} (default {field.default!r})")
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the policy as plain JSON values."""
        rare = dict(self.rare) if isinstance(self.rare, Mapping) else self.rare
        return {**asdict(self), "rare": rare}


@dataclass(frozen=True)
class Limits:
    """Limits that a release must satisfy before it is published. Pass them as `publish_if=`; None means no limit.

    Args:
        membership_auc: The largest AUC of any membership attack.
        c2st: The largest AUC of a classifier that separates synthetic from held-out rows.
        tpr: The largest true-positive rate of any attack at a false-positive rate of 1 %.
        copies: The largest share of synthetic rows that equal a training row, minus the same share of held-out rows.
        inference: The largest advantage in inferring any column of a member (lower end of its interval).
        shadows: The number of shadow models for the likelihood-ratio attack.
        page: The .html or .json file that the report is written to, whether or not the rows are published.

    Raises:
        OptionError: If a limit is not a number, or none is given.

    Examples:
        >>> import arf_dask
        >>> arf_dask.Limits(membership_auc=0.55, c2st=0.7).bounds()["c2st"]
        0.7
    """

    membership_auc: float | None = 0.6
    c2st: float | None = None
    tpr: float | None = None
    copies: float | None = None
    inference: float | None = None
    shadows: int = 16
    page: str | None = None

    def __post_init__(self) -> None:
        for name, limit in self.bounds().items():
            if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int | float)):
                raise OptionError(f"Limits: {name}={limit!r}: give a number, or None for no limit.")
        if all(limit is None for limit in self.bounds().values()):
            raise OptionError("Limits: every limit is None. Give at least one, such as membership_auc=0.6.")

    def bounds(self) -> dict[str, float | None]:
        """Return the limits by name."""
        names = ("membership_auc", "c2st", "tpr", "copies", "inference")
        return {name: getattr(self, name) for name in names}

    def refusals(self, figures: Mapping[str, Any]) -> tuple[str, ...]:
        """Describe every limit that the figures of a report (`Report.to_dict()`) violate.

        A figure that could not be measured violates its limit.
        """
        measured, refused = measured_figures(figures), []
        for name, limit in self.bounds().items():
            if limit is None:
                continue
            value = measured[name]
            if value is None:
                refused.append(f"{name}: could not be measured, at most {limit:g} is allowed")
            elif value > limit:
                refused.append(f"{name}: {value:.3f}, at most {limit:g} is allowed")
        return tuple(refused)


def measured_figures(figures: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the figures that limits apply to, by limit name."""
    privacy, attacks = figures["privacy"], figures["privacy"]["attacks"].values()
    copies = privacy["copies"]
    inference = [game["interval"][0] for game in privacy["attribute_inference"].values()]
    return {
        "membership_auc": privacy["worst_attack"],
        "c2st": figures["fidelity"]["detector_auc"],
        "tpr": max((attack["tpr"]["0.01"] for attack in attacks), default=None),
        "copies": copies["synthetic"]["identical"] - copies["holdout"]["identical"] if "holdout" in copies else None,
        "inference": max(inference, default=None),
    }


def _check_whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise OptionError(f"ReleasePolicy: {name}={value!r}: give a whole number of at least {least}.")
