"""The command line: fit, sample, synthesize and inspect, for people and for scripts."""

from __future__ import annotations

import json
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any, NoReturn

import click
import numpy as np
import polars as pl

from arf_dask.api import fit
from arf_dask.cluster import connected
from arf_dask.delivery import check_output, is_file, write_file
from arf_dask.errors import ArfError, KeyColumnWarning, OptionError
from arf_dask.frames import read, read_dtypes, scan
from arf_dask.inspection import column_facts, inspection, model_facts
from arf_dask.model import Model, load
from arf_dask.storage import check_place, library_versions
from arf_dask.words import Dtypes, read_conditions, read_given, read_given_json

FAILED, INTERRUPTED = 1, 130
GIVEN_HELP = """\b
Conditions, for every row that comes out:
  --given age=30             exactly this value
  --given age=30..40         from 30 to 40, both included; 30.. and ..40 leave an end open
  --given state=CA --given state=NY
                             either of these
  --given bonus=             missing
  --given born=1990-01-31    dates and times as in ISO 8601; durations as 90s, 1h30m or PT90S
Everything after the first "=" is the value. --given-json can say the same and more, such as
'[{"age": {"low": 30, "high": 40}}, {"state": ["CA", "NY"], "bonus": null}]': any of these."""
CODES = "Exit codes: 0 done, 1 failed (one line on stderr says why), 2 wrong usage, 130 interrupted (Ctrl-C)."


class Commands(click.Group):
    """The group of commands, with the exit codes that scripts rely on."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> NoReturn:
        """Run a command and exit."""
        words = list(sys.argv[1:] if args is None else args)
        try:
            code = super().main(words, *rest, **{**options, "standalone_mode": False})
        except click.exceptions.Exit as end:
            code = end.exit_code
        except (click.Abort, KeyboardInterrupt):
            click.echo("interrupted", err=True)
            code = INTERRUPTED
        except click.ClickException as error:
            if "--json" in words:
                _tell_json({"error": error.format_message(), "kind": type(error).__name__})
            else:
                error.show()
            code = error.exit_code
        except BrokenPipeError:
            sys.stdout = None  # nobody reads on; do not try to flush it
            code = FAILED
        except Exception as error:
            code = _failure(error, words)
        sys.exit(code if isinstance(code, int) else 0)


def _failure(error: Exception, words: Sequence[str]) -> int:
    if "--debug" in words:
        traceback.print_exception(error)
    text = " ".join(str(error).split())
    if not isinstance(error, ArfError):
        text = f"{type(error).__name__}: {text} (unexpected; --debug shows where)"
    if "--json" in words:
        _tell_json({"error": text, "kind": type(error).__name__})
    else:
        click.echo(f"error: {text}", err=True)
    return FAILED


# Options that several commands have.

Decorator = Callable[[Any], Any]


def _options(*decorators: Decorator) -> Decorator:
    return lambda command: reduce(lambda inner, option: option(inner), reversed(decorators), command)


SHARED = _options(
    click.option("--seed", type=click.IntRange(min=0), help="Makes the result repeat. Default: a fresh one."),
    click.option("--scheduler", metavar="ADDRESS", help="A Dask scheduler, such as tcp://host:8786. Default: threads."),
    click.option("--progress/--no-progress", default=None, help="Show progress on stderr. Default: in a terminal."),
    click.option("--quiet", is_flag=True, help="No progress, no summary, no warnings."),
    click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, also for errors."),
    click.option("--debug", is_flag=True, help="Show where an error comes from."),
)
LEARNING = _options(
    click.option("--trees", type=int, default=20, show_default=True, help="Number of trees."),
    click.option("--min-leaf", type=int, default=10, show_default=True, help="Rows that every leaf holds at least."),
    click.option("--max-rounds", type=int, default=10, show_default=True, help="Adversarial rounds at most."),
    click.option("--tolerance", type=float, default=0.0, show_default=True, help="Stop at 1/2 + this accuracy."),
    click.option("--max-features", type=int, help="Variables tried at a split. Default: root of their number."),
    click.option("--rows-per-tree", type=int, help="Rows each tree is grown on. Default: a bootstrap of all."),
    click.option("--family", type=click.Choice(["truncnorm", "uniform"]), default="truncnorm", show_default=True),
    click.option(
        "--support",
        type=click.Choice(["observed", "open"]),
        default="observed",
        show_default=True,
        help="Whether floats may leave the range seen.",
    ),
    click.option("--key", "keys", multiple=True, metavar="NAME", help="An identifier: fresh values come out. Repeat."),
    click.option(
        "--column", "columns", multiple=True, metavar="NAME=KIND", help="categorical, numeric or key. Repeat."
    ),
    click.option("--bundle", "bundles", multiple=True, metavar="A,B", help="Columns modelled as one. Repeat."),
    click.option("--no-bundles", is_flag=True, help="Model no columns as one. Default: they are found."),
)
DRAWING = _options(
    click.option(
        "--to",
        required=True,
        metavar="OUT",
        help="A directory or URL for a data set of Parquet files; or one file, if it ends in .parquet or .csv; or - "
        "for CSV on stdout.",
    ),
    click.option("--given", multiple=True, metavar="COLUMN=VALUE", help="A condition, see below. Repeat."),
    click.option("--given-json", metavar="JSON", help="A condition as JSON, see below."),
    click.option(
        "--given-file", type=click.Path(), help="Parquet or CSV, one condition per row; N rows come out for each."
    ),
    click.option(
        "--on-impossible",
        type=click.Choice(["raise", "null", "relax"]),
        default="raise",
        show_default=True,
        help="What to do with a condition of probability zero.",
    ),
    click.option(
        "--mode",
        type=click.Choice(["error", "overwrite", "resume"]),
        default="error",
        show_default=True,
        help="If OUT is there already: refuse, replace it, or complete the same job.",
    ),
    click.option("--rows-per-file", type=click.IntRange(min=1), default=1_000_000, show_default=True),
)
SOURCES = click.argument("sources", metavar="IN...", nargs=-1, required=True)
FIT_OPTIONS = ("trees", "min_leaf", "max_rounds", "tolerance", "max_features", "rows_per_tree", "family", "support")


ABOUT = """Synthetic tables from adversarial random forests.

\b
arf-dask synthesize orders.csv --to twin.csv          a twin of a table
arf-dask fit orders.parquet --model orders.model      learn once ...
arf-dask sample orders.model --to out/ -n 1000000     ... draw often
arf-dask inspect orders.model                         what a model knows

Every command has its own --help.
"""


# The commands.


@click.group(cls=Commands, help=ABOUT, context_settings={"help_option_names": ["-h", "--help"]}, epilog=CODES)
@click.version_option(library_versions(["arf_dask"])["arf_dask"], prog_name="arf-dask")
def cli() -> None:
    """Synthetic tables from adversarial random forests."""


@cli.command("fit", epilog=CODES)
@SOURCES
@click.option(
    "--model", "path", required=True, metavar="M", help="Directory to write; one that holds a model is replaced."
)
@LEARNING
@SHARED
def fit_command(sources: tuple[str, ...], path: str, **asked: Any) -> None:
    """Learn the joint distribution of a table.

    IN is a CSV or Parquet file, a directory of them, or a pattern such as 'data/*.parquet'.
    """
    check_place(Path(path))
    with _told(asked) as told:
        model = _fit(sources, asked)
        model.save(path)
        told.update({"model": path, **model_facts(model)})
        told["summary"] = f"{model!r}\nwritten to {path}"


@cli.command("sample", epilog=f"{GIVEN_HELP}\n\n{CODES}")
@click.argument("path", metavar="M")
@click.option("-n", "--rows", "n", type=click.IntRange(min=0), required=True, help="Rows to draw.")
@DRAWING
@SHARED
def sample_command(path: str, n: int, **asked: Any) -> None:
    """Draw rows from the model in the directory M.

    The same model, seed and options give the same bytes. A run that was stopped or killed goes on with --mode resume.
    """
    _check_output(asked)
    with _told(asked) as told:
        model = load(path)
        _draw(model, n, _given(asked, model.schema.dtypes), asked["seed"], asked, told)


@cli.command("synthesize", epilog=f"{GIVEN_HELP}\n\n{CODES}")
@SOURCES
@click.option("-n", "--rows", "n", type=click.IntRange(min=0), help="Rows to draw. Default: as many as IN has.")
@DRAWING
@LEARNING
@SHARED
def synthesize_command(sources: tuple[str, ...], n: int | None, **asked: Any) -> None:
    """Learn a table and draw a synthetic twin of it.

    IN is a CSV or Parquet file, a directory of them, or a pattern such as 'data/*.parquet'. To resume, give the same
    IN and --seed.
    """
    _check_output(asked)
    if asked["mode"] == "resume" and asked["seed"] is None:
        raise click.UsageError("--mode resume needs the --seed of the run that is resumed.")
    with _told(asked) as told:
        _given(asked, read_dtypes(sources[0]))  # a slip of the pen is told before a long fit
        model = _fit(sources, asked)
        rows = model.schema.n_rows if n is None else n
        _draw(model, rows, _given(asked, model.schema.dtypes), model.options["seed"], asked, told)


@cli.command("inspect", epilog=CODES)
@click.argument("path", metavar="M")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, also for errors.")
@click.option("--debug", is_flag=True, help="Show where an error comes from.")
def inspect_command(path: str, as_json: bool, debug: bool) -> None:
    """Show what the model in the directory M knows: columns, levels, ranges, rounds, leaves, size."""
    model = load(path)
    size = sum(file.stat().st_size for file in Path(path).iterdir())
    if as_json:
        columns = [column_facts(column) for column in model.schema.columns]
        _tell_json(
            {"model": path, "bytes": size, **model_facts(model), "options": dict(model.options), "columns": columns}
        )
        return
    click.echo("\n".join(inspection(model, path, size)))


# Work.


def _fit(sources: Sequence[str], asked: dict[str, Any]) -> Model:
    data = sources[0] if len(sources) == 1 else pl.concat([scan(source) for source in sources])
    options: dict[str, Any] = {name: asked[name] for name in FIT_OPTIONS}
    columns = dict(_kind(text) for text in asked["columns"])
    bundles: Any = [names.split(",") for names in asked["bundles"]]
    if asked["no_bundles"] and bundles:
        raise click.UsageError("--bundle and --no-bundles: choose one.")
    if not bundles:
        bundles = False if asked["no_bundles"] else "auto"
    with connected(asked["scheduler"]):
        return fit(
            data,
            **options,
            columns=columns,
            keys=list(asked["keys"]),
            bundles=bundles,
            seed=asked["seed"],
            progress=_progress(asked),
        )


def _draw(model: Model, n: int, given: Any, seed: Any, asked: dict[str, Any], told: dict[str, Any]) -> None:
    """Write the rows to where they are asked for."""
    target = asked["to"]
    options = {"given": given, "on_impossible": asked["on_impossible"], "seed": seed, "progress": _progress(asked)}
    with connected(asked["scheduler"]):
        if is_file(target):
            made, size = write_file(model, target, n, sys.stdout.buffer, options)
            told["summary"] = f"{made.rows:,} synthetic rows written to {target}, seed {made.seed}"
        else:
            made = model.sample_parquet(target, n, mode=asked["mode"], rows_per_file=asked["rows_per_file"], **options)
            size = made.bytes
            told["parts"] = [part._asdict() for part in made.parts]
            told["summary"] = repr(made)
    facts = {"to": target, "rows": made.rows, "bytes": size, "seed": made.seed, "model_hash": made.model_hash}
    told.update({**facts, "given": made.given})


def _check_output(asked: dict[str, Any]) -> None:
    """Usage first, and a place that cannot be used before anything takes long."""
    target, mode = asked["to"], asked["mode"]
    ways = [name for name in ("given", "given_json", "given_file") if asked[name]]
    if len(ways) > 1:
        raise click.UsageError("--given, --given-json and --given-file: choose one.")
    if target == "-" and asked["as_json"]:
        raise click.UsageError("--to - and --json both want stdout.")
    if is_file(target) and mode == "resume":
        raise click.UsageError("--mode resume needs a directory in --to: one file is written whole or not at all.")
    check_output(target, mode, asked["rows_per_file"])


def _given(asked: dict[str, Any], dtypes: Dtypes) -> Any:
    if asked["given_file"]:
        return read_conditions(read(asked["given_file"]), dtypes)
    if asked["given_json"]:
        return read_given_json(asked["given_json"], dtypes)
    return read_given(asked["given"], dtypes) if asked["given"] else None


def _kind(text: str) -> tuple[str, str]:
    name, sign, kind = text.rpartition("=")
    if not sign:
        raise OptionError(f"--column {text}: write NAME=KIND, with categorical, numeric or key.")
    return name, kind


def _progress(asked: dict[str, Any]) -> bool | None:
    shown: bool | None = asked["progress"]
    return False if asked["quiet"] else shown


# What is told.


@contextmanager
def _told(asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Facts that the body fills in: told at its end as JSON or as a summary, and warnings as lines."""
    told: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", KeyColumnWarning)
        yield told
    messages = [str(warning.message) for warning in caught]
    summary = told.pop("summary", "")
    if asked["as_json"]:
        _tell_json({**told, "warnings": messages})
        return
    if asked["quiet"]:
        return
    for message in messages:
        click.echo(f"warning: {message}", err=True)
    # Rows on stdout stay alone there.
    click.echo(summary, err=asked.get("to") == "-")


def _tell_json(facts: dict[str, Any]) -> None:
    click.echo(json.dumps(facts, default=_plain, allow_nan=False))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)
