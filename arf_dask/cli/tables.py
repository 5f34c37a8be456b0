"""The commands for several tables: `arf-dask fit-tables`, `sample-tables` and `synthesize-tables`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import click

from arf_dask.api import load
from arf_dask.cli.options import CODES, DEFAULTS, READING, REFINE, SHARED, option_group
from arf_dask.cli.outcome import reported
from arf_dask.cli.values import RowCount, read_options
from arf_dask.data.files import CSV_ENDINGS
from arf_dask.errors import DataError, OptionError
from arf_dask.options import ROWS_PER_FILE
from arf_dask.runtime.cluster import use_scheduler
from arf_dask.table_models import TablesModel
from arf_dask.tables import fit_tables
from arf_dask.typing import WriteMode

SOURCE = click.argument("source", metavar="DIR", type=click.Path(exists=True, file_okay=False))
TO = click.option("--to", required=True, metavar="OUT", help="A directory: one data set per table is written into it.")
ROWS = click.option(
    "-n",
    "--rows",
    "n",
    type=RowCount(),
    help="Rows of the first table with children: 1e6. Default: as many as real.",
)
STRUCTURE = option_group(
    click.option("--key", "keys", multiple=True, metavar="TABLE=COLUMN", help="The key of a table. Repeatable."),
    click.option(
        "--reference",
        "references",
        multiple=True,
        metavar="TABLE.COLUMN=TABLE",
        help="A column that holds keys of another table. Repeatable. Default: they are found.",
    ),
    click.option(
        "--order",
        "orders",
        multiple=True,
        metavar="TABLE=COLUMN",
        help="The time by which rows of one parent are ordered. Repeatable. Default: the only date of a table.",
    ),
    click.option("--fixed", multiple=True, metavar="TABLE", help="A table that stays as it is. Repeatable."),
    click.option("--rule", "rules", multiple=True, metavar="TABLE:RULE", help="A rule of a table. Repeatable."),
    click.option("--find-rules/--no-find-rules", default=True, help="Whether to detect rules. Default: yes."),
    click.option("--trees", type=int, default=DEFAULTS.trees, show_default=True, help="Trees of parentless tables."),
    click.option("--min-leaf", type=int, help="Minimum rows, or for children rows without a parent, per leaf."),
    click.option("--refine", type=click.Choice(list(REFINE)), default="auto", show_default=True, help="As in fit."),
)
DRAWING = option_group(
    TO,
    ROWS,
    click.option(
        "--mode",
        type=click.Choice(get_args(WriteMode)),
        default="error",
        show_default=True,
        help="If OUT exists: raise an error, replace the data sets, or complete the same job.",
    ),
    click.option("--rows-per-file", type=RowCount(), default=ROWS_PER_FILE, show_default=True),
    click.option("--portable", is_flag=True, help="Write types that Spark, Delta and Iceberg can read."),
)


@click.command("fit-tables", epilog=CODES)
@SOURCE
@click.option("--model", "path", required=True, metavar="M", help="Directory to write to; a model there is replaced.")
@STRUCTURE
@READING
@SHARED
def fit_tables_command(source: str, path: str, **options: Any) -> None:
    """Learn several tables that refer to each other.

    DIR holds one CSV or Parquet file per table, or a directory of them, named like the table.
    """
    with reported(options) as result, use_scheduler(options["scheduler"]):
        model = _fit(source, options)
        model.save(path)
        result.update({"model": path, "tables": model.tables, "references": model.references, "keys": model.keys})
        result["summary"] = f"{model!r}\nwritten to {path}"


@click.command("sample-tables", epilog=CODES)
@click.argument("path", metavar="M")
@DRAWING
@SHARED
def sample_tables_command(path: str, **options: Any) -> None:
    """Draw tables from the model in the directory M, which `fit-tables` wrote."""
    with reported(options) as result, use_scheduler(options["scheduler"]):
        model = load(path)
        if not isinstance(model, TablesModel):
            raise OptionError(f"{path} holds the model of one table. Draw from it with arf-dask sample.")
        _draw(model, options["seed"], options, result)


@click.command("synthesize-tables", epilog=CODES)
@SOURCE
@STRUCTURE
@DRAWING
@READING
@SHARED
def synthesize_tables_command(source: str, **options: Any) -> None:
    """Learn several tables that refer to each other, and draw synthetic versions of all of them.

    DIR holds one CSV or Parquet file per table, or a directory of them, named like the table. To resume, give the same
    DIR and --seed.
    """
    if options["mode"] == "resume" and options["seed"] is None:
        raise click.UsageError("--mode resume needs the --seed of the run that is resumed.")
    with reported(options) as result, use_scheduler(options["scheduler"]):
        _draw(_fit(source, options), options["seed"], options, result)


def find_tables(source: str) -> dict[str, str]:
    """Return the path of every table in a directory, by name."""
    found: dict[str, str] = {}
    for entry in sorted(Path(source).iterdir()):
        ending = next((one for one in (".parquet", *CSV_ENDINGS) if entry.name.endswith(one)), None)
        if entry.name.startswith((".", "_")) or (ending is None and not entry.is_dir()):
            continue
        name = entry.name if entry.is_dir() or ending is None else entry.name.removesuffix(ending)
        if name in found:
            raise DataError(f"{source}: {name!r} is there twice: {found[name]} and {entry}. Move one of them away.")
        found[name] = str(entry)
    if not found:
        raise DataError(f"{source}: no CSV or Parquet file is there. Give a directory with one file per table.")
    return found


def _fit(source: str, options: dict[str, Any]) -> TablesModel:
    rules: dict[str, list[str]] = {}
    for text in options["rules"]:
        table, rule = _pair(text, ":", "--rule")
        rules.setdefault(table, []).append(rule.strip())
    pairs = {name: dict(_pair(text, "=", f"--{name[:-1]}") for text in options[name]) for name in _PAIRS}
    return fit_tables(
        find_tables(source),
        keys=pairs["keys"] or None,
        references=pairs["references"] or None,
        order=pairs["orders"] or None,
        rules=rules or None,
        fixed=list(options["fixed"]),
        trees=options["trees"],
        min_leaf=options["min_leaf"],
        refine=REFINE[options["refine"]],
        find_rules=options["find_rules"],
        seed=options["seed"],
        progress=_progress(options),
        read_options=read_options(options),
    )


_PAIRS = ("keys", "references", "orders")


def _pair(text: str, sign: str, option: str) -> tuple[str, str]:
    left, found, right = text.partition(sign)
    if not (left and found and right):
        raise click.UsageError(f"{option} {text!r}: write NAME{sign}VALUE.")
    return left, right


def _progress(options: dict[str, Any]) -> bool | None:
    progress: bool | None = options["progress"]
    return False if options["quiet"] or options["as_json"] else progress


def _draw(model: TablesModel, seed: int | None, options: dict[str, Any], result: dict[str, Any]) -> None:
    """Write the tables, and describe them."""
    manifests = model.sample_parquet(
        options["to"],
        options["n"],
        seed=seed,
        rows_per_file=options["rows_per_file"],
        mode=options["mode"],
        portable=options["portable"],
        progress=_progress(options),
    )
    result["tables"] = {name: {"rows": one.rows, "path": one.path} for name, one in manifests.items()}
    lines = [f"{one.rows:,} rows of {name} in {one.path}" for name, one in manifests.items()]
    result["summary"] = "\n".join(lines)
