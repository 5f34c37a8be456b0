"""The statement of a private model: what is guaranteed, to whom, by which mechanisms, and what is not covered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from arf_dask.runtime.display import TextInNotebooks, count, printable

NOT_COVERED = (
    "the names, types and order of the columns, and everything that is declared, are public",
    "errors while files are read, and the time and memory that the fit takes",
    "other releases from the same data, unless a ledger adds them up",
    "whatever compares the model with real rows: reports, publish_if, and questions about given rows",
)


@dataclass(frozen=True, repr=False)
class PrivacyStatement(TextInNotebooks):
    """The guarantee of a private model, as returned by `Model.privacy`; it is also in model files and manifests.

    Attributes:
        epsilon: The privacy loss that the fit may have caused at most, with probability 1 - delta.
        delta: The probability with which the loss may be larger.
        rho: The same in zero-concentrated differential privacy, in which mechanisms add up.
        neighbours: The tables between which an attacker cannot tell.
        unit: Whom the guarantee protects: "row", or a column that identifies units.
        max_rows_per_unit: The maximum number of rows per unit that were used.
        rows: An estimate of the number of rows, from noisy counts.
        mechanisms: Each mechanism with its purpose, number of uses, scale of noise, sensitivity, rho and share.
        domains: Where the domain of every column comes from: declared, type, private or identifier.
        nullable: The columns declared to have missing values.
        not_covered: What the guarantee does not cover.
        noise: The library that drew the noise, with its version.

    Examples:
        >>> import arf_dask, polars as pl
        >>> private = arf_dask.DifferentialPrivacy(epsilon=1.0)
        >>> data = pl.DataFrame({"member": [True, False] * 500})
        >>> statement = arf_dask.fit(data, privacy=private, trees=5, refine=False).privacy
        >>> statement.neighbours
        'tables that differ by one row, added or removed'
        >>> [one["purpose"] for one in statement.mechanisms]
        ["counts of 'member'"]
    """

    epsilon: float
    delta: float
    rho: float
    neighbours: str
    unit: str
    max_rows_per_unit: int
    rows: int
    mechanisms: tuple[Mapping[str, Any], ...]
    domains: Mapping[str, str]
    nullable: tuple[str, ...]
    not_covered: tuple[str, ...]
    noise: str

    def to_dict(self) -> dict[str, Any]:
        """Return the statement as plain JSON values."""
        return {
            **asdict(self),
            "mechanisms": [dict(mechanism) for mechanism in self.mechanisms],
            "nullable": list(self.nullable),
            "not_covered": list(self.not_covered),
        }

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> PrivacyStatement:
        """Read a statement from the values of `to_dict`."""
        lists = {name: tuple(fields[name]) for name in ("mechanisms", "nullable", "not_covered")}
        return cls(**{**fields, **lists})

    @property
    def summary(self) -> str:
        """The guarantee in one line."""
        unit = "one row" if self.unit == "row" else f"one {self.unit} ({count(self.max_rows_per_unit, 'row')} at most)"
        return f"({self.epsilon:g}, {self.delta:g})-differentially private for {printable(unit)}"

    def __repr__(self) -> str:
        kinds: dict[str, list[Mapping[str, Any]]] = {}
        for mechanism in self.mechanisms:
            kinds.setdefault(str(mechanism["mechanism"]), []).append(mechanism)
        lines = [f"PrivacyStatement: {self.summary}", f"  neighbours  {self.neighbours}"]
        lines.append(f"  budget      rho {self.rho:.6g}, noise by {self.noise}")
        for name, group in kinds.items():
            uses = sum(int(mechanism["uses"]) for mechanism in group)
            scales = [float(mechanism["scale"]) for mechanism in group]
            share = sum(float(mechanism["share"]) for mechanism in group)
            lines.append(f"  {name}: {count(uses, 'use')}, scale {min(scales):.4g} to {max(scales):.4g}, {share:.1%}")
        sources = sorted(set(self.domains.values()))
        for source in sources:
            names = [repr(column) for column, found in self.domains.items() if found == source]
            lines.append(f"  {source:<11} {printable(', '.join(names))}")
        return "\n".join([*lines, *(f"  not covered: {text}" for text in self.not_covered)])


def read_statement(options: Mapping[str, Any]) -> PrivacyStatement | None:
    """Return the statement in the options of a model; None if the model is not private."""
    found = options.get("privacy")
    return None if found is None else PrivacyStatement.read(found)
