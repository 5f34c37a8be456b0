"""A private fit: buy and declare domains, measure, fit a mixture, draw rows from it, and learn a model from those rows.

Everything after the measurements is post-processing: it sees noisy counts only, and cannot weaken the guarantee. The
last stage is an ordinary fit, so that a private model answers every question that a model answers.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from arf_dask.data.axes import FLOATS
from arf_dask.data.parts import Parts, one_part
from arf_dask.errors import PrivacyError
from arf_dask.forest.fitted import Fitted
from arf_dask.options import Options
from arf_dask.privacy.accountant import Accountant, Spending
from arf_dask.privacy.bins import tree_cells, value_cells
from arf_dask.privacy.declaration import PRIVATE, DifferentialPrivacy
from arf_dask.privacy.domain import ColumnDomain, column_domains, level_domain, physical_line
from arf_dask.privacy.key_values import fresh_key_values
from arf_dask.privacy.ledger import enter_fit
from arf_dask.privacy.measuring import OneWay, fit_mixture, measure_columns
from arf_dask.privacy.noise import rho_of
from arf_dask.privacy.statement import NOT_COVERED, PrivacyStatement
from arf_dask.privacy.trusted import MAGNITUDES, TrustedTable
from arf_dask.privacy.units import chosen_rows
from arf_dask.runtime.disk import library_version
from arf_dask.runtime.progress import Progress
from arf_dask.runtime.seeds import Stage, entropy, generator
from arf_dask.runtime.tasks import Runner
from arf_dask.training.stages import fit_parts
from arf_dask.typing import Counts, PathLike

BOUGHT_SHARE, MOST_BOUGHT = 0.03, 0.2  # of rho per column whose domain is bought, and for all of them
TREE_SHARE, ONE_WAY_SHARE = 0.05, 0.15  # of what is left: for bins of long lines, and for one-way counts
LEVEL_DELTA = 0.5  # share of delta for learned levels
CERTAIN = 5.0  # standard deviations above which a magnitude is certainly there
LAST_TIME = 86_399_999_999_999  # nanoseconds since midnight
MIN_ROWS, MAX_ROWS = 1_000, 200_000  # rows that are drawn to learn the model from


class Ledger(NamedTuple):
    """Where a fit is entered before it reads rows."""

    path: PathLike
    storage_options: Mapping[str, Any] | None


class Budget(NamedTuple):
    """What a fit may spend."""

    rho: float
    level_delta: float  # of delta, for learned levels


def fit_private(
    parts: Parts,
    privacy: DifferentialPrivacy,
    options: Options,
    ledger: Ledger | None,
    runner: Runner,
    report: Progress,
) -> Fitted:
    """Fit a model to opened data with differential privacy.

    Args:
        parts: the opened data, of which nothing but names and types is read for free.
        privacy: the declared guarantee and domains.
        options: the options of the ordinary fit to drawn rows.
        ledger: where to enter the fit before rows are read.
        runner: runs the tasks that count rows.
        report: receives progress updates.
    """
    names = list(parts.dtypes)
    options.check_against(names)
    privacy.check_against(names)
    if not names:
        raise PrivacyError("the frame has no columns. Give a frame with at least one column.")
    domains = column_domains(parts.dtypes, privacy, options.all_keys())
    modelled = [domain for domain in domains if domain.kind != "key"]
    if not modelled:
        raise PrivacyError("all columns are identifiers, so there is nothing to learn. Give other columns too.")
    budget = _budget(privacy, modelled)
    if ledger is not None:
        enter_fit(ledger.path, _ledger_entry(privacy, budget), ledger.storage_options)
    report.stage("private counts", 1)
    seed = entropy(None)
    accountant = Accountant(budget.rho, budget.level_delta)
    table = open_table(parts, privacy, accountant, runner)
    one_way, rows = _learn_rows(modelled, privacy, table, budget, seed, report)
    frame = _complete(rows, domains, privacy)
    statement = _statement(privacy, budget, accountant.spendings, domains, one_way)
    fitted = _fit_rows(frame, domains, options, seed, runner, report)
    return replace(fitted, options={**fitted.options, "privacy": statement.to_dict()})


def _budget(privacy: DifferentialPrivacy, modelled: Sequence[ColumnDomain]) -> Budget:
    learns_levels = any(domain.kind == "levels" and domain.source == PRIVATE for domain in modelled)
    level_delta = LEVEL_DELTA * privacy.delta if learns_levels else 0.0
    return Budget(rho_of(float(privacy.epsilon), privacy.delta - level_delta), level_delta)


def _ledger_entry(privacy: DifferentialPrivacy, budget: Budget) -> dict[str, Any]:
    return {
        "epsilon": float(privacy.epsilon),
        "delta": float(privacy.delta),
        "level_delta": budget.level_delta,
        "rho": budget.rho,
        "unit": privacy.unit,
        "max_rows_per_unit": privacy.rows_per_unit,
    }


def open_table(parts: Parts, privacy: DifferentialPrivacy, accountant: Accountant, runner: Runner) -> TrustedTable:
    """Choose the rows of every unit, and return the table of them.

    The choice has randomness of its own, which nobody keeps. The seed of the model is public: derived from it, the
    choice could be repeated, and one more unit would change which rows of all units after it are chosen.
    """
    unit = privacy.unit_column
    rng = generator(entropy(None), Stage.PRIVACY, 0)
    used = None if unit is None else chosen_rows(parts, unit, privacy.rows_per_unit, runner, rng)
    return TrustedTable(parts, used, privacy.rows_per_unit, accountant, runner)


def _learn_rows(
    modelled: list[ColumnDomain],
    privacy: DifferentialPrivacy,
    table: TrustedTable,
    budget: Budget,
    seed: int,
    report: Progress,
) -> tuple[OneWay, pl.DataFrame]:
    """Spend the budget, and return rows drawn from a mixture that was fitted to the noisy answers."""
    modelled, left = _buy_domains(modelled, privacy, table, budget)
    long_lines = [domain for domain in modelled if domain.n_bins]
    tree_rho = TREE_SHARE * left / max(len(long_lines), 1)
    if long_lines:
        table.count_fine(long_lines)
    columns = [tree_cells(d, table, tree_rho) if d.n_bins else value_cells(d) for d in modelled]
    table.count_cells([cells.cell_map for cells in columns])
    pairs = len(columns) > 1
    one_way = measure_columns(columns, table, ONE_WAY_SHARE * left if pairs else (1 - TREE_SHARE) * left)
    report.advance(1)
    report.stage("private pairs", 1)
    rng = generator(seed, Stage.PRIVACY, 1)
    # The tree of bins stops early: the pairs get what it left.
    mixture = fit_mixture(columns, one_way, table, table.left, rng, report)
    n_rows = int(np.clip(round(one_way.rows), MIN_ROWS, MAX_ROWS))
    drawn = mixture.draw(n_rows, rng)
    rows = pl.DataFrame([cells.decode(ids, rng) for cells, ids in zip(columns, drawn, strict=True)])
    return one_way, rows


def _buy_domains(
    modelled: list[ColumnDomain], privacy: DifferentialPrivacy, table: TrustedTable, budget: Budget
) -> tuple[list[ColumnDomain], float]:
    """Return the domains with those that are bought, and the rho that is left."""
    bought = [domain for domain in modelled if domain.source == PRIVATE]
    if not bought:
        return modelled, budget.rho
    share = min(BOUGHT_SHARE * len(bought), MOST_BOUGHT)
    rho = share * budget.rho / len(bought)
    n_levels = sum(domain.kind == "levels" for domain in bought)
    completed = []
    for domain in modelled:
        if domain.source != PRIVATE:
            completed.append(domain)
        elif domain.kind == "levels":
            levels = table.stable_levels(domain.name, rho, budget.level_delta / n_levels)
            completed.append(level_domain(domain.name, domain.dtype, levels, domain.nullable, PRIVATE))
        else:
            ends = _ends(domain, table.magnitudes(domain.name, rho), table.scale_for(rho))
            spikes = privacy.spikes.get(domain.name, ())
            completed.append(physical_line(domain.name, domain.dtype, ends, domain.nullable, spikes, PRIVATE))
    return completed, budget.rho * (1 - share)


def _ends(domain: ColumnDomain, counts: Counts, scale: float) -> tuple[Any, Any]:
    """Return powers of two between which the numbers of a column certainly lie, from noisy counts of magnitudes."""
    sizes = np.flatnonzero(counts > CERTAIN * scale) - MAGNITUDES
    if not len(sizes):
        raise PrivacyError(
            f"column {domain.name!r}: epsilon does not suffice to find its bounds. Declare them: "
            f"bounds={{{domain.name!r}: (low, high)}}."
        )
    low, high = int(sizes.min()), int(sizes.max())
    least = -(2**-low) if low < 0 else 0 if low <= 1 else 2 ** (low - 1)
    most = 2**high if high > 0 else 0 if high >= -1 else -(2 ** (-high - 1))
    least, most = (least, most) if least < most else (least, least + 1)
    if domain.dtype in FLOATS:
        return float(least), float(most)
    if domain.dtype.is_integer():
        zero = pl.lit(0, dtype=domain.dtype)
        lowest, highest = pl.select(zero.lower_bound().alias("low"), zero.upper_bound().alias("high")).row(0)
        return max(least, int(lowest)), min(most, int(highest))
    return (max(least, 0), min(most, LAST_TIME)) if domain.dtype == pl.Time else (least, most)


def _complete(rows: pl.DataFrame, domains: list[ColumnDomain], privacy: DifferentialPrivacy) -> pl.DataFrame:
    """Return drawn rows with fresh identifiers, in the order of the columns of the data."""
    keys = [
        fresh_key_values(domain.name, domain.dtype, rows.height, privacy.key_patterns.get(domain.name))
        for domain in domains
        if domain.kind == "key"
    ]
    columns = {series.name: series for series in [*rows.get_columns(), *keys]}
    return pl.DataFrame([columns[domain.name] for domain in domains])


def _fit_rows(
    frame: pl.DataFrame, domains: list[ColumnDomain], options: Options, seed: int, runner: Runner, report: Progress
) -> Fitted:
    """Fit a model to drawn rows. Declared rules hold in every row that is drawn from it."""
    kinds = {domain.name: _kind(domain) for domain in domains if domain.kind != "empty"}
    keys = [domain.name for domain in domains if domain.kind == "key"]
    private = replace(options, columns={**kinds, **options.columns}, keys=keys, find_rules=False, strict_rules=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they would describe drawn rows
        return fit_parts(one_part(frame), private, seed, runner, report)


def _kind(domain: ColumnDomain) -> str:
    if domain.kind == "key":
        return "key"
    return "categorical" if domain.kind == "levels" and domain.axis is None else "numeric"


def _statement(
    privacy: DifferentialPrivacy,
    budget: Budget,
    spendings: Sequence[Spending],
    domains: Sequence[ColumnDomain],
    one_way: OneWay,
) -> PrivacyStatement:
    nullable = tuple(domain.name for domain in domains if domain.nullable)
    whose = "one row" if privacy.unit_column is None else f"all rows of one {privacy.unit!r}"
    return PrivacyStatement(
        epsilon=float(privacy.epsilon),
        delta=float(privacy.delta),
        rho=budget.rho,
        neighbours=f"tables that differ by {whose}, added or removed",
        unit=privacy.unit,
        max_rows_per_unit=privacy.rows_per_unit,
        rows=max(round(one_way.rows), 1),
        mechanisms=tuple(_mechanisms(spendings, budget.rho)),
        domains={domain.name: domain.source for domain in domains},
        nullable=nullable,
        not_covered=NOT_COVERED,
        noise=f"opendp {library_version('opendp')}",
    )


def _mechanisms(spendings: Sequence[Spending], rho: float) -> list[dict[str, Any]]:
    """Return one record per purpose, mechanism and scale."""
    frame = pl.DataFrame(spendings, schema=list(Spending._fields), orient="row")
    uses = frame.group_by("purpose", "mechanism", "scale", "sensitivity", maintain_order=True).agg(
        pl.len().alias("uses"), pl.col("rho").sum(), pl.col("delta").sum()
    )
    return uses.with_columns((pl.col("rho") / rho).alias("share")).to_dicts()
