"""A batch job on a Dask cluster: fit from files, write a data set, resume if it was stopped.

    python examples/dask_batch.py 'orders/*.parquet' out 1000000 --scheduler tcp://scheduler:8786

Without --scheduler it starts a cluster of two processes on this machine. Run the same command again after a crash: it
completes what is missing and rewrites nothing.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack

from distributed import Client, LocalCluster

import arf_dask


def main() -> None:
    """Read the command line and run the job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("to")
    parser.add_argument("rows", type=int)
    parser.add_argument("--scheduler")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows-per-file", type=int, default=250_000)
    job = parser.parse_args()
    with ExitStack() as stack:
        address = job.scheduler
        if address is None:
            local = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
            address = stack.enter_context(local).scheduler_address
        client = stack.enter_context(Client(address))
        model = arf_dask.fit(job.data, trees=10, seed=job.seed, client=client)
        made = model.sample_parquet(
            job.to, job.rows, seed=job.seed, rows_per_file=job.rows_per_file, mode="resume", client=client
        )
    print(made)


if __name__ == "__main__":  # workers are started by spawning, which imports this file
    main()
