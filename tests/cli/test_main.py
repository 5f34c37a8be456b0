"""The command line, as people and scripts use it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import date, datetime, timedelta
from datetime import time as clock
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner, Result
from polars.testing import assert_frame_equal

import arf_dask
from arf_dask.cli.condition_text import read_conditions, read_given, read_given_json, read_value
from arf_dask.cli.main import cli
from arf_dask.errors import OptionError
from tests.clusters import ROOT, Processes

N = 400
TOKYO = ZoneInfo("Asia/Tokyo")


def training_rows() -> pl.DataFrame:
    r = np.random.default_rng(1)
    return pl.DataFrame(
        {
            "id": range(1_000, 1_000 + N),
            "sex": r.choice(["f", "m"], N),
            "age": r.integers(18, 80, N),
            "bonus": [None if one < 0.5 else 100.0 * round(one, 2) for one in r.random(N)],
            "born": pl.Series(r.integers(0, 10_000, N), dtype=pl.Int32).cast(pl.Date),
        }
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a table in several forms, and a model of it."""
    place = tmp_path_factory.mktemp("files")
    frame = training_rows()
    frame.write_csv(place / "in.csv")
    frame.write_parquet(place / "in.parquet")
    for form in ("csv", "parquet"):
        (place / form).mkdir()
        for number in range(2):
            getattr(frame[number * 200 : (number + 1) * 200], f"write_{form}")(place / form / f"{number}.{form}")
    run("fit", place / "in.parquet", "--model", place / "m", "--seed", 1, "--trees", 3, "--key", "id", "--quiet")
    return place


def run(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(cli, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result


def shell(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """A real process."""
    command = [sys.executable, "-m", "arf_dask", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, **options)


# Real processes


def test_fit_then_sample_then_inspect_in_a_shell(files: Path, tmp_path: Path) -> None:
    options = ["--seed", 1, "--trees", 3, "--key", "id"]
    fitted = shell("fit", files / "in.csv", "--model", tmp_path / "m", *options)
    assert (fitted.returncode, fitted.stderr) == (0, "")
    assert fitted.stdout.startswith("Model of 400 rows and 5 columns")
    sampled = shell("sample", tmp_path / "m", "--to", tmp_path / "out", "-n", "1_000", "--seed", 2, "--json")
    facts = json.loads(sampled.stdout)
    assert (sampled.returncode, sampled.stderr) == (0, "")
    assert (facts["rows"], facts["seed"], len(facts["parts"])) == (1_000, 2, 1)
    drawn = arf_dask.Manifest.read(tmp_path / "out").scan().collect()
    assert_frame_equal(drawn, arf_dask.load(tmp_path / "m").sample(1_000, seed=2))
    shown = shell("inspect", tmp_path / "m")
    assert shown.returncode == 0
    assert "2 levels: f, m" in shown.stdout


def test_errors_are_one_line_and_exit_codes_tell_them_apart(files: Path, tmp_path: Path) -> None:
    failed = shell("inspect", tmp_path / "nothing")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("error: model")
    assert failed.stderr.count("\n") == 1
    assert shell("sample", files / "m").returncode == 2
    assert "Traceback" in shell("inspect", tmp_path / "nothing", "--debug").stderr
    told = shell("inspect", tmp_path / "nothing", "--json")
    assert (told.returncode, told.stderr) == (1, "")
    assert json.loads(told.stdout)["kind"] == "ModelFormatError"


def test_interrupt_is_130_and_leaves_a_run_that_resumes(files: Path, tmp_path: Path) -> None:
    words = ["sample", files / "m", "--to", tmp_path / "out", "-n", 20_000_000, "--seed", 1, "--rows-per-file", 50_000]
    command = [sys.executable, "-m", "arf_dask", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    deadline = time.monotonic() + 60
    while not list((tmp_path / "out").glob("*.parquet")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert told.strip() == "interrupted"
    assert not [path for path in (tmp_path / "out").iterdir() if path.is_dir()]


def test_a_reader_that_goes_away_is_no_traceback(files: Path) -> None:
    command = f"{sys.executable} -m arf_dask sample {files / 'm'} --to - -n 300000 --quiet | head -n 2"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=environment, timeout=60)
    assert done.stdout.splitlines()[0] == "id,sex,age,bonus,born"
    assert "Traceback" not in done.stderr


def test_a_scheduler_does_the_work(files: Path, tmp_path: Path) -> None:
    words = ["sample", files / "m", "-n", 2_000, "--seed", 3, "--rows-per-file", 500, "--json"]
    with Processes(tmp_path, workers=1) as processes:
        there = shell(*words, "--to", tmp_path / "there", "--scheduler", processes.address)
    assert there.returncode == 0, there.stdout
    here = run(*words, "--to", tmp_path / "here")
    assert json.loads(there.stdout)["parts"] == json.loads(here.stdout)["parts"]
    nobody = run("sample", files / "m", "--to", tmp_path / "x", "-n", 1, "--scheduler", "nonsense", "--json", code=1)
    assert json.loads(nobody.stdout)["kind"] == "ClusterError"


# In


@pytest.mark.parametrize("source", ["in.csv", "in.parquet", "csv", "parquet", "parquet/*.parquet", "csv/*.csv"])
def test_files_directories_and_patterns_are_read(files: Path, tmp_path: Path, source: str) -> None:
    told = run("fit", files / source, "--model", tmp_path / "m", "--json", "--trees", 2, "--key", "id")
    facts = json.loads(told.stdout)
    assert (facts["rows"], facts["n_columns"], facts["trees"], facts["keys"]) == (400, 5, 2, ["id"])
    assert facts["warnings"] == []


def test_several_files_are_one_table(files: Path, tmp_path: Path) -> None:
    several = [files / "csv" / "0.csv", files / "csv" / "1.csv"]
    told = run("fit", *several, "--model", tmp_path / "m", "--json", "--trees", 2)
    assert json.loads(told.stdout)["rows"] == 400
    assert "treated as identifiers: 'id'" in json.loads(told.stdout)["warnings"][0]
    loud = run("fit", *several, "--model", tmp_path / "m", "--trees", 2)
    assert loud.stderr.startswith("warning: treated as identifiers: 'id'")
    assert run("fit", *several, "--model", tmp_path / "m", "--trees", 2, "--quiet").output == ""


def test_options_of_fit_arrive(files: Path, tmp_path: Path) -> None:
    flags = ["--trees", 2, "--min-leaf", 20, "--max-rounds", 1, "--tolerance", 0.1, "--max-features", 2]
    flags += ["--rows-per-tree", 300, "--family", "uniform", "--support", "open", "--key", "id", "--seed", 7]
    flags += ["--column", "age=categorical", "--bundle", "sex,age"]
    run("fit", files / "in.parquet", "--model", tmp_path / "m", *flags)
    options = arf_dask.load(tmp_path / "m").options
    assert options["columns"] == {"age": "categorical"}
    assert options["bundles"] == [["sex", "age"]]
    expected: dict[str, Any] = {
        "trees": 2,
        "min_leaf": 20,
        "max_rounds": 1,
        "tolerance": 0.1,
        "max_features": 2,
        "seed": 7,
    }
    expected |= {"rows_per_tree": 300, "family": "uniform", "support": "open", "keys": ["id"]}
    assert {name: options[name] for name in expected} == expected
    run("fit", files / "in.parquet", "--model", tmp_path / "m", "--no-bundles", "--trees", 1)
    assert arf_dask.load(tmp_path / "m").options["bundles"] is False


@pytest.fixture(scope="module")
def refined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table in which a forest of large leaves misses that the sign of a product decides about a level."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 2_000)).round(2)
    data = pl.DataFrame({"a": a, "b": b, "sign": np.where(a * b > 0, "same", "other")})
    path = tmp_path_factory.mktemp("refined") / "in.parquet"
    data.write_parquet(path)
    return path


def test_refine_arrives_and_inspect_tells_of_it(refined: Path, tmp_path: Path) -> None:
    words: Any
    for words, option, is_refined in [
        ([], "auto", True),
        (["--refine", "yes"], True, True),
        (["--refine", "no"], False, False),
    ]:
        fitted = ["fit", refined, "--model", tmp_path / "m", "--trees", 2, "--min-leaf", 400, "--max-rounds", 1]
        run(*fitted, "--seed", 1, *words)
        model = arf_dask.load(tmp_path / "m")
        assert model.options["refine"] == option
        assert (model.refinement is not None) == is_refined
        told = json.loads(run("inspect", tmp_path / "m", "--json").stdout)["refinement"]
        lines = run("inspect", tmp_path / "m").stdout.splitlines()
        if model.refinement is None:
            assert told is None
            assert not any("refined" in line for line in lines)
            continue
        assert f"refined  {model.refinement.summary}" in lines
        assert (told["rounds"], told["acceptance"]) == (model.refinement.rounds, model.refinement.acceptance)
        assert told["features"] == model.refinement.importance.to_dicts()
        assert told["gain"] > 2 * told["gain_error"] > 0


def test_synthesize_takes_refine(refined: Path, tmp_path: Path) -> None:
    made = {}
    for word in ("yes", "no"):
        fitted = ["synthesize", refined, "--trees", 2, "--min-leaf", 400, "--seed", 1, "--refine", word]
        run(*fitted, "-n", 500, "--to", tmp_path / f"{word}.parquet")
        made[word] = pl.read_parquet(tmp_path / f"{word}.parquet")
    assert made["yes"].height == made["no"].height == 500
    assert not made["yes"].equals(made["no"])
    assert "maybe" in run("synthesize", refined, "--to", tmp_path / "o", "--refine", "maybe", code=2).stderr


def test_help_tells_the_defaults_of_min_leaf_and_refine() -> None:
    shown = " ".join(run("fit", "--help").stdout.split())
    assert "Default: 50 if refined, otherwise 20." in shown
    assert "--refine [auto|yes|no]" in shown
    assert "or never. [default: auto]" in shown


def test_wrong_input_is_told(files: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    words: Any
    for words, code, told in [
        (["fit", tmp_path / "no.csv", "--model", tmp_path / "m"], 1, "no.csv"),
        (["fit", files / "in.csv", "--model", tmp_path], 1, "holds something else than a model"),
        (["fit", files / "in.csv", "--model", tmp_path / "m", "--trees", 0], 1, "--trees 0"),
        (["fit", files / "in.csv", "--model", tmp_path / "m", "--column", "age"], 1, "NAME=KIND"),
        (["fit", files / "in.csv", "--model", tmp_path / "m", "--bundle", "a,b", "--no-bundles"], 2, "choose one"),
        (["fit", files / "in.csv"], 2, "--model"),
        (["fly"], 2, "fly"),
    ]:
        result = run(*words, code=code)
        assert told in result.stderr
        assert result.stdout == ""


# Out


def test_synthesize_is_as_long_as_its_input_unless_told(files: Path, tmp_path: Path) -> None:
    options = ["--trees", 2, "--key", "id", "--seed", 5]
    run("synthesize", files / "in.parquet", "--to", tmp_path / "twin.parquet", *options)
    twin = pl.read_parquet(tmp_path / "twin.parquet")
    assert twin.schema == training_rows().schema
    assert_frame_equal(twin, arf_dask.synthesize(training_rows(), seed=5, trees=2, keys=["id"]))
    run("synthesize", files / "in.csv", "--to", tmp_path / "twin.csv", "-n", 30, *options, "--given", "sex=f")
    assert pl.read_csv(tmp_path / "twin.csv")["sex"].to_list() == ["f"] * 30
    run("synthesize", files / "in.csv", "--to", tmp_path / "twin", "-n", 30, *options)
    words = ["synthesize", files / "in.csv", "--to", tmp_path / "twin", "-n", 30, "--mode", "resume"]
    assert json.loads(run(*words, *options, "--json").stdout)["rows"] == 30
    assert "needs the --seed" in run(*words, code=2).stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["twin", "twin.csv", "twin.parquet"]


def test_one_file_is_replaced_only_if_told(files: Path, tmp_path: Path) -> None:
    words = ["sample", files / "m", "--to", tmp_path / "x.csv", "-n"]
    run(*words, 5)
    before = (tmp_path / "x.csv").read_bytes()
    assert "is there already" in run(*words, 6, code=1).stderr
    assert "needs a directory" in run(*words, 6, "--mode", "resume", code=2).stderr
    assert (tmp_path / "x.csv").read_bytes() == before
    facts = json.loads(run(*words, 6, "--mode", "overwrite", "--json").stdout)
    assert pl.read_csv(tmp_path / "x.csv").height == 6
    assert facts["bytes"] == (tmp_path / "x.csv").stat().st_size
    assert "there is no directory" in run("sample", files / "m", "--to", tmp_path / "no/x.csv", "-n", 1, code=1).stderr
    (tmp_path / "d.csv").mkdir()
    assert "is a directory" in run("sample", files / "m", "--to", tmp_path / "d.csv", "-n", 1, code=1).stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.csv", "x.csv"]


def test_long_csv_files_have_one_header(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arf_dask.single_files.CSV_ROWS", 100)
    run("sample", files / "m", "--to", tmp_path / "x.csv", "-n", 250, "--seed", 1)
    drawn = pl.read_csv(tmp_path / "x.csv", try_parse_dates=True)
    assert_frame_equal(drawn, arf_dask.load(files / "m").sample(250, seed=1))


def test_rows_on_stdout_are_alone_there(files: Path) -> None:
    result = run("sample", files / "m", "--to", "-", "-n", 3, "--seed", 1)
    assert len(result.stdout.splitlines()) == 4
    assert result.stderr == "3 synthetic rows written to -, seed 1\n"
    assert "both want stdout" in run("sample", files / "m", "--to", "-", "-n", 3, "--json", code=2).output


def test_modes_of_a_data_set(files: Path, tmp_path: Path) -> None:
    words = ["sample", files / "m", "--to", tmp_path / "out", "--seed", 1, "-n"]
    first = run(*words, 50, "--json").stdout
    assert "not empty" in run(*words, 50, code=1).stderr
    assert run(*words, 50, "--json", "--mode", "resume").stdout == first
    assert "n: 50 there, 60 asked" in run(*words, 60, "--mode", "resume", code=1).stderr
    assert json.loads(run(*words, 60, "--json", "--mode", "overwrite").stdout)["rows"] == 60


# Conditions


def test_conditions_hold_for_every_row(files: Path, tmp_path: Path) -> None:
    given = ["--given", "age=30..40", "--given", "sex=f", "--given", "bonus=", "--given", "born=1970-01-01.."]
    run("sample", files / "m", "--to", tmp_path / "x.parquet", "-n", 50, *given)
    drawn = pl.read_parquet(tmp_path / "x.parquet")
    assert drawn.select((pl.col("age").is_between(30, 40) & (pl.col("sex") == "f")).all()).item()
    assert drawn["bonus"].null_count() == 50
    either = '[{"age": {"high": 20}}, {"age": [70, 71]}]'
    run("sample", files / "m", "--to", tmp_path / "y.parquet", "-n", 50, "--given-json", either)
    assert all(age <= 20 or age in (70, 71) for age in pl.read_parquet(tmp_path / "y.parquet")["age"])


def test_a_file_of_conditions_gives_n_rows_for_each(files: Path, tmp_path: Path) -> None:
    pl.DataFrame({"sex": ["f", "m", None], "born": ["1980-01-01", None, None]}).write_csv(tmp_path / "given.csv")
    run("sample", files / "m", "--to", tmp_path / "x.csv", "-n", 2, "--given-file", tmp_path / "given.csv",
        "--on-impossible", "relax")  # fmt: skip
    drawn = pl.read_csv(tmp_path / "x.csv")
    assert drawn["sex"].to_list()[:4] == ["f", "f", "m", "m"]
    assert drawn["born"].to_list()[:2] == ["1980-01-01"] * 2
    assert drawn.height == 6


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--given", "agee=3"], 1, "no column 'agee' in the data. Did you mean 'age'"),
        (["--given", "age"], 1, "'age' is not understood"),
        (["--given", "age=old"], 1, "given: 'age' is Int64, and 'old' is not. Write it as 42."),
        (["--given", "sex=x"], 1, "the level 'x' was never seen"),
        (["--given", "age=300"], 1, "probability zero"),
        (["--given-json", "{"], 1, "given as JSON"),
        (["--given-json", "[]"], 1, "given as JSON"),
        (["--given-json", '{"age": {"from": 1}}'], 1, "an interval is"),
        (["--given", "age=3", "--given-json", "{}"], 2, "choose one"),
        (["--on-impossible", "never"], 2, "never"),
        (["-n", "-3"], 2, "-3"),
    ],
)
def test_wrong_conditions_are_told(files: Path, tmp_path: Path, words: list[str], code: int, told: str) -> None:
    for flags in ([], ["--json"]):
        result = run("sample", files / "m", "--to", tmp_path / "out", "-n", 3, *words, *flags, code=code)
        assert told in (json.loads(result.stdout)["error"] if flags else " ".join(result.stderr.split()))
    assert not (tmp_path / "out").exists()


def test_a_wrong_condition_is_told_before_a_long_fit(tmp_path: Path) -> None:
    pl.DataFrame({"age": [1, 2]}).write_csv(tmp_path / "in.csv")
    told = run("synthesize", tmp_path / "in.csv", "--to", tmp_path / "out", "--trees", 0, "--given", "ag=1", code=1)
    assert "no column 'ag'" in told.stderr


# Words


@pytest.mark.parametrize(
    ("dtype", "text", "value"),
    [
        (pl.String(), "a=b..c|d", "a=b..c|d"),
        (pl.Categorical(), " x ", " x "),
        (pl.Enum(["u"]), "u", "u"),
        (pl.Boolean(), "True", True),
        (pl.Boolean(), "false", False),
        (pl.Int64(), "-42", -42),
        (pl.UInt128(), str(2**128 - 1), 2**128 - 1),
        (pl.Float64(), "1e-3", 0.001),
        (pl.Decimal(10, 2), "9.99", Decimal("9.99")),
        (pl.Date(), "2024-02-29", date(2024, 2, 29)),
        (pl.Time(), "23:59:59.5", clock(23, 59, 59, 500_000)),
        (pl.Duration("us"), "90s", timedelta(seconds=90)),
        (pl.Duration("ms"), "1w2d3h4m5s6ms", timedelta(9, 3 * 3600 + 4 * 60 + 5, 6_000)),
        (pl.Duration("us"), "-PT1H30M", -timedelta(minutes=90)),
        (pl.Datetime("us"), "2024-01-02T03:04:05", datetime(2024, 1, 2, 3, 4, 5)),
        (pl.Datetime("us", "Asia/Tokyo"), "2024-01-02", datetime(2024, 1, 2, tzinfo=TOKYO)),
        (pl.Datetime("us", "Asia/Tokyo"), "2024-01-02T00:00+09:00", datetime(2024, 1, 2, tzinfo=TOKYO)),
    ],
    ids=str,
)  # fmt: skip
def test_values_are_read_by_the_dtype_of_their_column(dtype: Any, text: str, value: Any) -> None:
    assert read_value(text, dtype, "x") == value
    assert read_given([f"c={text}"], {"c": dtype}) == {"c": value}
    frame = read_conditions(pl.DataFrame({"c": [text, None]}), {"c": dtype})
    assert frame.schema == {"c": dtype}


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        (pl.Boolean(), "1"),
        (pl.Int64(), "1.5"),
        (pl.Float64(), "x"),
        (pl.Decimal(10, 2), "x"),
        (pl.Date(), "2024-02-30"),
        (pl.Time(), "25:00"),
        (pl.Duration("us"), "5 apples"),
        (pl.Duration("us"), "P"),
        (pl.Datetime("us"), "2024-01-02T00:00+09:00"),
    ],
    ids=str,
)
def test_values_of_another_kind_are_refused_with_an_example(dtype: Any, text: str) -> None:
    with pytest.raises(OptionError, match=r"given: 'c' is .* is not\. Write it as"):
        read_given([f"c={text}"], {"c": dtype})


def test_intervals_choices_and_odd_names() -> None:
    dtypes = {"a": pl.Float64(), "a=b": pl.String(), "t": pl.Datetime("us")}
    assert read_given(["a=1.5..2.5", "a=..-1", "a="], dtypes) == {"a": [(1.5, 2.5), (None, -1.0), None]}
    assert read_given(["a=b=c=d"], dtypes) == {"a=b": "c=d"}
    assert read_given(["t=2020-01-01.."], dtypes) == {"t": (datetime(2020, 1, 1), None)}
    given = read_given_json('{"a": {"low": 1, "closed": "left"}, "a=b": ["", null]}', dtypes)
    assert given == {"a": arf_dask.Interval(1, None, "left"), "a=b": ["", None]}
    with pytest.raises(OptionError, match="no column 'z'"):
        read_given_json('{"z": 1}', dtypes)


# What is told


def test_inspect_tells_machines_everything(files: Path) -> None:
    facts = json.loads(run("inspect", files / "m", "--json").stdout)
    assert (facts["rows"], facts["trees"], facts["seed"], facts["keys"]) == (400, 3, 1, ["id"])
    columns = {column["name"]: column for column in facts["columns"]}
    assert columns["sex"]["levels"] == ["f", "m"]
    assert columns["age"]["low"] == training_rows()["age"].min()
    assert columns["born"]["dtype"] == "Date"
    assert facts["rounds"][0]["round"] == 0
    assert facts["bytes"] > 0


def test_inspect_shows_a_data_set(files: Path, tmp_path: Path) -> None:
    made = arf_dask.load(files / "m").sample_parquet(
        tmp_path / "o", 1_500, seed=2, rows_per_file=100, given={"sex": "f"}
    )
    shown = run("inspect", tmp_path / "o").stdout
    assert "1,500, synthetic, 5 columns, 15 files" in shown
    assert f"model     {made.model_hash[:12]}, seed 2" in shown
    assert "given     {'sex': 'f'}" in shown
    assert "part-00009.parquet  100 rows" in shown
    assert "... and 5 more" in shown
    assert run("inspect", tmp_path / "o", "--json").stdout == made.to_json()
    (tmp_path / "o" / "_manifest.parquet").write_bytes(b"PAR1")
    assert "_manifest.parquet: is damaged" in run("inspect", tmp_path / "o", code=1).stderr


@pytest.mark.parametrize(
    "words", [["--help"], ["fit", "-h"], ["sample", "-h"], ["synthesize", "-h"], ["inspect", "-h"]]
)
def test_help_says_enough(words: list[str]) -> None:
    text = run(*words).stdout
    assert "Exit codes" in text
    if words[0] in ("sample", "synthesize"):
        assert "--given age=30..40" in text


def test_version_and_unexpected_errors(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("--version").stdout.startswith("arf-dask, version")

    def broken(*_: Any) -> None:
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setattr("arf_dask.cli.main.load_model", broken)
    told = run("inspect", files / "m", code=1).stderr
    assert told == "error: ZeroDivisionError: by zero (unexpected; --debug shows where)\n"
