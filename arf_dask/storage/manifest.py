"""The manifest of a finished data set: its parts, the job that wrote them, and methods to scan and verify them.

It is stored in `_manifest.parquet`, a file without rows but with the columns of the parts, as JSON in the key-value
metadata. The directory therefore holds only Parquet files and the empty `_SUCCESS`, and any Parquet reader can open it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl

from arf_dask.errors import OutputError
from arf_dask.runtime.display import TextInNotebooks
from arf_dask.storage.jobs import Job, dump_json, load_json, parse_job, parse_parts, read_bytes
from arf_dask.storage.parquet import Part, digest, read_key_value, write_part
from arf_dask.storage.stores import Remote, Store, open_store
from arf_dask.typing import PathLike

MANIFEST, SUCCESS = "_manifest.parquet", "_SUCCESS"
FORMER_MANIFEST = "manifest.json"  # used by data sets written before version 0.2
PART_NAME = re.compile(r"part-([0-9]{5,})(-[0-9a-f]{12})?\.parquet")
KEY = "arf_dask.manifest"
WIDE = {"Int128": pl.Int128(), "UInt128": pl.UInt128()}  # stored as text


@dataclass(frozen=True)
class Manifest(TextInNotebooks):
    """A finished data set of synthetic rows, as returned by `Model.sample_parquet`.

    Other tools can read the whole directory, or the files listed in `files`.

    Attributes:
        path: The directory or URL, without credentials.
        rows: The total number of rows.
        bytes: The total size of the parts in bytes.
        parts: The files, in order: name, rows, bytes and SHA-256.
        columns: The dtypes of the columns, by name.
        job: Everything that determines the content of the files.
        release: The release policy of the model and what it did; None without one.
        privacy: The statement of a private model, as of `Model.privacy`; None for other models.

    Examples:
        >>> import tempfile, arf_dask, polars as pl
        >>> model = arf_dask.fit(pl.DataFrame({"x": [i / 7 for i in range(200)]}), trees=5, seed=1)
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     made = model.sample_parquet(f"{directory}/out", 1_000, rows_per_file=400, seed=2)
        ...     made.verify()
        ...     again = arf_dask.Manifest.read(f"{directory}/out")
        ...     [part.rows for part in again.parts], again.scan().collect().height
        ([400, 400, 200], 1000)
    """

    path: str
    rows: int
    bytes: int
    parts: tuple[Part, ...]
    columns: dict[str, str]
    job: Job = field(repr=False)
    release: Mapping[str, Any] | None = field(default=None, repr=False)
    privacy: Mapping[str, Any] | None = field(default=None, repr=False)
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    url: str | None = field(default=None, repr=False, compare=False)  # as given, credentials included

    @property
    def redrawn(self) -> int:
        """The number of rows that were redrawn because they were copies of real rows."""
        return sum(part.redrawn for part in self.parts)

    @property
    def seed(self) -> int:
        """The seed that the rows were drawn with."""
        return self.job.seed

    @property
    def model_hash(self) -> str:
        """The SHA-256 of the model's content."""
        return self.job.model_hash

    @property
    def given(self) -> str | None:
        """The condition, abbreviated; None if there is none."""
        return self.job.given

    @property
    def files(self) -> list[str]:
        """The paths or URLs of all parts, in order."""
        return [self._store().location(part.file) for part in self.parts]

    @classmethod
    def read(cls, path: PathLike, storage_options: Mapping[str, Any] | None = None) -> Manifest:
        """Read the manifest of a finished data set.

        Args:
            path: The directory or URL of the data set.
            storage_options: Options of fsspec for a URL.

        Returns:
            The manifest.

        Raises:
            OutputError: If there is no finished data set, or its manifest is damaged.
        """
        store = open_store(path, storage_options)
        file_names = store.names()
        if SUCCESS not in file_names or not {MANIFEST, FORMER_MANIFEST} & set(file_names):
            missing_file = SUCCESS if SUCCESS not in file_names else MANIFEST
            raise OutputError(f"{store.root}: no {missing_file} there, so it holds no finished data set of arf_dask.")
        url = store.url if isinstance(store, Remote) else None
        return replace(read_manifest(store), storage_options=storage_options, url=url)

    def scan(self) -> pl.LazyFrame:
        """Lazily scan all rows, in order and with the dtypes of the training data.

        Only files listed in the manifest are read; other files in the directory are ignored.

        Returns:
            A LazyFrame.

        Raises:
            OutputError: If the rows were written to a file of another format.
        """
        store = self._store()
        if not all(part.file.lower().endswith(".parquet") for part in self.parts):
            raise OutputError(f"{self.files[0]}: is no Parquet file. Read it with the function for its format.")
        if isinstance(store, Remote):
            file_system, root_path = store.filesystem()
            file_paths = [f"{root_path}/{part.file}" for part in self.parts]
            import pyarrow.dataset

            frame = pl.scan_pyarrow_dataset(
                pyarrow.dataset.dataset(file_paths, filesystem=file_system, format="parquet")
            )
        else:
            frame = pl.scan_parquet(self.files, glob=False)
        wide_columns = [(name, WIDE[dtype]) for name, dtype in self.columns.items() if dtype in WIDE]
        return frame.with_columns(pl.nth(list(self.columns).index(name)).cast(dtype) for name, dtype in wide_columns)

    def verify(self) -> None:
        """Check the hash of every part, and look for files that do not belong to the data set.

        Raises:
            OutputError: If parts are missing or changed, or if the directory holds parts of another data set.
        """
        store = self._store()
        part_problems = [problem for part in self.parts if (problem := find_problem(store, part)) is not None]
        if part_problems:
            raise OutputError(
                f'{self.path}: {"; ".join(part_problems)}. Run again with mode="resume" to write them again.'
            )
        listed_files = {part.file for part in self.parts}
        others = [name for name in store.names() if PART_NAME.fullmatch(name) and name not in listed_files]
        if others:
            raise OutputError(
                f"{self.path}: {others[0]!r} is there but not listed in the manifest; readers of the whole directory "
                "would read it too. Most likely a run that was stopped wrote it late: remove it."
            )

    def to_json(self) -> str:
        """Return the manifest as a JSON string."""
        part_records = [part._asdict() for part in self.parts]
        job_fields = {"synthetic": True, "rows": self.rows, "bytes": self.bytes, "job": asdict(self.job)}
        release_fields = {} if self.release is None else {"release": {**self.release, "rows_redrawn": self.redrawn}}
        optional_fields = release_fields | ({} if self.privacy is None else {"privacy": self.privacy})
        return dump_json({**job_fields, **optional_fields, "columns": self.columns, "parts": part_records})

    def __repr__(self) -> str:
        parts = f"{len(self.parts):,} part{'s' if len(self.parts) != 1 else ''}"
        given = f", given {self.given}" if self.given is not None else ""
        return (
            f"Manifest: {self.rows:,} synthetic rows of {len(self.columns):,} columns in {parts}, "
            f"{self.bytes / 1e6:,.1f} MB, at {self.path!r}\n"
            f"  seed {self.seed}, model {self.model_hash[:12]}{given}"
        )

    def _store(self) -> Store:
        return open_store(self.path if self.url is None else self.url, self.storage_options)


def write_manifest(manifest: Manifest, path: Path, schema: Any) -> None:
    """Write the manifest of a data set whose parts have the Arrow schema `schema`."""
    write_part(path, [], schema, {KEY: manifest.to_json()}, [])


def read_manifest(store: Store) -> Manifest:
    """Read and validate the manifest in a store, written by this or an earlier version."""
    is_former = MANIFEST not in store.names()
    name = FORMER_MANIFEST if is_former else MANIFEST
    try:
        content = read_bytes(store, name)
        fields = load_json(content if is_former else read_key_value(BytesIO(content))[KEY].encode())
        job, parts = parse_job(fields["job"]), parse_parts(fields["parts"])
        column_types = {str(column_name): str(type_name) for column_name, type_name in fields["columns"].items()}
        rows, n_bytes, release, privacy = fields["rows"], fields["bytes"], fields.get("release"), fields.get("privacy")
        if type(rows) is not int or type(n_bytes) is not int or not isinstance(release, dict | None):
            raise ValueError("'rows', 'bytes' or 'release' have wrong types")
        if not isinstance(privacy, dict | None):
            raise ValueError("'privacy' has a wrong type")
        manifest = Manifest(store.root, rows, n_bytes, parts, column_types, job, release, privacy)
        _check_parts(manifest)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise OutputError(
            f"{store.location(name)}: is damaged ({type(error).__name__}: {error}). Write the same job again with the "
            'same seed and mode="resume", or restore it from a copy.'
        ) from error
    return manifest


def find_problem(store: Store, part: Part) -> str | None:
    """Compare a part with its recorded size and hash; return a description of the problem, or None."""
    try:
        with store.open(part.file) as file:
            return None if digest(file) == (part.bytes, part.sha256) else f"{part.file} has changed"
    except FileNotFoundError:
        return f"{part.file} is missing"
    except OSError as error:
        return f"{part.file} cannot be read ({error})"


def _check_parts(manifest: Manifest) -> None:
    """Raise a ValueError unless the parts match the job and have valid file names (no path traversal)."""
    job, parts = manifest.job, manifest.parts
    if len(parts) != job.n_parts:
        raise ValueError(f"lists {len(parts)} parts of {job.n_parts}")
    for number, part in enumerate(parts):
        name_match = PART_NAME.fullmatch(part.file)
        first_row, stop_row = job.bounds(number)
        if name_match is None or int(name_match[1]) != number or part.rows != stop_row - first_row:
            raise ValueError(f"part {number} cannot be {part.file[:60]!r} with {part.rows} rows")
    if (sum(part.rows for part in parts), sum(part.bytes for part in parts)) != (manifest.rows, manifest.bytes):
        raise ValueError("rows or bytes of the parts do not add up")
