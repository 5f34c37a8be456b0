"""The commands `arf-dask fit`, `sample`, `synthesize`, `report`, `inspect` and `check`, and those that ask a model."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import polars as pl

from arf_dask.api import fit
from arf_dask.cli.description import check_lines, describe_column, describe_model, inspection_lines, manifest_lines
from arf_dask.cli.inputs import check_forms, given_of, load_model, read_rows, read_tables, reading_of
from arf_dask.cli.options import (
    CODES,
    DRAWING,
    GATE,
    GIVEN_HELP,
    LEARNING,
    PRIVACY,
    READING,
    REFINE,
    RELEASING,
    SAYING,
    SHARED,
    SOURCES,
    STORES,
)
from arf_dask.cli.outcome import FAILED, Commands, print_json, reported
from arf_dask.cli.private import PrivateOptions, domain_template, read_private
from arf_dask.cli.questions import (
    expect_command,
    impute_command,
    probability_command,
    quantile_command,
    score_command,
)
from arf_dask.cli.release_words import check_page, read_holdout, read_limits, read_policy
from arf_dask.cli.tables import fit_tables_command, sample_tables_command, synthesize_tables_command
from arf_dask.cli.values import (
    RowCount,
    check_any_url,
    read_options,
    readable_sources,
    storage_options,
    storage_options_of,
)
from arf_dask.data.files import is_read_by_polars, read_dtypes
from arf_dask.data.holdout import Split, split_holdout
from arf_dask.errors import OptionError
from arf_dask.model import Model
from arf_dask.options import ROWS_PER_FILE, SHADOWS
from arf_dask.reports import JUDGED_ROWS, report
from arf_dask.runtime.cluster import use_scheduler
from arf_dask.runtime.disk import library_versions
from arf_dask.runtime.seeds import entropy
from arf_dask.single_files import check_output, is_file, write_file, write_rows
from arf_dask.storage.manifest import SUCCESS, Manifest
from arf_dask.storage.remote_model import check_model_target

FIT_OPTIONS = (
    "trees",
    "min_leaf",
    "max_rounds",
    "tolerance",
    "max_features",
    "rows_per_tree",
    "family",
    "support",
    "dependence",
)


ABOUT = """Synthetic tables from adversarial random forests.

\b
arf-dask synthesize orders.csv --to synthetic.csv        draw a synthetic version of a table
arf-dask fit orders.parquet --model orders.model         fit a model once ...
arf-dask sample orders.model --to out/ -n 1000000        ... and draw rows often
arf-dask check orders.model new.csv                      count rows that violate its rules
arf-dask impute orders.model new.csv --to full.csv       fill in missing cells
arf-dask score orders.model new.csv --to scored.csv      log-density of rows: low for anomalies
arf-dask probability orders.model --event "total=..50"   ask; also: expect, quantile
arf-dask synthesize-tables shop/ --to synthetic/         several tables that refer to each other
arf-dask inspect orders.model                            describe a model
arf-dask inspect out/                                    describe a data set
arf-dask report orders.csv synthetic.csv -o report.html  measure fidelity and privacy

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
    "--model", "path", required=True, metavar="M", help="Directory to write to; an existing model is replaced."
)
@READING
@LEARNING
@STORES
@RELEASING
@PRIVACY
@click.option("--holdout-to", metavar="FILE", help="File for the rows that --holdout excludes, for `arf-dask report`.")
@SHARED
def fit_command(sources: tuple[str, ...], path: str, **options: Any) -> None:
    """Learn the joint distribution of a table.

    IN is a CSV or Parquet file, a directory of them, a pattern such as 'data/*.parquet', a URL, or - for stdin.
    """
    check_any_url(options, path, *sources)
    if options["holdout_to"] is not None:
        if options["holdout"] is None:
            raise click.UsageError("--holdout-to: no rows are held out. Give --holdout SHARE too.")
        check_output(options["holdout_to"], "overwrite", ROWS_PER_FILE)
    check_model_target(path, storage_options_of(path, options))
    private = read_private(options)
    with reported(options) as result, readable_sources(sources) as found:
        model = _fit(_open(found, options), options, private)
        model.save(path, storage_options=storage_options_of(path, options))
        result.update({"model": path, **describe_model(model)})
        result["summary"] = f"{model!r}\nwritten to {path}"
        if model.holdout is not None:
            _keep_holdout(model.holdout, options["holdout_to"], result)


@cli.command("sample", epilog=f"{GIVEN_HELP}\n\n{CODES}")
@click.argument("path", metavar="M")
@click.option("-n", "--rows", "n", type=RowCount(), required=True, help="Rows to draw: 1000000, 1e6, 1M.")
@DRAWING
@STORES
@SHARED
def sample_command(path: str, n: int, **options: Any) -> None:
    """Draw rows from the model in the directory M.

    The same model, seed and options give the same bytes. --mode resume continues a run that was stopped or killed.
    """
    _check_output(options, path)
    with reported(options) as result:
        model = load_model(path, storage_options=storage_options_of(path, options))
        _draw(model, n, given_of(options, model.schema.dtypes), options["seed"], options, result)


@cli.command("synthesize", epilog=f"{GIVEN_HELP}\n\n{CODES}")
@SOURCES
@click.option("-n", "--rows", "n", type=RowCount(), help="Rows to draw: 1e6, 1M. Default: as many as IN has.")
@DRAWING
@READING
@LEARNING
@STORES
@RELEASING
@GATE
@SHARED
def synthesize_command(sources: tuple[str, ...], n: int | None, **options: Any) -> None:
    """Fit a model to a table and draw a synthetic version of the table.

    IN is a CSV or Parquet file, a directory of them, a pattern such as 'data/*.parquet', a URL, or - for stdin.
    To resume, give the same IN and --seed.
    """
    _check_output(options, *sources)
    if options["mode"] == "resume" and options["seed"] is None:
        raise click.UsageError("--mode resume needs the --seed of the run that is resumed.")
    with reported(options) as result, readable_sources(sources) as found:
        if is_read_by_polars(found[0]):  # report misspelt columns before a long fit
            given_of(options, read_dtypes(found[0], reading_of(options)))
        limits = read_limits(options)
        if options["page"] is not None:
            check_page(options["page"])
        if options["target"] is not None and options["page"] is None:
            raise click.UsageError("--target is a column to predict in the report: give --report FILE too.")
        if limits is not None and is_file(options["to"]):
            raise click.UsageError("--max-attack-auc and --max-c2st need a directory in --to.")
        data = _open(found, options)
        model = _fit(data, options)
        rows = _n_rows(model, data) if n is None else n
        given = given_of(options, model.schema.dtypes)
        gate = {} if limits is None else {"publish_if": limits, "real": data.train}
        _draw(model, rows, given, model.options["seed"], options, result, gate)
        if options["page"] is not None and limits is None:
            drawing = {"given": given, "on_impossible": options["on_impossible"], "seed": model.options["seed"]}
            drawn = model.sample(rows, frame="lazy", **drawing).head(JUDGED_ROWS).collect()
            _report(model, data, drawn, options, result)


@cli.command("domain", epilog=CODES)
@click.argument("path", metavar="IN")
@click.option("--template", is_flag=True, required=True, expose_value=False, help="Write a template to stdout.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show where an error comes from.")
def domain_command(path: str) -> None:
    """Print a file to fill in for `fit --epsilon --domain`, from the names and types of the columns of IN alone.

    Declare bounds and levels that are possible, not those that occur. "key": true or "ORD-####" marks an identifier;
    a column that is left as it is has no declaration.
    """
    click.echo(domain_template(read_dtypes(path)))


@cli.command("report", epilog=CODES)
@click.argument("real", metavar="REAL")
@click.argument("synthetic", metavar="SYNTH")
@click.option("--holdout", metavar="H", help="Real rows that the generator never saw. Attacks need them.")
@click.option("--target", metavar="T", help="A column to predict, to compare training on synthetic and on real rows.")
@click.option("--model", "path", metavar="M", help="The directory of the model that the rows were drawn from.")
@click.option("--shadows", type=int, default=SHADOWS, show_default=True, help="Shadow models of the LiRA attack.")
@click.option("-o", "--output", default="report.html", show_default=True, help="A file that ends in .html or .json.")
@READING
@SHARED
def report_command(real: str, synthetic: str, path: str | None, output: str, **options: Any) -> None:
    """Evaluate a synthetic table: how close it is to the real one, and what attackers can learn from it.

    REAL, SYNTH and H are CSV or Parquet files, directories of them, or patterns.
    """
    check_page(output)
    if options["target"] is not None and options["holdout"] is None:
        raise click.UsageError("--target: predictions are tested on rows that no model saw. Give --holdout H too.")
    with reported(options) as result, use_scheduler(options["scheduler"]):
        held_out = options["holdout"]
        made = report(
            read_tables([real], options),
            read_tables([synthetic], options),
            holdout=None if held_out is None else read_tables([held_out], options),
            target=options["target"],
            model=None if path is None else load_model(path),
            seed=options["seed"],
            shadows=options["shadows"],
            progress=_progress(options),
        )
        made.save(output)
        result.update({"report": output, **made.to_dict()})
        result["summary"] = f"{made!r}\nwritten to {output}"


@cli.command("inspect", epilog=CODES)
@click.argument("path", metavar="PATH")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, also for errors.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show where an error comes from.")
def inspect_command(path: str, as_json: bool) -> None:
    """Describe the model or the data set in the directory PATH.

    Of a model: columns, levels, ranges, rounds, leaves, size. Of a data set: rows, seed, model, columns and files.
    """
    if (Path(path) / SUCCESS).exists():
        manifest = Manifest.read(path)
        click.echo(manifest.to_json().rstrip() if as_json else "\n".join(manifest_lines(manifest)))
        return
    model = load_model(path)
    size = sum(file.stat().st_size for file in Path(path).iterdir())
    if as_json:
        columns = [describe_column(column) for column in model.schema.columns]
        print_json(
            {"model": path, "bytes": size, **describe_model(model), "options": dict(model.options), "columns": columns}
        )
        return
    click.echo("\n".join(inspection_lines(model, path, size)))


@cli.command(
    "check", epilog="Exit codes: 0 no rule is broken, 1 some rule is broken or the command failed, 2 wrong usage."
)
@click.argument("path", metavar="M")
@SOURCES
@READING
@SAYING
def check_command(path: str, sources: tuple[str, ...], **options: Any) -> int:
    """Count the rows of IN that break each rule of the model in the directory M.

    Rules that hold in a share of the training rows only, and combinations of columns that no training row has, are
    counted, but do not make the command fail, unless they were declared.
    """
    model = load_model(path)
    data = read_rows(model, sources, options)
    found = model.check(data)
    exact = found.filter(((pl.col("share") >= 1.0) & (pl.col("kind") != "together")) | ~pl.col("found"))
    broken = int(exact["broken"].fill_null(0).sum())
    if options["as_json"]:
        print_json({"model": path, "rows": data.height, "broken": broken, "rules": found.to_dicts()})
    elif not options["quiet"]:
        click.echo("\n".join(check_lines(found, data.height)))
    return FAILED if broken else 0


for question in (probability_command, expect_command, quantile_command, score_command, impute_command):
    cli.add_command(question)
for command in (fit_tables_command, sample_tables_command, synthesize_tables_command):
    cli.add_command(command)


# Helpers of the commands.


def _open(sources: Sequence[str], options: dict[str, Any]) -> Split:
    """Open the sources and split off the hold-out rows."""
    options["seed"] = entropy(options["seed"])
    return split_holdout(list(sources), read_holdout(options), options["seed"], options["subject"], reading_of(options))


def _n_rows(model: Model, data: Split) -> int:
    """Count the input rows, including those dropped by a release policy."""
    released = model.release_report
    learned = model.schema.n_rows if released is None else int(released["rows"])
    return learned + (0 if data.holdout is None else data.holdout.height)


def _fit(data: Split, options: dict[str, Any], private: PrivateOptions | None = None) -> Model:
    fit_options: dict[str, Any] = {name: options[name] for name in FIT_OPTIONS}
    columns = dict(_kind(text) for text in options["columns"])
    bundles: Any = [names.split(",") for names in options["bundles"]]
    if options["no_bundles"] and bundles:
        raise click.UsageError("--bundle and --no-bundles: choose one.")
    if not bundles:
        bundles = False if options["no_bundles"] else "auto"
    with use_scheduler(options["scheduler"]):
        return fit(
            data.train,
            release=read_policy(options),
            holdout=data.holdout,
            **fit_options,
            refine=REFINE[options["refine"]],
            columns=columns,
            keys=[*options["keys"], *(() if private is None else private.keys)],
            renew=list(options["renew"]),
            bundles=bundles,
            rules=list(options["rules"]),
            find_rules=options["find_rules"],
            strict_rules=options["strict_rules"],
            allow_copies=options["allow_copies"],
            seed=options["seed"] if private is None else None,
            privacy=None if private is None else private.privacy,
            privacy_ledger=None if private is None else private.ledger,
            progress=_progress(options),
            storage_options=storage_options(options),
            read_options=read_options(options),
        )


def _draw(
    model: Model,
    n: int,
    given: Any,
    seed: Any,
    options: dict[str, Any],
    result: dict[str, Any],
    gate: Mapping[str, Any] | None = None,
) -> None:
    """Draw rows and write them to the target."""
    target = options["to"]
    drawing = {"given": given, "on_impossible": options["on_impossible"], "seed": seed, "progress": _progress(options)}
    drawing.update({"portable": options["portable"], "first_key": options["first_key"]})
    with use_scheduler(options["scheduler"]):
        if is_file(target):
            made = write_file(model, target, n, drawing, sys.stdout.buffer)
            result["summary"] = f"{made.rows:,} synthetic rows written to {target}, seed {made.seed}"
        else:
            drawing["storage_options"] = storage_options_of(target, options)
            made = model.sample_parquet(
                target, n, mode=options["mode"], rows_per_file=options["rows_per_file"], **drawing, **(gate or {})
            )
            result["parts"] = [part._asdict() for part in made.parts]
            result["summary"] = repr(made)
    fields = {"to": target, "rows": made.rows, "bytes": made.bytes, "seed": made.seed, "model_hash": made.model_hash}
    result.update({**fields, "given": made.given})


def _keep_holdout(rows: pl.DataFrame, path: str | None, result: dict[str, Any]) -> None:
    """Write held-out rows to a file, or say that they are not kept."""
    result["held_out"] = {"rows": rows.height, "path": path}
    if path is None:
        where = "a model holds no real rows. Give --holdout-to FILE to keep them for `arf-dask report --holdout FILE`"
        result["summary"] += f"\n{rows.height:,} rows were held out and are not kept: {where}."
        return
    write_rows(rows, path, sys.stdout.buffer)
    result["summary"] += f"\n{rows.height:,} rows were held out, and written to {path}"


def _report(model: Model, data: Split, drawn: pl.DataFrame, options: dict[str, Any], result: dict[str, Any]) -> None:
    """Report on drawn rows beside training and held-out rows."""
    made = report(
        data.train,
        drawn,
        holdout=data.holdout,
        model=model,
        target=options["target"],
        seed=options["seed"],
        progress=_progress(options),
    )
    made.save(options["page"])
    result["report"] = options["page"]
    n_held_out = 0 if data.holdout is None else data.holdout.height
    result["summary"] += f"\n{made!r}\n{n_held_out:,} rows were held out for it; written to {options['page']}"


def _check_output(options: dict[str, Any], *inputs: str) -> None:
    """Validate the options and the target before any long work."""
    target, mode = options["to"], options["mode"]
    check_forms(options)
    if target == "-" and options["as_json"]:
        raise click.UsageError("--to - and --json both want stdout.")
    if is_file(target) and mode == "resume":
        raise click.UsageError("--mode resume needs a directory in --to: one file is written whole or not at all.")
    check_any_url(options, target, *inputs)
    check_output(target, mode, options["rows_per_file"], storage_options_of(target, options))


def _kind(text: str) -> tuple[str, str]:
    name, sign, kind = text.rpartition("=")
    if not sign:
        raise OptionError(f"--column {text}: write NAME=KIND, with categorical, numeric or key.")
    return name, kind


def _progress(options: dict[str, Any]) -> bool | None:
    shown: bool | None = options["progress"]
    return False if options["quiet"] else shown
