"""The same job over ssh, under Slurm's scripts, and the manifest for Kubernetes.

The packages live in an environment of their own (`make test-clusters`). A real sshd listens on the loopback; a stand-in
for sbatch and scancel runs the very scripts that dask-jobqueue writes for Slurm.
"""

import getpass
import importlib.metadata
import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

import arf_dask
from retail import retail_orders

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.filterwarnings("default")  # those of the deployment packages are their own
SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:" + os.environ["PATH"])
SBATCH = """#!/bin/sh
copy=$(mktemp) && cp "$1" "$copy"  # as Slurm does: the caller removes its own
setsid sh "$copy" > /dev/null 2>&1 &
echo "Submitted batch job $!"
"""
SCANCEL = """#!/bin/sh
for job in "$@"; do kill -- "-$job"; done
"""


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    for number, part in enumerate(retail_orders(600).iter_slices(200)):
        part.write_parquet(tmp_path / f"orders-{number}.parquet")
    return tmp_path


def run_job(client: Any, orders: Path) -> None:
    """The job of docs/clusters.md, compared with the same job without a cluster."""
    client.wait_for_workers(2, timeout=120)
    fitting: dict[str, Any] = {"trees": 4, "keys": ["order_id"], "seed": 1}
    model = arf_dask.fit(str(orders / "*.parquet"), client=client, **fitting)
    model.sample_parquet(orders / "twin", 500, seed=1, rows_per_file=200, client=client)
    alone = arf_dask.fit(str(orders / "*.parquet"), **fitting)
    assert pl.read_parquet(orders / "twin").equals(alone.sample(500, seed=1))


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port


def make_key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


@pytest.fixture
def ssh_options(tmp_path: Path) -> Iterator[dict[str, Any]]:
    if SSHD is None:
        pytest.skip("sshd is not installed (openssh-server)")
    port, host_key, user_key = free_port(), make_key(tmp_path / "host"), make_key(tmp_path / "user")
    (tmp_path / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {host_key}\nAuthorizedKeysFile {user_key}.pub\nStrictModes no\n"
        f"PidFile none\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd insists on it
    started = subprocess.Popen([SSHD, "-D", "-f", str(tmp_path / "sshd_config")], stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        yield {"port": port, "username": getpass.getuser(), "client_keys": [str(user_key)], "known_hosts": None}
    finally:
        started.terminate()
        started.wait()


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if not probe.connect_ex(("127.0.0.1", port)):
                return
        time.sleep(0.1)
    raise AssertionError("sshd does not answer")


def test_ssh_cluster(ssh_options: dict[str, Any], orders: Path) -> None:
    pytest.importorskip("asyncssh")
    from dask.distributed import SSHCluster

    cluster = SSHCluster(
        ["127.0.0.1"] * 3,  # the scheduler, and two workers
        connect_options=ssh_options,
        worker_options={"nthreads": 1},
        scheduler_options={"port": 0, "dashboard_address": ":0"},
        remote_python=sys.executable,
    )
    with cluster, cluster.get_client() as client:
        run_job(client, orders)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        script = tmp_path / "bin" / name
        script.write_text(text)
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")


def test_slurm_cluster(slurm: None, orders: Path) -> None:
    jobqueue = pytest.importorskip("dask_jobqueue")
    cluster = jobqueue.SLURMCluster(
        cores=1,
        processes=1,
        memory="2GB",
        walltime="00:10:00",
        python=sys.executable,
        interface="lo",
        log_directory=str(orders),
        job_script_prologue=["export POLARS_MAX_THREADS=1 OMP_NUM_THREADS=1"],
        scheduler_options={"dashboard_address": ":0"},
    )
    assert "#SBATCH -t 00:10:00" in cluster.job_script()
    with cluster, cluster.get_client() as client:
        cluster.scale(jobs=2)
        run_job(client, orders)


def test_the_kubernetes_manifest_fits_the_schema_of_the_operator() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    try:
        files = importlib.metadata.files("dask-kubernetes")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("dask-kubernetes is not installed")
    (definition,) = [file for file in files or () if file.match("*/crds/daskjob.yaml")]
    (version,) = yaml.safe_load(definition.read_text())["spec"]["versions"]
    manifest = yaml.safe_load((ROOT / "docker" / "kubernetes.yaml").read_text(encoding="utf-8"))
    assert manifest["apiVersion"] == f"kubernetes.dask.org/{version['name']}"
    jsonschema.validate(manifest, closed(version["schema"]["openAPIV3Schema"]))


def closed(schema: Any) -> Any:
    """The schema with unknown fields as errors: Kubernetes drops them in silence, and misspelt ones with them."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: closed(value) for name, value in schema.items()}
    names = schema.get("properties")
    if (
        schema.get("type") == "object"
        and isinstance(names, dict)
        and "x-kubernetes-preserve-unknown-fields" not in schema
    ):
        found["additionalProperties"] = False
        if {"spec", "status"} <= set(names):  # the schema leaves these to Kubernetes itself
            found["properties"].update({name: {} for name in ("apiVersion", "kind", "metadata")})
    return found
