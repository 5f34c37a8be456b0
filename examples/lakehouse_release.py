"""From a table of people to a gated release: learn under a policy, attack the rows, publish only if they hold.

    python examples/lakehouse_release.py [DIRECTORY]

A table of visits (several for every patient) is generated, and published as a synthetic data set of Parquet files that
any lakehouse engine reads by the name of its directory. `_SUCCESS` appears only if every limit holds; the report is
written either way.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

import arf_dask


def visits(n_patients: int, seed: int = 0) -> pl.DataFrame:
    """Visits of patients to a clinic: one to six of each, with rare diagnoses and a few extreme bills."""
    rng = np.random.default_rng(seed)
    patient = np.repeat(np.arange(n_patients), rng.integers(1, 7, n_patients))
    n = len(patient)
    age = rng.integers(0, 95, n_patients)[patient]
    common = np.array(["flu", "asthma", "fracture", "diabetes", "checkup"])
    diagnosis = np.where(rng.random(n) < 0.995, common[rng.integers(0, 5, n)], rng.integers(0, 400, n).astype(str))
    bill = np.exp(rng.normal(4 + age / 60, 0.7, n)).round(2)
    month = pl.Series(rng.integers(19_000, 19_700, n).astype(np.int32)).cast(pl.Date).dt.truncate("1mo")
    return pl.DataFrame(
        {
            "patient": np.char.add("P", np.char.zfill(patient.astype(str), 6)),
            "month": month,
            "age": age,
            "diagnosis": diagnosis,
            "bill": bill,
            "insured": rng.random(n) < 0.9,
        }
    )


def publish(table: pl.DataFrame, place: Path) -> arf_dask.Manifest:
    """Learn under the default policy, one subject per patient, and publish if attacks fail."""
    return arf_dask.synthesize(
        table,
        to=place / "visits",
        mode="overwrite" if (place / "visits").exists() else "error",
        release=arf_dask.ReleasePolicy(subject="patient", max_rows_per_subject=3, min_leaf=50),
        holdout=0.2,
        publish_if=arf_dask.Limits(membership_auc=0.6, c2st=0.75, copies=0.001, page=str(place / "report.html")),
        seed=0,
    )


def main() -> int:
    """Publish a release, or say why not."""
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="release-"))
    place.mkdir(parents=True, exist_ok=True)
    table = visits(4_000)
    print(f"{table.height:,} visits of {table['patient'].n_unique():,} patients")
    try:
        manifest = publish(table, place)
    except arf_dask.ReleaseError as refused:
        print(f"{refused}\nThe report says why: {place / 'report.html'}")
        return 1
    print(manifest)
    release = manifest.release
    assert release is not None
    print(f"levels merged: {release['levels_merged']}")
    print(f"values clipped: {release['values_clipped']}, copies redrawn: {manifest.redrawn:,}")
    print(manifest.scan().head(5).collect())
    print(f"The report: {place / 'report.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
