"""The commands that ask a model: `arf-dask probability`, `expect`, `quantile`, `score` and `impute`."""

from __future__ import annotations

import sys
from typing import Any, get_args

import click
import polars as pl

from arf_dask.cli.condition_text import read_given, read_given_json
from arf_dask.cli.inputs import check_forms, given_of, load_model, read_rows
from arf_dask.cli.options import CODES, CONDITIONS, GIVEN_HELP, READING, SAYING, SEED, SOURCES, TO
from arf_dask.cli.outcome import reported
from arf_dask.options import ROWS_PER_FILE
from arf_dask.single_files import STDOUT, check_output, is_file, write_rows
from arf_dask.typing import Missing

MODEL = click.argument("path", metavar="M")
EPILOG = f"{GIVEN_HELP}\n\n{CODES}"


@click.command("probability", epilog=EPILOG)
@MODEL
@click.option("--event", multiple=True, metavar="COLUMN=VALUE", help="The event, written as --given. Repeatable.")
@click.option("--event-json", metavar="JSON", help="The event as JSON, as in --given-json.")
@CONDITIONS
@SAYING
def probability_command(path: str, event: tuple[str, ...], event_json: str | None, **options: Any) -> None:
    """Print the probability of an event under the model in the directory M.

    With --given-file, one line per condition is printed.
    """
    if bool(event) == bool(event_json):
        raise click.UsageError("Give the event as --event COLUMN=VALUE or as --event-json.")
    check_forms(options)
    with reported(options) as result:
        model = load_model(path)
        dtypes = model.schema.dtypes
        wanted = read_given(event, dtypes) if event else read_given_json(str(event_json), dtypes)
        answer = model.probability(wanted, given=given_of(options, dtypes))
        result["probability"] = answer
        result["summary"] = "\n".join(map(str, answer if isinstance(answer, list) else [answer]))


@click.command("expect", epilog=EPILOG)
@MODEL
@click.argument("columns", nargs=-1, metavar="[COLUMN]...")
@click.option("--levels", is_flag=True, help="The probabilities of all levels instead of the most probable one.")
@CONDITIONS
@TO
@SAYING
def expect_command(path: str, columns: tuple[str, ...], levels: bool, **options: Any) -> None:
    """Write the means of numeric columns and the most probable levels of others, as CSV.

    Without COLUMNs, all of them. With --given-file, one row per condition.
    """
    _check(options)
    with reported(options) as result:
        model = load_model(path)
        given = given_of(options, model.schema.dtypes)
        answer = model.expect(list(columns) or None, given=given, level_probabilities=levels)
        _deliver(answer, options, result, "expectations")


@click.command("quantile", epilog=EPILOG)
@MODEL
@click.argument("column")
@click.argument("levels", metavar="Q...", nargs=-1, required=True, type=click.FloatRange(0, 1))
@CONDITIONS
@TO
@SAYING
def quantile_command(path: str, column: str, levels: tuple[float, ...], **options: Any) -> None:
    """Write the quantiles of COLUMN at the probabilities Q, such as 0.05 0.5 0.95, as CSV.

    With --given-file, one row per condition and probability.
    """
    _check(options)
    with reported(options) as result:
        model = load_model(path)
        given = given_of(options, model.schema.dtypes)
        answers = model.quantile(column, list(levels), given=given)
        is_frame = isinstance(given, pl.DataFrame)
        values = [value for row in answers for value in row] if is_frame else answers
        n_conditions = len(answers) if is_frame else 1
        condition = {"condition": [row for row in range(n_conditions) for _ in levels]} if is_frame else {}
        frame = pl.DataFrame({**condition, "q": list(levels) * n_conditions, column: values})
        _deliver(frame, options, result, "quantiles")


@click.command("score", epilog=EPILOG)
@MODEL
@SOURCES
@click.option(
    "--missing",
    type=click.Choice(get_args(Missing)),
    default="value",
    show_default=True,
    help="Whether an empty cell is a value of its own, or integrated out.",
)
@CONDITIONS
@READING
@TO
@SAYING
def score_command(path: str, sources: tuple[str, ...], missing: Missing, **options: Any) -> None:
    """Write the rows of IN with their log-density, in a last column "log_density".

    The lower it is, the less usual is the row. Columns that the model does not have are kept and play no part.
    """
    _check(options)
    with reported(options) as result:
        model = load_model(path)
        rows = read_rows(model, sources, options)
        known = rows.select(pl.nth([i for i, name in enumerate(rows.columns) if name in model.schema]))
        densities = model.log_density(known, given=given_of(options, model.schema.dtypes), missing=missing)
        _deliver(rows.with_columns(densities), options, result, "rows with their log-density")


@click.command("impute", epilog=CODES)
@MODEL
@SOURCES
@click.option(
    "--draws",
    type=click.IntRange(min=1),
    help="Draw this many completions of every row (numbered in a first column, draw). Default: the most likely one.",
)
@click.option("--fill-all", is_flag=True, help="Fill in also cells that can only be missing, given the others.")
@READING
@TO
@SEED
@SAYING
def impute_command(path: str, sources: tuple[str, ...], draws: int | None, fill_all: bool, **options: Any) -> None:
    """Write the rows of IN with the missing cells filled in, given the known cells of each row."""
    _check(options)
    with reported(options) as result:
        model = load_model(path)
        rows = read_rows(model, sources, options)
        if draws is None:
            filled = model.impute(rows, seed=options["seed"], fill_all=fill_all)
        else:
            frames = model.impute(rows, draws=draws, seed=options["seed"], fill_all=fill_all)
            filled = pl.concat(
                [
                    frame.insert_column(0, pl.Series("draw", [number], dtype=pl.UInt32).new_from_index(0, frame.height))
                    for number, frame in enumerate(frames, start=1)
                ]
            )
        result["filled"] = int(sum(rows.null_count().row(0)) * (draws or 1) - sum(filled.null_count().row(0)))
        _deliver(filled, options, result, "completed rows")


def _check(options: dict[str, Any]) -> None:
    """Validate the options and the target before any long work."""
    if "given" in options:
        check_forms(options)
    if not is_file(options["to"]):
        raise click.UsageError(f"--to {options['to']}: give a file, such as out.csv or out.parquet, or - for stdout.")
    check_output(options["to"], options["mode"], ROWS_PER_FILE)


def _deliver(frame: pl.DataFrame, options: dict[str, Any], result: dict[str, Any], what: str) -> None:
    """Write a frame to the target; with --json and no target, make it a part of the result."""
    target = options["to"]
    if target == STDOUT and options["as_json"]:
        floats = pl.selectors.float()  # JSON has no infinities: null is outside the support
        result["rows"] = frame.with_columns(pl.when(floats.is_finite()).then(floats)).to_dicts()
        return
    write_rows(frame, target, sys.stdout.buffer)
    result.update({"to": target, "rows": frame.height})
    result["summary"] = "" if target == STDOUT else f"{frame.height:,} {what} written to {target}"
