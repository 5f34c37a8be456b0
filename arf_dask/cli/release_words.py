"""Parse release policies, limits and hold-outs from command-line options."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arf_dask.errors import OptionError
from arf_dask.release.policy import Limits, ReleasePolicy

POLICY = ("min_level", "clip_extremes", "subject", "max_rows_per_subject")
LIMITS = {"max_attack_auc": "membership_auc", "max_c2st": "c2st"}
PAGES = (".html", ".htm", ".json")
REPORTED_HOLDOUT = 0.2  # share of the rows that is held out for a report, unless --holdout says otherwise


def read_policy(options: Mapping[str, Any]) -> ReleasePolicy | None:
    """Return the release policy, or None without one; any policy option implies `--release`."""
    given = {name: options[name] for name in POLICY if options[name] is not None}
    if options["suppress"]:
        given["rare"] = dict.fromkeys(options["suppress"], "suppress")
    if not given and not options["release"]:
        return None
    return ReleasePolicy(**given)


def read_limits(options: Mapping[str, Any]) -> Limits | None:
    """Return the limits for publishing, or None if none is given."""
    given = {name: options[typed] for typed, name in LIMITS.items() if options[typed] is not None}
    if not given:
        return None
    if "membership_auc" not in given:
        given["membership_auc"] = None
    return Limits(**given, page=options["page"])


def read_holdout(options: Mapping[str, Any]) -> Any:
    """Return the share or path of the held-out rows, such as "0.1" or "held_out.parquet"; a report has a default."""
    text = options["holdout"]
    if text is None:
        return REPORTED_HOLDOUT if options.get("page") is not None else None
    try:
        return float(text)
    except ValueError:
        return text


def check_page(path: str) -> None:
    """Raise an OptionError unless a report can be written to the file."""
    if Path(path).suffix.lower() not in PAGES:
        raise OptionError(f"{path}: a report is written to a file that ends in .html or .json.")
    if not Path(path).absolute().parent.is_dir():
        raise OptionError(f"{path}: there is no directory {Path(path).absolute().parent}.")
