"""docs/architecture.md lists every module, and the order of imports is the same wherever it is written."""

import ast
import os
import re
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "arf_dask"
PAGE = ROOT / "docs" / "architecture.md"
ORDER = re.compile(r"^( *)typing, errors.*?< cli$", re.MULTILINE | re.DOTALL)
MODULES = re.compile(r"(<!-- modules -->\n).*?(<!-- end of modules -->)", re.DOTALL)


def order() -> list[str]:
    """The order that tests/test_imports.py enforces."""
    tree = ast.parse((ROOT / "tests" / "test_imports.py").read_text(encoding="utf-8"))
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    values = [node.value for node in assigned if ast.unparse(node.targets[0]) == "ORDER"]
    return [name for name in ast.literal_eval(values[0]) if not name.startswith("__")]


def order_text(indent: str) -> str:
    """The order as it is written: top-level modules are listed together, in lines that begin with folders."""
    text = ""
    for name, following in pairwise([*order(), "end"]):
        alone = not (PACKAGE / name).is_dir() and not (PACKAGE / following).is_dir()
        text += name + ("" if following == "end" else ", " if alone else " < ")
    for room in ("inference", "model_tables", "integrations"):
        text = text.replace(f" < {room}", f"\n{indent}    < {room}")
    return (indent + text).replace(", single_files", f",\n{indent}      single_files")


def summary(path: Path) -> str:
    """The first paragraph of a module's docstring."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert docstring is not None, path
    return " ".join(docstring.split("\n\n")[0].split()).replace("|", r"\|")


def module_tables() -> str:
    """A table of modules for every folder, and one for the top-level modules."""
    text = ""
    for room in [name for name in order() if (PACKAGE / name).is_dir()]:
        paths = {path.relative_to(PACKAGE / room): path for path in sorted((PACKAGE / room).rglob("[!_]*.py"))}
        rows = [f"| `{name.with_suffix('').as_posix()}` | {summary(path)} |" for name, path in paths.items()]
        purpose = summary(PACKAGE / room / "__init__.py")
        text += "\n".join([f"### {room}/", "", purpose, "", "| module | content |", "|---|---|", *rows, "", ""])
    rows = [f"| `{path.stem}` | {summary(path)} |" for path in sorted(PACKAGE.glob("[!_]*.py"))]
    return text + "\n".join(["### Top-level modules", "", "| module | content |", "|---|---|", *rows, "", ""])


def test_architecture_lists_every_module() -> None:
    text = PAGE.read_text(encoding="utf-8")
    expected = MODULES.sub(lambda match: match[1] + "\n" + module_tables() + match[2], text)
    if os.environ.get("UPDATE_DOCS"):
        PAGE.write_text(expected, encoding="utf-8")
        return
    assert text == expected, "run UPDATE_DOCS=1 pytest tests/docs"


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md", "arf_dask/__init__.py"])
def test_the_order_of_imports_is_stated(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    expected = ORDER.sub(lambda match: order_text(match[1]), text)
    if os.environ.get("UPDATE_DOCS"):
        (ROOT / page).write_text(expected, encoding="utf-8")
        return
    assert ORDER.search(text)
    assert text == expected, "run UPDATE_DOCS=1 pytest tests/docs"
