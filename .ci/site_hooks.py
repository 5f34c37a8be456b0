"""Hooks of MkDocs: pages that live outside `docs/`, and the help texts of the command line.

README.md becomes the home page. Links between the files of the repository are rewritten to links between pages, so that
the same text works here and where the repository is browsed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
from mkdocs.structure.files import File, Files

from arf_dask.cli.main import cli

ROOT = Path(__file__).parents[1]
# Files of the repository, and the pages they become.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "SECURITY.md": "SECURITY.md",
    "docker/README.md": "docker.md",
}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not below `docs/`."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=relink(text)))
    files.append(File.generated(config, "reference/command_line.md", content=command_line()))
    return files


def relink(text: str) -> str:
    """Rewrite links to files of the repository as links to pages of the site."""
    for source, page in PAGES.items():
        text = text.replace(f"]({source})", f"]({page})")
    return re.sub(r"\]\(docs/([\w/-]+\.md)", r"](\1", text)


def command_line() -> str:
    """Return the help texts of all commands as a page."""
    commands = [cli, *(cli.commands[name] for name in sorted(cli.commands))]
    sections = []
    for command in commands:
        name = "arf-dask" if command is cli else f"arf-dask {command.name}"
        with click.Context(command, info_name=name, max_content_width=100) as context:
            sections.append(f"## {name}\n\n```text\n{command.get_help(context)}\n```\n")
    return "# Command line\n\n" + "\n".join(sections)
