"""Random tables with random rules, of which nothing may go wrong: a fit and a dozen laws for each.

    python tests/soak/fuzz.py --frames 1000
    python tests/soak/fuzz.py --minutes 30 --seed 5000
    python tests/soak/fuzz.py --frames 1 --seed 5017 --verbose

Table number k has the seed S + k. Every failure is a line with the seed that repeats it; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import polars as pl  # noqa: E402

import arf_dask  # noqa: E402
from arf_dask.errors import ArfError, KeyColumnWarning, RuleWarning  # noqa: E402
from tests.soak.fuzz_frames import Case, make_case  # noqa: E402
from tests.soak.fuzz_laws import LAWS, Fitted, reads_well, refused  # noqa: E402

FIT_SECONDS, LAW_SECONDS = 60.0, 40.0  # of the processor

STATUS_TABLES = 50  # tables after which a line tells how many there were


class Failure(NamedTuple):
    """A law that a table breaks."""

    seed: int
    law: str
    text: str  # one line
    details: str  # the traceback

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.law}: {self.text}"


class Outcome(NamedTuple):
    """What came of one table."""

    failures: list[Failure]
    refused: str  # the error with which the fit refused the table; empty if it did not


class TooSlowError(Exception):
    """A law takes longer than it may."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise an error in the main thread if something takes more processor time, however busy the machine is."""

    def stop(*_: object) -> None:
        raise TooSlowError(f"more than {seconds:.0f} s")

    previous = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


def run_case(case: Case) -> Outcome:
    """Fit one table and check all laws."""
    failures: list[Failure] = []
    models: list[arf_dask.Model] = []
    refusals: list[ArfError] = []

    def fit() -> None:
        refusal = refused(lambda: models.append(arf_dask.fit(case.frame, **case.options, progress=False)))
        refusals.extend([refusal] if refusal else [])
        assert refusal is None or reads_well(refusal), f"unclear message: {refusal}"

    _attempt(case, "fit", fit, FIT_SECONDS, failures)
    if models:
        fitted = Fitted(case, models[0])
        for law in LAWS:
            _attempt(case, law.__name__, partial(fitted.check, law), LAW_SECONDS, failures)
    return Outcome(failures, f"{type(refusals[0]).__name__}: {refusals[0]}" if refusals else "")


def _attempt(case: Case, law: str, check: Callable[[], None], seconds: float, failures: list[Failure]) -> None:
    """Check a law; any exception, warning or panic is a failure."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for expected in (KeyColumnWarning, RuleWarning):
            warnings.simplefilter("ignore", expected)
        try:
            with time_limit(seconds):
                check()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # panics of Polars derive from BaseException
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            text = kind + " ".join(str(error).split())[:400]
            failures.append(Failure(case.seed, law, text, traceback.format_exc()))


def describe(case: Case) -> str:
    """Return all that is needed to look at a case."""
    with pl.Config(tbl_cols=-1, tbl_width_chars=200):
        return f"{case.frame}\noptions {case.options}\n"


def main() -> None:
    """Table after table until their number or the time is reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=None, help="number of tables (default: 1,000, or no limit)")
    parser.add_argument("--minutes", type=float, default=None, help="stop after so many minutes")
    parser.add_argument("--seed", type=int, default=None, help="seed of the first table")
    parser.add_argument("--verbose", action="store_true", help="show tables, options and tracebacks of failures")
    asked = parser.parse_args()
    seed = asked.seed if asked.seed is not None else random.SystemRandom().randrange(10**6)
    n_frames = asked.frames or (1_000 if asked.minutes is None else sys.maxsize)
    end = time.monotonic() + 60 * (asked.minutes if asked.minutes is not None else 10**6)
    print(f"seed {seed}", flush=True)
    count: Counter[str] = Counter()
    number = 0
    while number < n_frames and time.monotonic() < end:
        case = make_case(seed + number)
        outcome = run_case(case)
        number += 1
        count["refused"] += bool(outcome.refused)
        if number % STATUS_TABLES == 0:
            print(f"{number} tables", flush=True)
        if outcome.refused and asked.verbose:
            print(f"seed {case.seed} refused: {outcome.refused}", flush=True)
        if outcome.failures and asked.verbose:
            print(describe(case), flush=True)
        for failure in outcome.failures:
            count[failure.law] += 1
            print(f"{failure}\n{failure.details}" if asked.verbose else failure, flush=True)
    n_failures = sum(count.values()) - count["refused"]
    print(f"{number} tables, {count['refused']} refused by fit, {n_failures} failures {dict(count)}", flush=True)
    sys.exit(bool(n_failures))


if __name__ == "__main__":
    main()
