"""The code in README.md and docs/ runs as printed, and prints the output shown under it.

Sizes are reduced and addresses replaced (SMALLER), unless a block is followed by its output. After a change of that
output, `UPDATE_DOCS=1 pytest tests/docs` writes the new one.
"""

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
from distributed import LocalCluster

import arf_dask
from retail import retail_orders

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
SCHEDULER = "tcp://scheduler:8786"
SMALLER = {"1_000_000_000": "2_000", "1_000_000": "2_000", "-n 1000000": "-n 2000", "trees=50": "trees=5"}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`]+)`")


class Block(NamedTuple):
    language: str
    code: str
    line: int
    output: str | None  # the text block that follows a block of Python at once


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = list(BLOCK.finditer(text))
    result = []
    for match, following in zip_longest(found, found[1:]):
        shown = following is not None and following[1] == "text" and not text[match.end() : following.start()].strip()
        output = following[2] if shown and following is not None and match[1] == "python" else None
        result.append(Block(match[1], match[2], text[: match.start()].count("\n") + 1, output))
    return result


def smaller(code: str) -> str:
    for old, new in SMALLER.items():
        code = code.replace(old, new)
    return code


def run_python(page: Path, block: Block, code: str, names: dict[str, Any]) -> Any:
    """Run a block as if it stood at its line of the page; the value of its last expression, if it ends with one."""
    tree = ast.parse("\n" * block.line + code, page.name)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, page.name, "exec"), names)
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), page.name, "eval"), names)


def run_console(code: str, directory: Path) -> None:
    """Run the commands of a block; targets of make must exist, as running them would set up an environment."""
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for line in code.splitlines():
        if not line.startswith("$ "):
            continue
        program, *arguments = shlex.split(line[2:])
        if program == "make":
            assert arguments[0] in targets, line
            continue
        assert program == "arf-dask", line
        command = [sys.executable, "-m", "arf_dask", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stderr}"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files that pages name."""
    orders = retail_orders(300).select("order_id", "sku", "quantity", "discount", "guest")
    for directory in ("orders", "data"):
        (tmp_path / directory).mkdir()
        orders.write_parquet(tmp_path / directory / "part-0.parquet")
    orders.write_parquet(tmp_path / "orders.parquet")
    orders.write_csv(tmp_path / "orders.csv")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def scheduler() -> Iterator[str]:
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as cluster:
        yield cluster.scheduler_address


@pytest.mark.filterwarnings("ignore::arf_dask.KeyColumnWarning")
def test_blocks_of_readme_run_and_print_what_is_shown(workspace: Path, scheduler: str) -> None:
    page = ROOT / "README.md"
    names: dict[str, Any] = {}
    try:
        for block in blocks(page):
            if block.language == "python":
                code = block.code if block.output is not None else smaller(block.code)
                check_output(page, block, run_python(page, block, code.replace(SCHEDULER, scheduler), names))
            elif block.language == "console":
                run_console(smaller(block.code), workspace)
    finally:
        if "client" in names:
            names["client"].close()


def check_output(page: Path, block: Block, value: Any) -> None:
    if block.output is None:
        return
    if os.environ.get("UPDATE_DOCS"):
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace(block.output, f"{value}\n"), encoding="utf-8")
        return
    assert str(value) == block.output.rstrip("\n"), "run UPDATE_DOCS=1 pytest tests/docs"


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.name)
def test_blocks_of_other_pages_run(page: Path, workspace: Path) -> None:
    names: dict[str, Any] = {}
    for block in blocks(page):
        if block.language == "python":
            check_output(page, block, run_python(page, block, smaller(block.code), names))
        elif block.language == "console":
            run_console(smaller(block.code), workspace)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_is_run_or_plain_text(page: Path) -> None:
    assert {block.language for block in blocks(page)} <= {"python", "console", "text"}


def people(n: int) -> pl.DataFrame:
    """A table with the columns that the examples of README.md name."""
    number = pl.int_range(n, eager=True)
    return pl.DataFrame(
        {
            "order_id": [f"ORD-{i:04}" for i in range(n)],
            "age": 20 + number % 61,
            "state": (number % 3).replace_strict({0: "CA", 1: "NY", 2: "TX"}, return_dtype=pl.String),
            "bonus": pl.select(pl.when(number % 4 == 0).then(number % 7)).to_series(),
            "income": 1_000.0 + 37.5 * (number % 61) + number % 5,
            "city": (number % 6).cast(pl.String),
            "zip": 10_000 + number % 6,
        }
    )


@pytest.mark.filterwarnings("ignore::arf_dask.KeyColumnWarning")
def test_every_answer_in_the_table_of_readme_runs(workspace: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.split("## I want to ...")[1].split("###")[0]
    answers = [line.strip("|").split(" | ")[1] for line in section.splitlines() if line.startswith("| ")][1:]
    spans = [span for answer in answers for span in SPAN.findall(answer)]
    assert len(spans) > 30
    data = people(400)
    data.drop("order_id").write_csv(workspace / "orders.csv")
    names: dict[str, Any] = {"arf_dask": arf_dask, "df": data, "known": data.select("state").head(2)}
    names["customers"] = data.select("state", id=pl.int_range(pl.len()))
    names["orders"] = data.select("age", "income", customer_id=pl.int_range(pl.len()) // 2)
    for span in spans:
        if span.startswith("arf-dask "):
            run_console(f"$ {span}", workspace)
        else:
            code = smaller(span).replace("trees=100", "trees=5").replace("min_leaf=50", "min_leaf=20")
            exec(code, names)
