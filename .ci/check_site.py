"""Check that a built site loads nothing from elsewhere: python .ci/check_site.py site."""

from __future__ import annotations

import re
import sys
from pathlib import Path

# What a browser fetches by itself; links that a reader may follow are fine.
LOADS = [
    re.compile(r"""<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\bsrc=["']?((?:https?:)?//[^"'\s>]+)"""),
    re.compile(r"""<link\b(?![^>]*rel=["']?canonical)[^>]*\bhref=["']?((?:https?:)?//[^"'\s>]+)"""),
    re.compile(r"""url\(["']?((?:https?:)?//[^"')]+)"""),
    re.compile(r"""@import\s+["']((?:https?:)?//[^"']+)"""),
]


def outside_loads(site: Path) -> list[str]:
    """Return a line for everything that a page or style sheet loads from another host."""
    found = []
    for path in sorted(site.rglob("*")):
        if path.suffix in (".html", ".css"):
            text = path.read_text(encoding="utf-8")
            found += [f"{path}: {address}" for pattern in LOADS for address in pattern.findall(text)]
    return found


def main() -> None:
    """Exit with a message if the site loads anything from another host."""
    site = Path(sys.argv[1])
    pages = len(list(site.rglob("*.html")))
    if not pages:
        sys.exit(f"{site}: no pages there. Run make docs.")
    found = outside_loads(site)
    if found:
        sys.exit("\n".join(["The site loads from other hosts:", *found]))
    print(f"{pages} pages in {site}/, none of which loads anything from other hosts")


if __name__ == "__main__":
    main()
