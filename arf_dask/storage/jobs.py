"""The job of a data set: everything that determines its bytes, and the progress of an unfinished run.

Jobs are stored as JSON without timestamps, so that equal jobs give equal bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from arf_dask.data.value_sets import Interval
from arf_dask.errors import OutputError
from arf_dask.storage.parquet import Part
from arf_dask.storage.stores import Store, output_errors
from arf_dask.typing import OnImpossible

FORMAT, VERSION = "arf_dask output", 3
READABLE = (1, 2, 3)
HASHED_SINCE = 3  # earlier versions have no hash of their own content
JOB = "_job.json"
SHOWN_CHARACTERS = 200  # maximum length of a condition shown in a manifest
MARK = 12  # length of the job hash in part names in object stores


@dataclass(frozen=True)
class Job:
    """Everything that determines the bytes of a data set."""

    model_hash: str
    n: int  # rows requested; with a frame of conditions, rows per condition
    rows: int  # total number of rows
    seed: int
    rows_per_file: int
    given: str | None  # the condition, abbreviated
    given_sha256: str | None
    on_impossible: OnImpossible
    written_by: dict[str, str]  # versions of the libraries that affect the bytes
    portable: bool = False  # whether types are cast to those that Spark, Delta and Iceberg support
    first_key: int | None = None  # index of the first identifier, if given by the caller

    @property
    def id(self) -> str:
        fields = asdict(self)
        if not self.portable:  # keep the hash of jobs written before this option existed
            del fields["portable"]
        if self.first_key is None:
            del fields["first_key"]
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()

    @property
    def n_parts(self) -> int:
        return max(1, -(-self.rows // self.rows_per_file))

    def part_name(self, part: int, *, marked: bool = False) -> str:
        """Return the file name of a part, with a fixed number of digits.

        Args:
            part: The index of the part.
            marked: Include a prefix of the job's hash, so that parts of different jobs have different names.
        """
        mark = f"-{self.id[:MARK]}" if marked else ""
        return f"part-{part:0{max(5, len(str(self.n_parts - 1)))}}{mark}.parquet"

    def bounds(self, part: int) -> tuple[int, int]:
        """Return the row range [first, stop) of a part."""
        return part * self.rows_per_file, min((part + 1) * self.rows_per_file, self.rows)

    def differences(self, existing: Job) -> list[str]:
        """Describe how an existing job differs from this one, one text per difference."""
        pairs = [("the model", existing.model_hash[:12], self.model_hash[:12])]
        pairs += [
            (name, getattr(existing, name), getattr(self, name))
            for name in ("n", "seed", "rows_per_file", "portable", "first_key")
        ]
        pairs.append(("on_impossible", repr(existing.on_impossible), repr(self.on_impossible)))
        found = [f"{name}: {old} there, {new} asked" for name, old, new in pairs if old != new]
        if existing.given_sha256 != self.given_sha256:
            found.append(f"given: {existing.given} there, {self.given} asked")
        libraries = sorted({*existing.written_by, *self.written_by})
        versions = [(name, existing.written_by.get(name), self.written_by.get(name)) for name in libraries]
        return found + [f"{name}: version {old} there, {new} here" for name, old, new in versions if old != new]


class RunState(NamedTuple):
    """The state of an unfinished run as stored in `_job.json`: job, run id and finished parts."""

    job: Job
    run: str
    parts: tuple[Part, ...]

    def to_json(self) -> str:
        listed = [part._asdict() for part in self.parts]
        return dump_json({"job": asdict(self.job), "run": self.run, "parts": listed})


def read_run_state(store: Store) -> RunState | None:
    """Return the state of the unfinished run in a store, or None if there is none."""
    if JOB not in store.names():
        return None
    try:
        job_bytes = read_bytes(store, JOB)
    except OutputError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None  # another run has removed it since the store was listed
        raise
    try:
        content = load_json(job_bytes)
        return RunState(parse_job(content["job"]), str(content.get("run", "")), parse_parts(content.get("parts", [])))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise OutputError(
            f"{store.location(JOB)}: is damaged ({type(error).__name__}: {error}). Write the same job again with the "
            'same seed and mode="resume", or give another path.'
        ) from error


def parse_job(content: Any) -> Job:
    """Parse a job from JSON. Raises ValueError or TypeError for invalid content."""
    job = Job(**content)
    for name, kind in _JOB_TYPES.items():
        if not isinstance(getattr(job, name), kind) or isinstance(getattr(job, name), bool):
            raise ValueError(f"{name!r} is {str(getattr(job, name))[:40]!r}")
    if type(job.portable) is not bool:
        raise ValueError(f"'portable' is {str(job.portable)[:40]!r}")
    if job.first_key is not None and (type(job.first_key) is not int or job.first_key < 0):
        raise ValueError(f"'first_key' is {str(job.first_key)[:40]!r}")
    if min(job.n, job.rows, job.seed) < 0 or job.rows_per_file < 1:
        raise ValueError("a negative number of rows, or no rows per file")
    return job


def parse_parts(content: Any) -> tuple[Part, ...]:
    """Parse a list of parts from JSON. Raises ValueError or TypeError for invalid content."""
    parts = tuple(Part(**one) for one in content)
    for part in parts:
        fine = type(part.file) is str and type(part.sha256) is str
        if not fine or any(type(count) is not int for count in (part.rows, part.bytes, part.redrawn)):
            raise ValueError(f"a part {str(part.file)[:40]!r} with fields of wrong types")
    return parts


_JOB_TYPES: dict[str, Any] = {
    "model_hash": str,
    "n": int,
    "rows": int,
    "seed": int,
    "rows_per_file": int,
    "given": str | None,
    "given_sha256": str | None,
    "on_impossible": str,
    "written_by": dict,
}


def read_bytes(store: Store, name: str) -> bytes:
    """Return the content of a small file."""
    with output_errors(store.location(name)), store.open(name) as file:
        return file.read()


def describe_given(given: Any) -> tuple[str | None, str | None]:
    """Return the abbreviated text and the SHA-256 of a condition. A frame must have the model's dtypes."""
    if given is None:
        return None, None
    if isinstance(given, pl.DataFrame):
        names = ", ".join(map(repr, given.columns))
        text = f"{given.height:,} condition{'s' if given.height != 1 else ''} on {names}"
        return _clip(text), hashlib.sha256(_frame_bytes(given)).hexdigest()
    if isinstance(given, pl.Expr):
        return _clip(str(given)), hashlib.sha256(given.meta.serialize(format="json").encode()).hexdigest()
    text = repr(_canonical(given))
    return _clip(text), hashlib.sha256(text.encode()).hexdigest()


def _frame_bytes(frame: pl.DataFrame) -> bytes:
    """Serialize a frame so that equal values and dtypes give equal bytes, whatever the chunks or unused categories."""
    plain = frame.with_columns(pl.col(pl.Categorical).cast(pl.String)) if frame.width else frame
    buffer = io.BytesIO()
    plain.rechunk().write_ipc(buffer, compression="uncompressed")
    return repr(list(frame.schema.items())).encode() + buffer.getvalue()


def _canonical(given: Any) -> Any:
    """Return a condition in canonical form, so that equal conditions have equal representations."""
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
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "..."


def dump_json(fields: Mapping[str, Any]) -> str:
    """Serialize fields as JSON, preceded by the format and version and followed by their own hash."""
    content = {"format": FORMAT, "version": VERSION, **fields}
    return json.dumps({**content, "sha256": _content_hash(content)}, indent=1, allow_nan=False) + "\n"


def load_json(text: bytes) -> dict[str, Any]:
    """Parse JSON written by `dump_json` of this or an earlier version. Raises ValueError for anything else."""
    fields = json.loads(text)
    if not isinstance(fields, dict) or fields.get("format") != FORMAT or fields.get("version") not in READABLE:
        raise ValueError(f"not of the format {FORMAT!r}, version {VERSION}")
    recorded_hash = fields.pop("sha256", None)
    if (fields["version"] >= HASHED_SINCE or recorded_hash is not None) and recorded_hash != _content_hash(fields):
        raise ValueError("the content does not match its own SHA-256")
    return fields


def _content_hash(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
