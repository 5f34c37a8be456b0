"""The report as a user meets it: figures, page, errors."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import arf_dask
from arf_dask.errors import DataError, OptionError
from arf_dask.reporting.distances import histogram
from arf_dask.reporting.page import privacy_colour

HOSTILE = ["<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "‮مرحبا", "n" * 500, "🦊\n&amp;", "a' b"]


def table(n: int, seed: int, names: Sequence[str] = ("x", "y", "level")) -> pl.DataFrame:
    rng = np.random.Generator(np.random.SFC64(seed))
    x = rng.normal(size=n).round(2)
    levels = pl.Series(["red", "green", "blue"]).gather(rng.integers(0, 3, n))
    return pl.DataFrame({names[0]: x, names[1]: (x + rng.normal(size=n)).round(2), names[2]: levels})


@pytest.fixture(scope="module")
def made() -> arf_dask.Report:
    real, holdout = table(600, 1), table(400, 2)
    model = arf_dask.fit(real, trees=5, seed=0, progress=False)
    synthetic = model.sample(600, seed=1)
    return arf_dask.report(
        real, synthetic, holdout=holdout, target="level", model=model, seed=0, shadows=2, progress=False
    )


def test_every_figure_is_there_as_plain_json(made: arf_dask.Report) -> None:
    figures = json.loads(made.to_json())
    assert figures == json.loads(json.dumps(made.to_dict()))
    assert 0.4 < figures["fidelity"]["detector_auc"] < 1
    assert figures["fidelity"]["columns"]["x"]["ks"] < 0.2
    assert set(figures["privacy"]["attacks"]) == {"nearest_neighbour", "domias", "logan", "log_density", "lira"}
    for attack in figures["privacy"]["attacks"].values():
        assert set(attack["tpr"]) == {"0.001", "0.01", "0.1"}
        assert attack["interval"][0] <= attack["auc"] <= attack["interval"][1]
    worst = max(attack["auc"] for attack in figures["privacy"]["attacks"].values())
    assert figures["privacy"]["worst_attack"] == worst
    assert set(figures["privacy"]["model_file"]) == {"lira_log_density"}
    assert figures["privacy"]["exposed_rows"][0].keys() == {"row", "attack", "outsiders"}
    assert figures["fidelity"]["target"]["target"] == "level"


def test_the_frame_has_one_row_per_figure(made: arf_dask.Report) -> None:
    frame = made.to_frame()
    assert frame.columns == ["section", "subject", "figure", "value"]
    found = frame.filter((pl.col("subject") == "lira") & (pl.col("figure") == "auc"))["value"].to_list()
    assert found == [made.to_dict()["privacy"]["attacks"]["lira"]["auc"]]


def test_the_same_seed_gives_the_same_report() -> None:
    real, synthetic, holdout = table(300, 1), table(300, 2), table(300, 3)
    reports = [
        arf_dask.report(real, synthetic, holdout=holdout, seed=5, shadows=2, progress=False).to_dict() for _ in "ab"
    ]
    assert reports[0] == reports[1]


def test_words_are_careful(made: arf_dask.Report) -> None:
    text = made.to_html() + repr(made)
    assert "Attack-tested" in text
    assert not re.search(r"\bis anonymous|\bare anonymous|anonymised", text)


def test_a_page_needs_nothing_from_elsewhere(made: arf_dask.Report, tmp_path: Path) -> None:
    made.save(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert len(page) < 3_000_000
    assert "<script" not in page
    assert not re.search(r"(src|href)=\"(?!data:)", page)
    assert "http" not in page.replace("http-equiv", "")
    made.save(tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text(encoding="utf-8")) == made.to_dict()
    assert "sandbox" in made._repr_html_()


def test_hostile_names_and_levels_are_inert() -> None:
    real = table(200, 1, HOSTILE[:3]).with_columns(
        pl.Series(HOSTILE[3], [HOSTILE[i % 6] for i in range(200)]), pl.Series("ok", [i % 9 for i in range(200)])
    )
    report = arf_dask.report(real, real, holdout=real, target=HOSTILE[0], seed=0, shadows=0, progress=False)
    page = report.to_html()
    assert "<script" not in page
    assert "<img" not in page
    assert "n" * 200 not in re.sub(r'title="[^"]*"', "", page)
    assert page.count("<bdi") == page.count("</bdi>")


def test_exposed_rows_are_shown_only_if_asked_for() -> None:
    real = table(300, 1).with_columns(pl.Series("secret", [f"S{i % 60}" for i in range(300)]))
    options: dict[str, Any] = {"holdout": real, "seed": 0, "shadows": 0, "progress": False}
    synthetic = real.with_columns(secret=pl.lit("S1"))
    assert not re.search(r"S(?!1\b)\d+</bdi>", arf_dask.report(real, synthetic, **options).to_html())
    assert re.search(r"S(?!1\b)\d+</bdi>", arf_dask.report(real, synthetic, show_rows=True, **options).to_html())


def test_without_held_out_rows_there_are_no_attacks_but_copies() -> None:
    real = table(200, 1)
    report = arf_dask.report(real, real, seed=0, progress=False)
    figures = report.to_dict()["privacy"]
    assert report.verdict.privacy == "100% of the synthetic rows are copies"
    assert privacy_colour(report.verdict) == "bad"
    fresh = arf_dask.report(real, table(200, 2), seed=0, progress=False)
    assert fresh.verdict.privacy == "Not attack-tested"
    with_holdout = arf_dask.report(real, real, holdout=table(200, 3), seed=0, shadows=0, progress=False)
    assert with_holdout.verdict.privacy == "100% of the synthetic rows are copies"
    assert figures["attacks"] == {}
    assert figures["worst_attack"] is None
    assert figures["copies"]["synthetic"]["identical"] == 1.0
    assert "Not tested" in report.to_html()


def test_rows_that_are_usually_repeated_are_no_copies_and_thirty_rows_get_no_verdict() -> None:
    coins = pl.DataFrame({"a": [0, 1] * 150, "b": [0, 0, 1, 1] * 75})
    report = arf_dask.report(coins, coins.reverse(), seed=0, progress=False)
    assert report.to_dict()["privacy"]["copies"]["real"]["identical"] == 1.0
    assert report.verdict.privacy == "Not attack-tested"
    few = arf_dask.report(table(30, 1), table(30, 2), seed=0, progress=False)
    assert few.verdict.fidelity == "Too few rows to say"


def test_any_frame_and_other_text_types_are_taken(tmp_path: Path) -> None:
    real = table(200, 1)
    real.write_csv(tmp_path / "real.csv")
    synthetic = table(150, 2).with_columns(pl.col("level").cast(pl.Categorical)).to_pandas()
    report = arf_dask.report(str(tmp_path / "real.csv"), synthetic, seed=0, progress=False)
    assert report.to_dict()["data"]["rows"] == {"real": 200, "synthetic": 150}


def test_errors_say_what_to_do() -> None:
    real = table(50, 1)
    with pytest.raises(DataError, match="synthetic lacks the columns 'y'"):
        arf_dask.report(real, real.drop("y"))
    with pytest.raises(DataError, match="synthetic has no rows"):
        arf_dask.report(real, real.clear())
    with pytest.raises(OptionError, match=r"target: no column 'levle'.*'level'"):
        arf_dask.report(real, real, target="levle")
    with pytest.raises(OptionError, match="shadows=1"):
        arf_dask.report(real, real, shadows=1)
    with pytest.raises(DataError, match=r"'x' is Float64 in the real and String in the synthetic"):
        arf_dask.report(real, real.with_columns(x=pl.lit("no")))
    with pytest.raises(OptionError, match=r"\.html or \.json"):
        arf_dask.report(real, real, seed=0, progress=False).save("report.pdf")


def test_progress_is_told() -> None:
    seen = []
    arf_dask.report(
        table(200, 1),
        table(200, 2),
        holdout=table(200, 3),
        seed=0,
        shadows=2,
        progress=lambda stage, done, total, facts: seen.append(stage),
    )
    assert list(dict.fromkeys(seen)) == [
        "columns",
        "pairs, detector, target",
        "copies",
        "attacks",
        "singling out, linkability, inference",
    ]


def test_rules_of_the_model_are_told() -> None:
    real = table(400, 1).with_columns(total=pl.col("x") + 2 * pl.col("y"))
    model = arf_dask.fit(real, rules=["total == x + 2 * y"], trees=3, seed=0, progress=False)
    broken = real.with_columns(pl.when(pl.int_range(pl.len()) < 100).then(1e3).otherwise("total").alias("total"))
    rules = arf_dask.report(real, broken, model=model, seed=0, progress=False).to_dict()["fidelity"]["rules"]
    assert [(rule["real"], rule["synthetic"]) for rule in rules if "total" in rule["rule"]] == [(1.0, 0.75)]


def test_held_out_rows_are_left_out_of_the_whole_table() -> None:
    rng = np.random.Generator(np.random.SFC64(6))
    frame = pl.DataFrame({"x": rng.normal(size=600), "k": rng.integers(0, 3, 600)})
    model = arf_dask.fit(frame, holdout=0.3, trees=3, seed=0, progress=False)
    rows = model.sample(400, seed=1)
    made = arf_dask.report(frame, rows, model=model, shadows=0, seed=0, progress=False)
    assert made.to_dict()["data"]["rows"] == {"real": 420, "synthetic": 400, "held out": 180}
    assert made.to_dict()["privacy"]["copies"]["holdout"]["identical"] == 0.0
    exposed = frame[[entry["row"] for entry in made.to_dict()["privacy"]["exposed_rows"]]]
    assert model.holdout is not None
    assert exposed.join(model.holdout, on=["x", "k"], how="semi").height == 0
    alone = arf_dask.report(frame, rows, holdout=model.holdout, shadows=0, seed=0, progress=False)
    assert alone.facts.rows["real"] == 420


def test_rows_that_happen_to_be_equal_are_kept() -> None:
    coarse = pl.DataFrame({"x": [0, 1, 2] * 100, "k": [0, 1] * 150})
    assert (
        arf_dask.report(coarse, coarse, holdout=coarse[:60], seed=0, shadows=0, progress=False).facts.rows["real"]
        == 300
    )


def test_axes_of_times_name_no_moment() -> None:
    seconds = pl.Series("t", np.arange(400) * 1_000_003 + 1_600_000_000_123_457).cast(pl.Datetime("us"))
    assert all(len(label) == len("2020-09-13 12:26") for label in histogram([seconds, seconds]).labels)
    long = pl.concat([seconds, seconds.dt.offset_by("400d")])
    assert all(len(label) == len("2020-09-13") for label in histogram([long, long]).labels)


def test_types_that_differ_are_refused_without_values() -> None:
    frame = pl.DataFrame({"x": [i % 7 for i in range(50)], "y": ["a", "b"] * 25})
    text = frame.with_columns(x=pl.lit("SECRET"))
    with pytest.raises(DataError) as refused:
        arf_dask.report(frame, frame, holdout=text, progress=False)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__
