"""Options shared by several commands, and their help texts."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, get_args

import click

from arf_dask.cli.values import RowCount
from arf_dask.options import (
    DEPENDENCES,
    FAMILIES,
    LEAF_ROWS,
    REFINED_LEAF_ROWS,
    ROWS_PER_FILE,
    SUPPORTS,
    Options,
)
from arf_dask.typing import OnImpossible, Refine, WriteMode

GIVEN_HELP = """\b
Conditions, for every row that comes out:
  --given age=30             exactly this value
  --given age=30..40         from 30 to 40, both included; 30.. and ..40 leave an end open
  --given state=CA --given state=NY
                             either of these
  --given bonus=             missing
  --given born=1990-01-31    dates and times as in ISO 8601; durations as 90s, 1h30m or PT90S
Everything after the first "=" is the value. --given-json accepts any condition, such as
'[{"age": {"low": 30, "high": 40}}, {"state": ["CA", "NY"], "bonus": null}]': any of these."""
CODES = "Exit codes: 0 success, 1 failure (with one line on stderr), 2 wrong usage, 130 interrupted (Ctrl-C)."

DEFAULTS = Options()
REFINE: dict[str, Refine] = {"auto": "auto", "yes": True, "no": False}  # words of --refine

Decorator = Callable[[Any], Any]


def option_group(*decorators: Decorator) -> Decorator:
    """Return several options as one decorator."""
    return lambda command: reduce(lambda inner, option: option(inner), reversed(decorators), command)


SEED = click.option(
    "--seed", type=click.IntRange(min=0), help="The random seed, for repeatable results. Default: a fresh one."
)
SAYING = option_group(
    click.option("--quiet", is_flag=True, help="No progress, no summary, no warnings."),
    click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, also for errors."),
    click.option("--debug", is_flag=True, help="Show where an error comes from."),
)
SHARED = option_group(
    SEED,
    click.option("--scheduler", metavar="ADDRESS", help="A Dask scheduler, such as tcp://host:8786. Default: threads."),
    click.option("--progress/--no-progress", default=None, help="Show progress on stderr. Default: in a terminal."),
    SAYING,
)
STORES = click.option(
    "--storage-option",
    "storage_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Storage option for URLs, as named by fsspec or Polars. Repeatable. Prefer the environment for credentials.",
)
READING = option_group(
    click.option(
        "--separator", metavar="CHAR", help="Separator of CSV, such as ';' or tab. Default: a comma; a tab in .tsv."
    ),
    click.option("--null-values", multiple=True, metavar="TEXT", help="A text that means missing in CSV. Repeatable."),
    click.option("--decimal", type=click.Choice([".", ","]), help="Decimal sign of CSV. Default: a point."),
    click.option("--encoding", help="Encoding of CSV, such as cp1252. Default: UTF-8."),
)
LEARNING = option_group(
    click.option("--trees", type=int, default=DEFAULTS.trees, show_default=True, help="Number of trees."),
    click.option(
        "--min-leaf",
        type=int,
        default=DEFAULTS.min_leaf,
        help=f"Minimum number of rows per leaf. Default: {REFINED_LEAF_ROWS} if refined, otherwise {LEAF_ROWS}.",
    ),
    click.option(
        "--max-rounds",
        type=int,
        default=DEFAULTS.max_rounds,
        show_default=True,
        help="Maximum number of adversarial rounds.",
    ),
    click.option(
        "--tolerance",
        type=float,
        default=DEFAULTS.tolerance,
        show_default=True,
        help="Stop at an accuracy of 1/2 + this.",
    ),
    click.option(
        "--max-features", type=int, help="Variables tried at a split. Default: the square root of their number."
    ),
    click.option("--rows-per-tree", type=int, help="Rows per tree. Default: a bootstrap of all rows."),
    click.option("--family", type=click.Choice(FAMILIES), default=DEFAULTS.family, show_default=True),
    click.option(
        "--support",
        type=click.Choice(SUPPORTS),
        default=DEFAULTS.support,
        show_default=True,
        help="Whether floats may leave the observed range.",
    ),
    click.option(
        "--dependence",
        type=click.Choice(DEPENDENCES),
        default=DEFAULTS.dependence,
        show_default=True,
        help="Dependence between columns inside leaves.",
    ),
    click.option(
        "--refine",
        type=click.Choice(list(REFINE)),
        default="auto",
        show_default=True,
        help="Accept drawn rows by a boosted ratio of real to model density: where it gains surely, wherever it gains, "
        "or never.",
    ),
    click.option(
        "--key",
        "keys",
        multiple=True,
        metavar="NAME",
        help="An identifier column: new values are generated. Repeatable.",
    ),
    click.option(
        "--renew",
        "renew",
        multiple=True,
        metavar="NAME",
        help="A name or number of an entity, such as a merchant: a fresh value for each, the same in all its rows. "
        "Repeatable.",
    ),
    click.option(
        "--column",
        "columns",
        multiple=True,
        metavar="NAME=KIND",
        help="Kind of a column: categorical, numeric or key. Repeatable.",
    ),
    click.option("--bundle", "bundles", multiple=True, metavar="A,B", help="Columns to model as one. Repeatable."),
    click.option("--no-bundles", is_flag=True, help="Model no columns as one. Default: they are detected."),
    click.option(
        "--rule",
        "rules",
        multiple=True,
        metavar="RULE",
        help='A rule between columns: "total == price * count", "start <= end", "home != away". Repeatable.',
    ),
    click.option(
        "--find-rules/--no-find-rules", default=True, help="Whether to detect rules in the data. Default: yes."
    ),
    click.option("--strict-rules", is_flag=True, help="Fail if rows of IN violate a --rule. Default: a warning."),
    click.option("--allow-copies", is_flag=True, help="Accept fewer than 5 rows, which the result then reproduces."),
)
RELEASING = option_group(
    click.option("--release", is_flag=True, help="Fit under a release policy: no rare values, no copies."),
    click.option("--subject", metavar="NAME", help="The column that identifies a person. Implies --release."),
    click.option(
        "--max-rows-per-subject", type=int, metavar="N", help="Maximum number of rows per person used for training."
    ),
    click.option(
        "--min-level", type=int, metavar="N", help="Minimum number of people per level in a release. Default: 10."
    ),
    click.option("--clip-extremes", type=int, metavar="N", help="Clip to the N-th smallest and largest. Default: 10."),
    click.option(
        "--suppress", multiple=True, metavar="NAME", help="Make rare levels missing instead of '(other)'. Repeatable."
    ),
    click.option(
        "--holdout", metavar="SHARE|PATH", help="Rows excluded from training: a share such as 0.1, or a file."
    ),
)
PRIVACY = option_group(
    click.option("--epsilon", type=float, metavar="E", help="Fit with differential privacy of this epsilon."),
    click.option("--delta", type=float, metavar="D", help="The delta of the guarantee. Default: 1e-9."),
    click.option(
        "--unit", metavar="NAME", help="The column that identifies whom the guarantee protects. Default: rows."
    ),
    click.option("--max-rows-per-unit", type=int, metavar="N", help="Maximum number of rows per unit that are used."),
    click.option("--domain", metavar="FILE", help="Declared bounds and levels; see `arf-dask domain`."),
    click.option("--privacy-ledger", metavar="FILE", help="A file or URL that adds up private fits of this table."),
)
GATE = option_group(
    click.option("--max-attack-auc", type=float, help="Publish only if no membership attack exceeds this AUC."),
    click.option("--max-c2st", type=float, help="Publish only if a detector does not exceed this AUC."),
    click.option(
        "--report",
        "page",
        metavar="FILE",
        help="Report on the rows, attacks included, to a file that ends in .html or .json. Holds out 20 % of the rows "
        "unless --holdout says otherwise.",
    ),
    click.option("--target", metavar="T", help="A column to predict, in the --report."),
)
CONDITIONS = option_group(
    click.option("--given", multiple=True, metavar="COLUMN=VALUE", help="A condition, see below. Repeatable."),
    click.option("--given-json", metavar="JSON", help="A condition as JSON, see below."),
    click.option("--given-file", type=click.Path(), help="Parquet or CSV with one condition per row."),
)
MODE_OF_FILES = click.option(
    "--mode",
    type=click.Choice(["error", "overwrite"]),
    default="error",
    show_default=True,
    help="If OUT exists: raise an error, or replace it.",
)
TO = option_group(
    click.option(
        "--to",
        default="-",
        metavar="OUT",
        help="A file that ends in .csv, .csv.gz, .csv.zst, .parquet, .arrow, .feather, .ndjson or .jsonl. Default: CSV "
        "on stdout.",
    ),
    MODE_OF_FILES,
)
DRAWING = option_group(
    click.option(
        "--to",
        required=True,
        metavar="OUT",
        help="A directory or URL for a data set of Parquet files; or one file, if it ends in .parquet, .csv, .csv.gz, "
        ".csv.zst, .arrow, .feather, .ndjson or .jsonl; or - for CSV on stdout.",
    ),
    CONDITIONS,
    click.option(
        "--on-impossible",
        type=click.Choice(get_args(OnImpossible)),
        default="raise",
        show_default=True,
        help="How to handle a condition of probability zero.",
    ),
    click.option(
        "--mode",
        type=click.Choice(get_args(WriteMode)),
        default="error",
        show_default=True,
        help="If OUT exists: raise an error, replace it, or complete the same job.",
    ),
    click.option("--rows-per-file", type=RowCount(), default=ROWS_PER_FILE, show_default=True),
    click.option(
        "--first-key",
        type=click.IntRange(min=0),
        metavar="N",
        help="Number of identifiers already used by other jobs of this model.",
    ),
    click.option("--portable", is_flag=True, help="Write types that Spark, Delta and Iceberg can read."),
)
SOURCES = click.argument("sources", metavar="IN...", nargs=-1, required=True)
