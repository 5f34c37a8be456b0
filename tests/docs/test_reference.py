"""The site shows every page, and docstrings of public functions describe their arguments, results and errors."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import arf_dask
from arf_dask.namespace import FrameNamespace
from arf_dask.sklearn import ARFDensity, ARFImputer, ARFSynthesizer

ROOT = Path(__file__).parents[2]
FUNCTIONS = [getattr(arf_dask, name) for name in arf_dask.__all__ if inspect.isfunction(getattr(arf_dask, name))]
METHODS = [
    method
    for model in (arf_dask.Model, arf_dask.TablesModel)
    for name, method in inspect.getmembers(model, inspect.isfunction)
    if not name.startswith("_")
]
CLASSES = [
    *(getattr(arf_dask, name) for name in arf_dask.__all__ if inspect.isclass(getattr(arf_dask, name))),
    *(ARFDensity, ARFImputer, ARFSynthesizer, FrameNamespace),
]
NAMED = re.compile(r"^ {4}\*{0,2}(\w+): \S", re.MULTILINE)


def pages(entry: Any) -> list[str]:
    """The pages that an entry of the navigation names."""
    if isinstance(entry, str):
        return [entry]
    return [page for value in (entry.values() if isinstance(entry, dict) else entry) for page in pages(value)]


def test_every_page_is_in_the_navigation() -> None:
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    found = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert {page for page in found if not page.startswith("paper/")} <= set(pages(navigation))


def sections(function: Callable[..., Any]) -> dict[str, str]:
    """The sections of a docstring by their titles; the text before them has the title \"\"."""
    parts = re.split(r"^(Args|Returns|Raises|Examples):\n", inspect.getdoc(function) or "", flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


@pytest.mark.parametrize("function", [*FUNCTIONS, *METHODS], ids=lambda function: function.__qualname__)
def test_docstrings_describe_every_argument(function: Callable[..., Any]) -> None:
    described = sections(function)
    named = NAMED.findall(described.get("Args", ""))
    parameters = [name for name in inspect.signature(function).parameters if name != "self"]
    if "options" in named:  # the options of `fit`, described there
        parameters = [name for name in parameters if name not in inspect.signature(arf_dask.fit).parameters]
        named = [name for name in named if name in parameters]
    assert sorted(named) == sorted(parameters)


@pytest.mark.parametrize("function", [*FUNCTIONS, *METHODS], ids=lambda function: function.__qualname__)
def test_docstrings_describe_results_and_have_an_example(function: Callable[..., Any]) -> None:
    described = sections(function)
    assert ">>>" in described["Examples"]
    assert "Returns" in described or inspect.signature(function).return_annotation == "None"
    assert "Raises" in described or len(inspect.signature(function).parameters) == 1


@pytest.mark.parametrize("one", CLASSES, ids=lambda one: one.__name__)
def test_public_classes_have_a_docstring_and_all_but_errors_an_example(one: type) -> None:
    docstring = one.__doc__ or ""
    assert docstring
    assert ">>>" in docstring or issubclass(one, BaseException) or one is arf_dask.Variable
