"""URLs of stores whose fsspec package is not installed: the error names our extra, whatever is called."""

import sys
from pathlib import Path
from typing import Any

import fsspec
import polars as pl
import pytest
from fsspec.registry import _registry

import arf_dask
from arf_dask.cli.main import cli
from arf_dask.errors import MissingExtraError

PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}
EXTRAS = {"s3fs": "s3", "gcsfs": "gcs", "adlfs": "azure"}
DATA = pl.DataFrame({"x": [1.0, 2.0, 3.0] * 20, "a": ["u", "v", "v"] * 20})


@pytest.fixture(scope="module")
def model() -> arf_dask.Model:
    return arf_dask.fit(DATA, trees=2, max_rounds=1, seed=1)


@pytest.fixture(autouse=True)
def without_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    for scheme, package in PACKAGES.items():
        monkeypatch.setitem(sys.modules, package, None)
        monkeypatch.delitem(_registry, scheme, raising=False)  # classes that were imported before


@pytest.mark.parametrize("scheme", PACKAGES)
def test_all_that_takes_a_url_names_the_extra(model: arf_dask.Model, scheme: str) -> None:
    url = f"{scheme}://bucket/x"
    expected = rf"{url}.*pip install 'arf-dask\[{EXTRAS[PACKAGES[scheme]]}\]'"
    calls: list[Any] = [
        lambda: model.save(url),
        lambda: arf_dask.load(url),
        lambda: arf_dask.Manifest.read(url),
        lambda: model.sample_parquet(url, 10, seed=1),
        lambda: arf_dask.synthesize(DATA, 10, to=url, trees=2, max_rounds=1, seed=1),
    ]
    for call in calls:
        with pytest.raises(MissingExtraError, match=expected):
            call()


def test_a_scheme_that_fsspec_knows_from_its_package_alone_names_the_extra(model: arf_dask.Model) -> None:
    if "abfss" in fsspec.available_protocols():
        pytest.skip("adlfs is installed, and has registered its schemes")
    with pytest.raises(MissingExtraError, match=r"pip install 'arf-dask\[azure\]'"):
        model.save("abfss://bucket@account/x")


def test_data_of_other_stores_name_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "paramiko", None)
    monkeypatch.delitem(_registry, "sftp", raising=False)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.sftp", raising=False)
    with pytest.raises(MissingExtraError, match=r"host/x\.parquet: .*paramiko") as told:
        arf_dask.fit("sftp://me:S3CRET@host/x.parquet")
    assert "S3CRET" not in str(told.value)


def test_the_command_line_names_the_extra(model: arf_dask.Model, tmp_path: Path, capsys: Any) -> None:
    model.save(tmp_path / "model")
    for words in (
        ["sample", str(tmp_path / "model"), "-n", "5", "--to", "s3://bucket/x"],
        ["inspect", "s3://bucket/x"],
    ):
        with pytest.raises(SystemExit):
            cli.main(words)
        assert "pip install 'arf-dask[s3]'" in capsys.readouterr().err
