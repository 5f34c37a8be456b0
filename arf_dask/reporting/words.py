"""Names of columns and levels for use in sentences."""

from __future__ import annotations

import unicodedata

LONGEST = 40  # maximum characters of a name in a sentence


def plain_name(name: str) -> str:
    """Return a name for use in a sentence: on one line, shortened, and isolated if written right to left."""
    shown = "".join(c if c.isprintable() else " " for c in name)
    shown = shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"
    right_to_left = any(unicodedata.bidirectional(c) in ("R", "AL") for c in shown)
    return f"\u2068{shown}\u2069" if right_to_left else shown
