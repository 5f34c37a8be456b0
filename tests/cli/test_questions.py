"""Questions from a shell: the answers of the model's methods, with CSV or Parquet in and out."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner, Result
from polars.testing import assert_frame_equal

import arf_dask
from arf_dask.cli.main import cli

N = 400


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a model, new rows as CSV with semicolons, and a frame of conditions."""
    place = tmp_path_factory.mktemp("questions")
    r = np.random.default_rng(1)
    rows = pl.DataFrame(
        {
            "sex": r.choice(["f", "m"], N),
            "age": r.integers(18, 80, N),
            "born": pl.Series(r.integers(0, 10_000, N), dtype=pl.Int32).cast(pl.Date),
        }
    )
    arf_dask.fit(rows, trees=3, refine=False, seed=1).save(place / "m")
    new = rows[:20].with_columns(age=pl.when(pl.int_range(20) % 3 == 0).then(None).otherwise("age"), note=pl.lit("x"))
    new.write_csv(place / "new.csv", separator=";")
    pl.DataFrame({"sex": ["f", "m"]}).write_csv(place / "given.csv")
    return place


def run(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(cli, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result


def read_csv(text: str) -> pl.DataFrame:
    return pl.read_csv(io.StringIO(text), try_parse_dates=True)


def test_probability_is_that_of_the_model(place: Path) -> None:
    model = arf_dask.load(place / "m")
    expected = model.probability({"age": (30, 40)}, given={"sex": "f"})
    assert float(run("probability", place / "m", "--event", "age=30..40", "--given", "sex=f").stdout) == expected
    as_json = ["--event-json", '{"age": {"low": 30, "high": 40}}', "--json"]
    told = run("probability", place / "m", *as_json, "--given", "sex=f")
    assert json.loads(told.stdout) == {"probability": expected, "warnings": []}
    rows = run("probability", place / "m", "--event", "age=30..40", "--given-file", place / "given.csv").stdout
    assert float(rows.splitlines()[0]) == pytest.approx(expected, abs=1e-12)
    assert len(rows.splitlines()) == 2


def test_expect_writes_means_and_probabilities(place: Path, tmp_path: Path) -> None:
    model = arf_dask.load(place / "m")
    assert_frame_equal(read_csv(run("expect", place / "m", "age", "sex").stdout), model.expect(["age", "sex"]))
    run("expect", place / "m", "sex", "--levels", "--given", "age=..30", "--to", tmp_path / "levels.parquet")
    expected = model.expect(["sex"], given={"age": (None, 30)}, level_probabilities=True)
    assert_frame_equal(pl.read_parquet(tmp_path / "levels.parquet"), expected)


def test_quantiles_keep_the_type_of_their_column(place: Path) -> None:
    model = arf_dask.load(place / "m")
    shown = read_csv(run("quantile", place / "m", "born", 0.1, 0.9).stdout)
    assert shown.to_dict(as_series=False) == {"q": [0.1, 0.9], "born": model.quantile("born", [0.1, 0.9])}
    by_row = read_csv(run("quantile", place / "m", "age", 0.5, "--given-file", place / "given.csv").stdout)
    assert by_row["condition"].to_list() == [0, 1]
    given = pl.read_csv(place / "given.csv")
    assert by_row["age"].to_list() == [q for (q,) in model.quantile("age", [0.5], given=given)]


def test_score_adds_the_log_density(place: Path) -> None:
    model = arf_dask.load(place / "m")
    rows = pl.read_csv(place / "new.csv", separator=";", try_parse_dates=True)
    scored = read_csv(run("score", place / "m", place / "new.csv", "--separator", ";").stdout)
    assert scored.columns == [*rows.columns, "log_density"]
    expected = model.log_density(rows.drop("note"))
    assert scored["log_density"].to_list() == pytest.approx(expected.to_list())
    told = json.loads(
        run("score", place / "m", place / "new.csv", "--separator", ";", "--missing", "marginal", "--json").stdout
    )
    assert told["rows"][0]["log_density"] > expected[0]  # a missing age is integrated out


def test_a_row_that_cannot_occur_scores_null_in_json(place: Path, tmp_path: Path) -> None:
    pl.DataFrame({"age": [500]}).write_csv(tmp_path / "odd.csv")
    assert json.loads(run("score", place / "m", tmp_path / "odd.csv", "--json").stdout)["rows"] == [
        {"age": 500, "log_density": None}
    ]
    assert read_csv(run("score", place / "m", tmp_path / "odd.csv").stdout)["log_density"].to_list() == [-np.inf]


def test_impute_fills_in_and_draws(place: Path, tmp_path: Path) -> None:
    rows = pl.read_csv(place / "new.csv", separator=";", try_parse_dates=True)
    told = run("impute", place / "m", place / "new.csv", "--separator", ";", "--to", tmp_path / "full.parquet")
    full = pl.read_parquet(tmp_path / "full.parquet")
    assert "20 completed rows written" in told.output
    assert full.null_count().row(0) == (0, 0, 0, 0)
    assert_frame_equal(full.filter(rows["age"].is_not_null()), rows.filter(rows["age"].is_not_null()))
    words = ["impute", place / "m", place / "new.csv", "--separator", ";", "--draws", 3, "--seed", 1]
    drawn = read_csv(run(*words).stdout)
    assert drawn["draw"].to_list() == [1] * 20 + [2] * 20 + [3] * 20
    assert run(*words).stdout == run(*words).stdout
    assert json.loads(run(*words, "--json").stdout)["filled"] == 3 * 7


def test_wrong_usage_says_what_to_do(place: Path, tmp_path: Path) -> None:
    assert "--event COLUMN=VALUE" in run("probability", place / "m", code=2).output
    both = run("expect", place / "m", "--given", "sex=f", "--given-json", "{}", code=2)
    assert "choose one" in both.output
    assert "give a file" in run("score", place / "m", place / "new.csv", "--to", tmp_path / "dir", code=2).output
    assert 'say --separator ";"' in run("score", place / "m", place / "new.csv", code=1).output
    (tmp_path / "there.csv").write_text("x")
    assert "is there already" in run("expect", place / "m", "--to", tmp_path / "there.csv", code=1).output
    run("expect", place / "m", "--to", tmp_path / "there.csv", "--mode", "overwrite")
    assert (tmp_path / "there.csv").read_text().startswith("sex,age,born")


def test_check_reads_other_separators_and_refuses_unrelated_tables(place: Path, tmp_path: Path) -> None:
    assert "20 rows" in run("check", place / "m", place / "new.csv", "--separator", ";").output
    pl.DataFrame({"Sexx": ["f"], "b": [1]}).write_csv(tmp_path / "other.csv")
    assert "Did you mean 'sex'" in run("check", place / "m", tmp_path / "other.csv", code=1).output
    pl.DataFrame({"colour": ["f"], "b": [1]}).write_csv(tmp_path / "other.csv")
    assert (
        "no column of the model is in it: colour, b" in run("check", place / "m", tmp_path / "other.csv", code=1).output
    )


def test_errors_are_written_in_the_words_of_the_shell(place: Path, tmp_path: Path) -> None:
    words = ["sample", place / "m", "-n", 10, "--to", tmp_path / "out"]
    run(*words)
    assert "--mode resume to complete" in run(*words, code=1).output
    assert "mode=" not in run(*words, code=1).output
    told = run(*words, "--given", "age=500", code=1).output
    assert "mode=" not in told
    pl.DataFrame({"x": [1, 2, 3]}).write_csv(tmp_path / "few.csv")
    assert "--allow-copies" in run("fit", tmp_path / "few.csv", "--model", tmp_path / "n", code=1).output
    assert "'2007.5' is not" in run(*words[:4], "--to", "-", "--given", "age=2007.5", code=1).output
