"""Read the transforms of older model files.

In version 3, dates and times written as text were kinds of their own. Up to version 5, timestamps without their hour
had days of 24 hours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DAY = 86_400_000_000  # microseconds


def updated_step(step: Any) -> Any:
    """Return a transform of a model file as it is described today; what is not of an older form does not change.

    >>> old = {"kind": "dates", "target": {}, "expression": "", "details": {"form": "%Y-%m-%d", "grid": "month_start"}}
    >>> updated_step(old)["kind"], updated_step(old)["details"]["second"]
    ('chain', {'kind': 'grid', 'details': {'grid': 'month_start', 'step': 1.0}})
    >>> links = {"first": {"kind": "dates", "details": {}}, "second": {"kind": "hours", "details": {"zone": ""}}}
    >>> updated_step({"kind": "chain", "details": links})["details"]["second"]
    {'kind': 'hours', 'details': {'has_gaps': True, 'zone': ''}}
    """
    step = _with_chains(step)
    match step:
        case {"kind": "hours", "details": dict(details)}:
            return step | {"details": {"has_gaps": True, **details}}
        case {"kind": "chain", "details": {"second": {"kind": "hours", "details": dict(details)}, **others}}:
            return step | {"details": {**others, "second": {"kind": "hours", "details": {"has_gaps": True, **details}}}}
    return step


def _with_chains(step: Any) -> Any:
    """Return a transform of a model file of version 3 as it is described since version 4."""
    match step:
        case {"kind": "dates", "details": {"form": form, "grid": grid}}:
            if grid == "":
                return step | {"details": {"form": form}}
            return _after_parsing(step, form, "grid", {"grid": grid, "step": 1.0})
        case {"kind": "parts", "details": {"form": "", "days": [], **details}}:
            return step | {"details": details}
        case {"kind": "parts", "target": dict(), "details": {"form": form, "days": [int(first), int(last)], **details}}:
            target = step["target"] | {"low": first * DAY, "high": (last + 1) * DAY - 1}
            return _after_parsing(step | {"target": target}, form, "parts", details)
        case {"kind": "hours", "details": {"form": "", **details}}:
            return step | {"details": details}
        case {"kind": "hours", "details": {"form": form, **details}}:
            return _after_parsing(step, form, "hours", details)
    return step


def _after_parsing(step: dict[str, Any], form: Any, kind: str, details: Mapping[Any, Any]) -> dict[str, Any]:
    links = {"first": {"kind": "dates", "details": {"form": form}}, "second": {"kind": kind, "details": dict(details)}}
    return step | {"kind": "chain", "details": links}
