"""The finished report: all figures as data, and one HTML page."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any

import polars as pl

from arf_dask.errors import OptionError
from arf_dask.reporting.fidelity import Fidelity
from arf_dask.reporting.page import PageFacts, render_page
from arf_dask.reporting.page_outcome import render_gate, render_release
from arf_dask.reporting.privacy import Privacy
from arf_dask.reporting.verdict import Verdict
from arf_dask.storage.stores import write_file
from arf_dask.typing import PathLike


@dataclass(frozen=True, eq=False)
class Report:
    """The fidelity and privacy of a synthetic table.

    `to_dict`, `to_json` and `to_frame` give every figure; `save("report.html")` writes one page that needs no network.

    Examples:
        >>> import arf_dask, polars as pl
        >>> real = pl.DataFrame({"sex": ["f", "m"] * 100, "age": [20 + i % 40 for i in range(200)]})
        >>> report = arf_dask.report(real, arf_dask.synthesize(real, trees=5, seed=1), seed=2)
        >>> report.to_dict()["fidelity"]["columns"]["sex"]["distance"] < 0.2
        True
    """

    fidelity: Fidelity
    privacy: Privacy
    verdict: Verdict
    facts: PageFacts
    release: Mapping[str, Any] | None = None  # effects of the release policy, if any
    refusals: tuple[str, ...] = field(default=())  # limits that were violated
    limits: Mapping[str, float | None] | None = None  # limits that were checked

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as plain JSON values; None for figures that were not measured."""
        return {
            "verdict": self.verdict.to_dict(),
            "data": self.facts.to_dict(),
            "fidelity": _finite(self.fidelity.to_dict()),
            "privacy": _finite(self.privacy.to_dict()),
            "release": None if self.release is None else _finite(dict(self.release)),
            "gate": None if self.limits is None else {"limits": dict(self.limits), "refusals": list(self.refusals)},
        }

    def to_json(self) -> str:
        """Return the figures as a JSON string."""
        return json.dumps(self.to_dict(), allow_nan=False, ensure_ascii=False)

    def to_frame(self) -> pl.DataFrame:
        """One row per figure: section, subject (a column, an attack or empty), figure, value.

        Figures that are lists or matrices (pairs, exposed rows) are in `to_dict` only.
        """
        rows = [
            {"section": section, "subject": subject, "figure": figure, "value": value}
            for section in ("fidelity", "privacy")
            for subject, figure, value in _figures(self.to_dict()[section])
        ]
        schema = {"section": pl.String, "subject": pl.String, "figure": pl.String, "value": pl.Float64}
        return pl.DataFrame(rows, schema=schema)

    def with_gate(self, limits: Mapping[str, float | None], refusals: tuple[str, ...]) -> Report:
        """Return the report with the limits and refusals of a gate."""
        return replace(self, limits=dict(limits), refusals=refusals)

    def to_html(self) -> str:
        """Return the HTML page as a string."""
        gate, release = render_gate(self.limits, self.refusals), render_release(self.release)
        return render_page(self.fidelity, self.privacy, self.verdict, self.facts, gate, release)

    def save(self, path: PathLike, storage_options: Mapping[str, Any] | None = None) -> None:
        """Write the page to an .html file, or the figures to a .json file.

        Args:
            path: The file or URL.
            storage_options: Storage options for a URL.

        Raises:
            OptionError: If the file name has another ending.
            OutputError: If the file cannot be written.
        """
        match Path(path).suffix.lower():
            case ".html" | ".htm":
                text = self.to_html()
            case ".json":
                text = self.to_json()
            case _:
                raise OptionError(f"{path}: a report is written to a file that ends in .html or .json.")
        write_file(path, text.encode(), storage_options)

    def _repr_html_(self) -> str:
        # Shown in an iframe, so that the styles of notebook and page do not interfere.
        page = escape(self.to_html(), quote=True)
        return f'<iframe title="report" style="width:100%;height:640px;border:0" sandbox srcdoc="{page}"></iframe>'

    def __repr__(self) -> str:
        lines = [f"Report: {self.verdict.fidelity}. {self.verdict.privacy}."]
        for heading, reasons in (
            ("fidelity", self.verdict.fidelity_reasons),
            ("privacy", self.verdict.privacy_reasons),
        ):
            lines += [f"  {heading}: {reason}" for reason in reasons]
        return "\n".join([*lines, *(f"  refused: {refusal}" for refusal in self.refusals)])


def _finite(value: Any) -> Any:
    """Replace NaN and infinities, which JSON does not support, by None."""
    match value:
        case Mapping():
            return {str(key): _finite(entry) for key, entry in value.items()}
        case list() | tuple():
            return [_finite(entry) for entry in value]
        case float():
            return value if math.isfinite(value) else None
        case _:
            return value


NESTED = ("columns", "attacks", "model_file", "attribute_inference", "copies")


def _figures(section: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    for name, value in section.items():
        if isinstance(value, float | int) and not isinstance(value, bool):
            yield "", name, float(value)
        elif name in NESTED and isinstance(value, Mapping):
            for subject, figures in value.items():
                yield from _subject_figures(subject, figures, "" if name != "attribute_inference" else "inference_")
        elif name in ("singling_out", "linkability", "target") and isinstance(value, Mapping):
            yield from _subject_figures("", value, f"{name}_")


def _subject_figures(subject: str, figures: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str, float]]:
    for name, value in figures.items():
        if isinstance(value, float | int) and not isinstance(value, bool):
            yield subject, f"{prefix}{name}", float(value)
        elif isinstance(value, Mapping):
            yield from _subject_figures(subject, value, f"{prefix}{name}_")
        elif isinstance(value, list) and len(value) == 2 and all(isinstance(end, float) for end in value):
            yield subject, f"{prefix}{name}_low", value[0]
            yield subject, f"{prefix}{name}_high", value[1]
