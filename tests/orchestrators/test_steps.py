"""The steps that all orchestrators call, without any of them."""

from pathlib import Path
from typing import Any

import fsspec
import polars as pl
import pytest

import arf_dask
from arf_dask.integrations.steps import fit_model, report_data_set, sample_data_set


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    frame = pl.DataFrame({"kind": ["a", "b", "c"] * 100, "x": [(i * 37) % 61 for i in range(300)]})
    for name, part in (("real", frame[:120]), ("twin", frame[120:200]), ("held_out", frame[200:])):
        part.write_parquet(tmp_path / f"{name}.parquet")
    return tmp_path


def test_a_report_returns_verdicts_and_figures_and_not_the_page(rows: Path) -> None:
    data, twin, page = str(rows / "real.parquet"), str(rows / "twin.parquet"), str(rows / "report.json")
    found = report_data_set(data, twin, page, seed=0, holdout=str(rows / "held_out.parquet"), shadows=0)
    assert found == report_data_set(data, twin, page, seed=0, holdout=str(rows / "held_out.parquet"), shadows=0)
    assert found["path"] == page
    assert 0 <= found["membership_auc"] <= 1
    assert report_data_set(data, twin, page, seed=0)["membership_auc"] is None


def test_a_figure_above_its_limit_stops_the_pipeline_after_the_page_was_written(rows: Path) -> None:
    data, twin, page = str(rows / "real.parquet"), str(rows / "twin.parquet"), rows / "report.html"
    with pytest.raises(arf_dask.ReleaseError, match="c2st"):
        report_data_set(data, twin, page, seed=0, limits={"c2st": 0.0})
    assert page.stat().st_size


def test_a_report_is_written_to_a_url(rows: Path) -> None:
    data, twin = str(rows / "real.parquet"), str(rows / "twin.parquet")
    report_data_set(data, twin, "memory://reports/twin.json", seed=0)
    with fsspec.open("memory://reports/twin.json") as file:
        assert file.read().startswith(b'{"verdict"')


@pytest.mark.parametrize("refine", [True, False])
def test_a_step_passes_refine_on_and_a_later_one_draws_from_what_was_stored(tmp_path: Path, refine: bool) -> None:
    x = [i % 7 for i in range(1_000)]
    pl.DataFrame({"x": x, "y": [value * value % 7 for value in x]}).write_parquet(tmp_path / "in.parquet")
    options: dict[str, Any] = {"trees": 2, "min_leaf": 400, "bundles": False, "find_rules": False, "dependence": "none"}
    fit_model(str(tmp_path / "in.parquet"), str(tmp_path / "m"), seed=0, refine=refine, **options)
    model = arf_dask.load(tmp_path / "m")
    assert (model.refinement is not None) == refine
    sample_data_set(str(tmp_path / "m"), str(tmp_path / "out"), 300, seed=1)
    assert pl.read_parquet(tmp_path / "out").equals(model.sample(300, seed=1))
