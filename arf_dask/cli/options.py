"""Options shared by several commands, and their help texts."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, get_args

import click

from arf_dask.cli.values import RowCount
from arf_dask.options import DEPENDENCES, FAMILIES, ROWS_PER_FILE, SUPPORTS, Options
from arf_dask.typing import OnImpossible, WriteMode

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

DEFAULTS = Options()

Decorator = Callable[[Any], Any]


def _option_group(*decorators: Decorator) -> Decorator:
    return lambda command: reduce(lambda inner, option: option(inner), reversed(decorators), command)


SHARED = _option_group(
    click.option("--seed", type=click.IntRange(min=0), help="Makes the result repeat. Default: a fresh one."),
    click.option("--scheduler", metavar="ADDRESS", help="A Dask scheduler, such as tcp://host:8786. Default: threads."),
    click.option("--progress/--no-progress", default=None, help="Show progress on stderr. Default: in a terminal."),
    click.option("--quiet", is_flag=True, help="No progress, no summary, no warnings."),
    click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, also for errors."),
    click.option("--debug", is_flag=True, help="Show where an error comes from."),
)
STORES = click.option(
    "--storage-option",
    "storage_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="What URLs need, as fsspec or Polars names it. Repeat. Credentials are best left to the environment.",
)
READING = _option_group(
    click.option("--separator", metavar="CHAR", help="Of CSV, such as ';' or tab. Default: a comma; a tab in .tsv."),
    click.option("--null-values", multiple=True, metavar="TEXT", help="What stands for missing in CSV. Repeat."),
    click.option("--decimal", type=click.Choice([".", ","]), help="The decimal sign of CSV. Default: a point."),
    click.option("--encoding", help="Of CSV, such as cp1252. Default: UTF-8."),
)
LEARNING = _option_group(
    click.option("--trees", type=int, default=DEFAULTS.trees, show_default=True, help="Number of trees."),
    click.option(
        "--min-leaf",
        type=int,
        default=DEFAULTS.min_leaf,
        show_default=True,
        help="Rows that every leaf holds at least.",
    ),
    click.option(
        "--max-rounds", type=int, default=DEFAULTS.max_rounds, show_default=True, help="Adversarial rounds at most."
    ),
    click.option(
        "--tolerance", type=float, default=DEFAULTS.tolerance, show_default=True, help="Stop at 1/2 + this accuracy."
    ),
    click.option("--max-features", type=int, help="Variables tried at a split. Default: root of their number."),
    click.option("--rows-per-tree", type=int, help="Rows each tree is grown on. Default: a bootstrap of all."),
    click.option("--family", type=click.Choice(FAMILIES), default=DEFAULTS.family, show_default=True),
    click.option(
        "--support",
        type=click.Choice(SUPPORTS),
        default=DEFAULTS.support,
        show_default=True,
        help="Whether floats may leave the range seen.",
    ),
    click.option(
        "--dependence",
        type=click.Choice(DEPENDENCES),
        default=DEFAULTS.dependence,
        show_default=True,
        help="Whether columns depend on each other inside leaves.",
    ),
    click.option("--key", "keys", multiple=True, metavar="NAME", help="An identifier: fresh values come out. Repeat."),
    click.option(
        "--column", "columns", multiple=True, metavar="NAME=KIND", help="categorical, numeric or key. Repeat."
    ),
    click.option("--bundle", "bundles", multiple=True, metavar="A,B", help="Columns modelled as one. Repeat."),
    click.option("--no-bundles", is_flag=True, help="Model no columns as one. Default: they are found."),
    click.option(
        "--rule",
        "rules",
        multiple=True,
        metavar="RULE",
        help='How columns of a row belong together: "total == price * count", "start <= end", "home != away". Repeat.',
    ),
    click.option("--find-rules/--no-find-rules", default=True, help="Find rules in the data. Default: they are found."),
    click.option("--strict-rules", is_flag=True, help="Fail if rows of IN break a --rule. Default: a warning."),
    click.option("--allow-copies", is_flag=True, help="Learn from very few rows, which then come out as they are."),
)
RELEASING = _option_group(
    click.option("--release", is_flag=True, help="Learn under a release policy: no rare values, no copies."),
    click.option("--subject", metavar="NAME", help="The column that names a person. Asks for a release."),
    click.option("--max-rows-per-subject", type=int, metavar="N", help="Rows of one person that are learned at most."),
    click.option("--min-level", type=int, metavar="N", help="People that a level must have in a release. Default: 10."),
    click.option("--clip-extremes", type=int, metavar="N", help="Clip to the N-th smallest and largest. Default: 10."),
    click.option("--suppress", multiple=True, metavar="NAME", help="Make rare levels missing, not '(other)'. Repeat."),
    click.option("--holdout", metavar="SHARE|PATH", help="Rows kept back from learning: 0.1, or a file of other rows."),
)
GATE = _option_group(
    click.option("--max-attack-auc", type=float, help="Publish only if no membership attack exceeds this AUC."),
    click.option("--max-c2st", type=float, help="Publish only if a detector does not exceed this AUC."),
    click.option("--report", "page", metavar="FILE", help="Where the report goes that publishing depends on."),
)
DRAWING = _option_group(
    click.option(
        "--to",
        required=True,
        metavar="OUT",
        help="A directory or URL for a data set of Parquet files; or one file, if it ends in .parquet, .csv, .csv.gz, "
        ".csv.zst, .arrow, .feather, .ndjson or .jsonl; or - for CSV on stdout.",
    ),
    click.option("--given", multiple=True, metavar="COLUMN=VALUE", help="A condition, see below. Repeat."),
    click.option("--given-json", metavar="JSON", help="A condition as JSON, see below."),
    click.option(
        "--given-file", type=click.Path(), help="Parquet or CSV, one condition per row; N rows come out for each."
    ),
    click.option(
        "--on-impossible",
        type=click.Choice(get_args(OnImpossible)),
        default="raise",
        show_default=True,
        help="What to do with a condition of probability zero.",
    ),
    click.option(
        "--mode",
        type=click.Choice(get_args(WriteMode)),
        default="error",
        show_default=True,
        help="If OUT is there already: refuse, replace it, or complete the same job.",
    ),
    click.option("--rows-per-file", type=RowCount(), default=ROWS_PER_FILE, show_default=True),
    click.option(
        "--first-key",
        type=click.IntRange(min=0),
        metavar="N",
        help="Rows that have identifiers already, of other jobs of this model.",
    ),
    click.option("--portable", is_flag=True, help="Types that Spark, Delta and Iceberg can read."),
)
SOURCES = click.argument("sources", metavar="IN...", nargs=-1, required=True)
