"""What a data set is: the job that makes it, and the manifest of what was made.

Both are JSON without any time of day, so that the same job gives the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from arf_dask.conditions import Interval
from arf_dask.errors import OutputError
from arf_dask.parquet import Part, digest
from arf_dask.storage import PathLike
from arf_dask.stores import Remote, Store, open_store, telling

FORMAT, VERSION = "arf_dask output", 1
JOB, MANIFEST, SUCCESS = "_job.json", "manifest.json", "_SUCCESS"
SHOWN = 200  # signs of a condition that are told
WIDE = {"Int128": pl.Int128(), "UInt128": pl.UInt128()}  # written as text


@dataclass(frozen=True)
class Job:
    """All that decides the bytes of a data set."""

    model_hash: str
    n: int  # rows asked for; with a frame of conditions, for each
    rows: int  # in all
    seed: int
    rows_per_file: int
    given: str | None  # in short
    given_sha256: str | None
    on_impossible: str
    written_by: dict[str, str]  # versions of the libraries that bytes depend on

    @property
    def id(self) -> str:
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @property
    def n_parts(self) -> int:
        return max(1, -(-self.rows // self.rows_per_file))

    def part_name(self, part: int) -> str:
        """The file name of a part; all have the same number of digits."""
        return f"part-{part:0{max(5, len(str(self.n_parts - 1)))}}.parquet"

    def bounds(self, part: int) -> tuple[int, int]:
        """The rows of a part: from the first up to, not including, the second."""
        return part * self.rows_per_file, min((part + 1) * self.rows_per_file, self.rows)

    def to_json(self) -> str:
        return _dump({"format": FORMAT, "version": VERSION, "job": asdict(self)})

    @classmethod
    def from_json(cls, text: bytes) -> Job:
        return cls(**_load(text)["job"])

    def differences(self, there: Job) -> list[str]:
        """In words, where another job differs from this one."""
        pairs = [("the model", there.model_hash[:12], self.model_hash[:12])]
        pairs += [(name, getattr(there, name), getattr(self, name)) for name in ("n", "seed", "rows_per_file")]
        pairs.append(("on_impossible", repr(there.on_impossible), repr(self.on_impossible)))
        found = [f"{name}: {old} there, {new} asked" for name, old, new in pairs if old != new]
        if there.given_sha256 != self.given_sha256:
            found.append(f"given: {there.given} there, {self.given} asked")
        names = sorted({*there.written_by, *self.written_by})
        versions = [(name, there.written_by.get(name), self.written_by.get(name)) for name in names]
        return found + [f"{name}: version {old} there, {new} here" for name, old, new in versions if old != new]


@dataclass(frozen=True)
class Manifest:
    """A finished data set of synthetic rows: what `sample_parquet` wrote, and how to read it.

    `scan()` reads it with Polars; other tools read `files`, or the pattern `path/*.parquet`. `verify()` hashes every
    part again. `Manifest.read(path)` is the manifest of a data set on disk.
    """

    path: str
    rows: int
    bytes: int
    parts: tuple[Part, ...]
    columns: dict[str, str]  # dtypes by name
    job: Job = field(repr=False)
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)

    @property
    def seed(self) -> int:
        return self.job.seed

    @property
    def model_hash(self) -> str:
        """The SHA-256 of what the model says."""
        return self.job.model_hash

    @property
    def given(self) -> str | None:
        """The condition, in short."""
        return self.job.given

    @property
    def files(self) -> list[str]:
        """The paths or URLs of all parts, in order."""
        return [self._store().location(part.file) for part in self.parts]

    @classmethod
    def read(cls, path: PathLike, storage_options: Mapping[str, Any] | None = None) -> Manifest:
        """The manifest of a finished data set."""
        store = open_store(path, storage_options)
        missing = [name for name in (SUCCESS, MANIFEST) if name not in store.names()]
        if missing:
            raise OutputError(f"{store.place}: no {missing[0]} there, so it holds no finished data set of arf_dask.")
        return replace(read_manifest(store), storage_options=storage_options)

    def scan(self) -> pl.LazyFrame:
        """All rows, lazily, in order, with the dtypes of the training data."""
        store = self._store()
        if isinstance(store, Remote):
            system, root = store.filesystem()
            files = [f"{root}/{part.file}" for part in self.parts]
            import pyarrow.dataset

            frame = pl.scan_pyarrow_dataset(pyarrow.dataset.dataset(files, filesystem=system, format="parquet"))
        else:
            frame = pl.scan_parquet(self.files, glob=False)
        wide = [(name, WIDE[dtype]) for name, dtype in self.columns.items() if dtype in WIDE]
        return frame.with_columns(pl.nth(list(self.columns).index(name)).cast(dtype) for name, dtype in wide)

    def verify(self) -> None:
        """Hash every part again; an OutputError names all that are missing or changed."""
        store, bad = self._store(), []
        for part in self.parts:
            try:
                with store.open(part.file) as file:
                    if digest(file) != (part.bytes, part.sha256):
                        bad.append(f"{part.file} has changed")
            except FileNotFoundError:
                bad.append(f"{part.file} is missing")
            except OSError as error:
                bad.append(f"{part.file} cannot be read ({error})")
        if bad:
            raise OutputError(f'{self.path}: {"; ".join(bad)}. Remove them and run again with mode="resume".')

    def to_json(self) -> str:
        about = {"format": FORMAT, "version": VERSION, "synthetic": True, "rows": self.rows, "bytes": self.bytes}
        listed = [part._asdict() for part in self.parts]
        return _dump({**about, "job": asdict(self.job), "columns": self.columns, "parts": listed})

    def __repr__(self) -> str:
        parts = f"{len(self.parts):,} part{'s' if len(self.parts) != 1 else ''}"
        given = f", given {self.given}" if self.given is not None else ""
        return (
            f"Manifest: {self.rows:,} synthetic rows of {len(self.columns):,} columns in {parts}, "
            f"{self.bytes / 1e6:,.1f} MB, at {self.path!r}\n"
            f"  seed {self.seed}, model {self.model_hash[:12]}{given}"
        )

    def _store(self) -> Store:
        return open_store(self.path, self.storage_options)


def read_manifest(store: Store) -> Manifest:
    """The manifest in a store, finished or not."""
    facts = _load(read_bytes(store, MANIFEST))
    parts = tuple(Part(**part) for part in facts["parts"])
    return Manifest(store.place, facts["rows"], facts["bytes"], parts, facts["columns"], Job(**facts["job"]))


def read_bytes(store: Store, name: str) -> bytes:
    """The content of a small file."""
    with telling(store.location(name)), store.open(name) as file:
        return file.read()


def describe_given(given: Any) -> tuple[str | None, str | None]:
    """A condition in short, and the SHA-256 of all of it. A frame has the model's dtypes already."""
    if given is None:
        return None, None
    if isinstance(given, pl.DataFrame):
        names = ", ".join(map(repr, given.columns))
        text = f"{given.height:,} condition{'s' if given.height != 1 else ''} on {names}"
        return _clip(text), hashlib.sha256(_frame_bytes(given)).hexdigest()
    text = repr(_canonical(given))
    return _clip(text), hashlib.sha256(text.encode()).hexdigest()


def _frame_bytes(frame: pl.DataFrame) -> bytes:
    """The content of a frame, whatever its pieces, and categories other than its own."""
    plain = frame.with_columns(pl.col(pl.Categorical).cast(pl.String)) if frame.width else frame
    buffer = io.BytesIO()
    plain.rechunk().write_ipc(buffer, compression="uncompressed")
    return repr(list(frame.schema.items())).encode() + buffer.getvalue()


def _canonical(given: Any) -> Any:
    """The same condition always in the same words."""
    if isinstance(given, Mapping):
        return {str(name): _canonical(given[name]) for name in sorted(given, key=str)}
    if isinstance(given, Interval):
        low, high = _canonical(given.low), _canonical(given.high)
        return (low, high) if given.closed == "both" else Interval(low, high, given.closed)
    if isinstance(given, tuple):
        return tuple(_canonical(one) for one in given)
    if isinstance(given, np.generic):
        return given.item()
    if isinstance(given, Sequence | np.ndarray | pl.Series | set | frozenset) and not isinstance(given, str | bytes):
        values = [_canonical(one) for one in given]
        return sorted(values, key=repr) if isinstance(given, set | frozenset) else values
    return given


def _clip(text: str) -> str:
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def _dump(facts: Mapping[str, Any]) -> str:
    return json.dumps(facts, indent=1, allow_nan=False) + "\n"


def _load(text: bytes) -> dict[str, Any]:
    facts = json.loads(text)
    if not isinstance(facts, dict) or facts.get("format") != FORMAT or facts.get("version") != VERSION:
        raise ValueError(f"not of the format {FORMAT!r}, version {VERSION}")
    return facts
