"""Rules and conditions that once failed: each is answered, or refused with what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import arf_dask
from arf_dask import ModelFormatError, OptionError
from arf_dask.rules.expressions import Name
from arf_dask.rules.transforms.formula import Computed

ROWS = 200


def table() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "a": rng.integers(0, 300, ROWS),
            "b": rng.integers(0, 400, ROWS),
            "c": rng.choice(["x", "y", "z"], ROWS),
            "f": rng.normal(size=ROWS),
        }
    )


def fitted(frame: pl.DataFrame, **options: Any) -> arf_dask.Model:
    return arf_dask.fit(frame, trees=3, max_rounds=1, seed=1, **options)


@pytest.mark.filterwarnings("ignore::arf_dask.RuleWarning")
@pytest.mark.parametrize("rule", ["a <= 345", "a == 3", "c == 'x'", "f >= -9.5"])
def test_a_rule_against_a_constant_survives_save_and_load(rule: str, tmp_path: Path) -> None:
    model = fitted(table(), rules=[rule])
    model.save(tmp_path / "model")
    loaded = arf_dask.load(tmp_path / "model")
    rows = loaded.sample(50, seed=2)
    assert rows.equals(model.sample(50, seed=2))
    assert loaded.check(rows)["broken"].sum() == 0


def test_an_infinite_number_in_a_rule_is_refused() -> None:
    with pytest.raises(OptionError, match="infinite"):
        fitted(table(), rules=["a <= 1e999"])


def test_a_model_that_cannot_be_read_again_is_not_saved_and_the_old_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = fitted(table().with_columns(b=pl.col("a") * 2))
    model.save(tmp_path / "model")
    before = model.sample(5, seed=1)
    step = next(step for step in model._tables.relations.transforms if isinstance(step, Computed))
    monkeypatch.setitem(step.__dict__, "formula", Name(step.target.name))
    with pytest.raises(ModelFormatError, match="not saved"):
        model.save(tmp_path / "model")
    assert arf_dask.load(tmp_path / "model").sample(5, seed=1).equals(before)
