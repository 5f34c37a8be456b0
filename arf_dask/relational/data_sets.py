"""Write several tables: a data set per table, whose parts are pure functions of model, sizes, seed and part number."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from arf_dask.inference.sources import Block
from arf_dask.relational.families import TablesFitted
from arf_dask.relational.model_files import tables_hash
from arf_dask.relational.plans import TablesPlan, plan_tables
from arf_dask.runtime.disk import library_versions
from arf_dask.runtime.once import OncePerProcess
from arf_dask.runtime.progress import Progress
from arf_dask.runtime.seeds import entropy
from arf_dask.runtime.tasks import Runner
from arf_dask.runtime.urls import is_url, local_path
from arf_dask.schema.columns import Schema
from arf_dask.storage.data_set import LIBRARIES, check_target, seed_of, write_rows
from arf_dask.storage.jobs import Job, describe_given
from arf_dask.storage.manifest import Manifest
from arf_dask.storage.stores import output_errors
from arf_dask.typing import OnImpossible, PathLike


class TableContents(NamedTuple):
    """What the data set of one table says of its model."""

    dtypes: Mapping[str, pl.DataType]
    schema: Schema  # its categorical columns
    options: Mapping[str, object]
    guard: object = None


@dataclass(frozen=True, eq=False)
class TableRows:
    """The rows of one of several tables. It can be sent to other processes."""

    plan: TablesPlan
    table: str
    given: None = None
    built: OncePerProcess = field(default_factory=OncePerProcess, repr=False)

    @property
    def starts(self) -> tuple[int, ...]:
        """Per block, the number of its first row; followed by the number of all rows."""
        fixed = self.plan.fitted.fixed
        return (0, fixed[self.table].height) if self.table in fixed else self.plan.first_rows[self.table]

    @property
    def fitted(self) -> TableContents:
        contents: TableContents = self.built.get("contents", self._contents)
        return contents

    def _contents(self) -> TableContents:
        fitted, dtypes = self.plan.fitted, self.plan.fitted.dtypes[self.table]
        columns: tuple[Any, ...] = ()
        if self.table not in fitted.fixed:
            model = fitted.roots[self.table] if self.table in fitted.roots else fitted.chains[self.table].fitted
            columns = tuple(one for one in model.schema.columns if one.kind == "categorical" and one.name in dtypes)
        return TableContents(dtypes, Schema(columns, (), fitted.rows[self.table]), fitted.options)

    def blocks(self, first: int, stop: int) -> Iterator[Block]:
        """Yield the blocks that contain the rows from `first` up to `stop`."""
        starts = np.asarray(self.starts)
        for number in np.flatnonzero((starts[:-1] < stop) & (starts[1:] > first)).tolist():
            yield Block(number, int(starts[number]), int(starts[number + 1] - starts[number]))

    def draw(self, block: Block) -> pl.DataFrame:
        """Draw one block."""
        fitted = self.plan.fitted
        if self.table in fitted.fixed:
            return fitted.fixed[self.table]
        return self.plan.draw(fitted.graph.root_of(self.table), block.number, [self.table])[self.table]

    def redrawn(self, block: Block) -> int:
        """Return how many rows were redrawn as copies: none, as these models keep no fingerprints."""
        return 0

    def with_conditions(self, conditions: pl.DataFrame, first: int) -> TableRows:
        """Return the same rows: conditions on roots are part of the plan."""
        return self

    def without_conditions(self) -> TableRows:
        """Return the same rows: conditions on roots are part of the plan."""
        return self


class Writing(NamedTuple):
    """Where and how tables are written."""

    path: PathLike
    rows_per_file: int
    mode: str
    portable: bool
    storage_options: Mapping[str, Any] | None


def write_tables(
    fitted: TablesFitted,
    n: int | Mapping[str, int] | None,
    given: Mapping[str, Any] | None,
    on_impossible: OnImpossible,
    seed: int | None,
    writing: Writing,
    runner: Runner,
    report: Progress,
) -> dict[str, Manifest]:
    """Write all tables, each to a data set of its own. `TablesModel.sample_parquet` documents the arguments."""
    paths = {name: table_path(writing.path, name) for name in fitted.dtypes}
    if not is_url(writing.path):
        with output_errors(writing.path):
            Path(local_path(writing.path)).mkdir(exist_ok=True)
    for path in paths.values():
        check_target(path, writing.mode, writing.rows_per_file, writing.storage_options)
    if seed is None and writing.mode == "resume":
        seeds = (seed_of(path, writing.storage_options) for path in paths.values())
        seed = next((one for one in seeds if one is not None), None)
    plan = plan_tables(fitted, n, given, on_impossible, entropy(seed), runner, needs_rows=True)
    content_hash = tables_hash(fitted)
    manifests = {}
    for name, path in paths.items():
        rows = TableRows(plan, name)
        job = _job(rows, content_hash, writing)
        manifests[name] = write_rows(rows, job, path, writing.mode, writing.storage_options, runner, report)
    return manifests


def table_path(path: PathLike, table: str) -> str:
    """Return the directory or URL of one table."""
    return f"{str(path).rstrip('/')}/{table}"


def _job(rows: TableRows, content_hash: str, writing: Writing) -> Job:
    """Return what determines the data set of one table."""
    plan, n_rows = rows.plan, rows.starts[-1]
    sizes = json.dumps([content_hash, rows.table, dict(plan.job.sizes)])
    text, digest = describe_given(plan.job.given or None)
    return Job(
        hashlib.sha256(sizes.encode()).hexdigest(),
        n_rows,
        n_rows,
        plan.job.seed,
        int(writing.rows_per_file),
        text,
        digest,
        plan.job.on_impossible,
        library_versions(LIBRARIES),
        portable=writing.portable,
    )
