"""Private fits from end to end: an ordinary model, a statement, a ledger, and nothing exact anywhere."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import arf_dask
from arf_dask import DifferentialPrivacy, Manifest, Model, PrivacyError

CITIES = ["Oslo", "Rome", "Paris"]


def people(n: int = 4_000) -> pl.DataFrame:
    rng = np.random.Generator(np.random.SFC64(5))
    city = rng.integers(0, 3, n)
    amount = np.where(rng.random(n) < 0.3, 0.0, np.round(rng.lognormal(3 + city, 0.5), 2))
    frame = pl.DataFrame(
        {
            "id": [f"P-{i:05d}" for i in range(n)],
            "customer": rng.integers(0, n // 3, n),
            "city": np.array(CITIES)[city],
            "age": rng.integers(18, 80, n),
            "amount": amount,
            "member": rng.random(n) < 0.2 + 0.3 * city,
        }
    )
    return frame.with_columns(age=pl.when(pl.col("age") % 10 == 0).then(None).otherwise("age"))


def declared(epsilon: float = 3.0, **more: Any) -> DifferentialPrivacy:
    domain = {"bounds": {"age": (18, 90), "amount": (0, 2_000), "customer": (0, 2_000)}, "levels": {"city": CITIES}}
    return DifferentialPrivacy(epsilon, **{**domain, "nullable": ["age"], "key_patterns": {"id": "P-#####"}, **more})


def fit(frame: pl.DataFrame, private: DifferentialPrivacy, **options: Any) -> Model:
    return arf_dask.fit(
        frame, privacy=private, **{"keys": ["id"], "trees": 5, "refine": False, "progress": False, **options}
    )


@pytest.fixture(scope="module")
def model() -> Model:
    return fit(people(), declared())


def test_a_private_model_is_an_ordinary_model(model: Model, tmp_path: Path) -> None:
    real, drawn = people(), model.sample(4_000, seed=1)
    assert drawn.schema == real.schema
    assert drawn["id"].n_unique() == 4_000
    assert drawn["id"].str.contains(r"^P-\d+$").all()
    assert drawn["amount"].is_between(0, 2_000).all()
    assert drawn["city"].is_in([*CITIES, "(other)"]).all()
    means = [frame.group_by("city").agg(pl.col("amount").mean()).sort("city") for frame in (real, drawn)]
    of = [dict(zip(frame["city"], frame["amount"], strict=True)) for frame in means]
    assert of[1]["Paris"] > 1.5 * of[1]["Rome"] > 1.5 * of[1]["Oslo"]
    assert abs((drawn["amount"] == 0).to_numpy().mean() - 0.3) < 0.1
    assert abs(drawn["age"].is_null().to_numpy().mean() - 0.1) < 0.05
    assert model.sample(50, given={"city": "Rome"}, seed=1)["city"].unique().to_list() == ["Rome"]
    assert 0 < model.probability({"member": True}) < 1
    model.save(tmp_path / "m")
    again = arf_dask.load(tmp_path / "m")
    assert again.sample(20, seed=3).equals(model.sample(20, seed=3))
    assert again.privacy == model.privacy


def test_the_statement_adds_up(model: Model, tmp_path: Path) -> None:
    statement = model.privacy
    assert statement is not None
    assert (statement.epsilon, statement.delta, statement.unit) == (3.0, 1e-9, "row")
    assert sum(one["rho"] for one in statement.mechanisms) <= statement.rho * (1 + 1e-9)
    assert sum(one["share"] for one in statement.mechanisms) > 0.999
    assert statement.domains == {
        "id": "identifier",
        "customer": "declared",
        "city": "declared",
        "age": "declared",
        "amount": "declared",
        "member": "type",
    }
    assert abs(statement.rows - 4_000) < 400
    assert statement.rows != 4_000 or statement.epsilon < 100
    assert "(3, 1e-09)-differentially private for one row" in repr(statement)
    manifest = model.sample_parquet(tmp_path / "out", 100, seed=1)
    assert manifest.privacy == statement.to_dict() == Manifest.read(tmp_path / "out").privacy
    assert json.loads(manifest.to_json())["privacy"]["epsilon"] == 3.0


def test_without_a_private_fit_there_is_no_statement() -> None:
    assert arf_dask.fit(people(100), trees=2, seed=1, keys=["id"]).privacy is None


def texts(model: Model, directory: Path) -> dict[str, Any]:
    """All that a model file and a manifest say in words and numbers, by place."""
    model.save(directory / "m")
    model.sample_parquet(directory / "out", 50, seed=1)
    stored = json.loads((directory / "m" / "model.json").read_text())
    return {"model": stored, "manifest": json.loads(Manifest.read(directory / "out").to_json())}


def test_no_exact_figure_of_the_data_is_written_anywhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # Figures that noise does not produce by accident: a row count, a level, extremes and an identifier of the data.
    frame = people(3_989).with_columns(
        city=pl.when(pl.int_range(pl.len()) == 7).then(pl.lit("Secretville")).otherwise("city"),
        amount=pl.when(pl.int_range(pl.len()) == 9).then(1_234_567.25).otherwise("amount"),
        id=pl.when(pl.int_range(pl.len()) == 11).then(pl.lit("X-secret-77")).otherwise("id"),
    )
    seen: list[Any] = []
    with caplog.at_level(logging.DEBUG):
        model = fit(frame, declared(), progress=lambda *state: seen.append(state))
    place = tmp_path / "one"
    place.mkdir()
    told = json.dumps(texts(model, place)) + caplog.text + repr(seen) + repr(model) + repr(model.schema)
    told += "".join(str(pl.read_parquet(file).to_dicts()) for file in place.rglob("*.parquet") if file.stat().st_size)
    for secret in ("Secretville", "1234567.25", "X-secret-77"):
        assert secret not in told


def test_the_number_of_rows_is_noisy() -> None:
    estimates = set()
    for _ in range(4):
        statement = fit(people(1_500), declared(), trees=2).privacy
        assert statement is not None
        estimates.add(statement.rows)
    assert len(estimates) > 1
    assert all(1_200 < rows < 1_800 for rows in estimates)


def test_neighbouring_tables_give_the_same_places_for_figures(tmp_path: Path) -> None:
    def places(value: Any, path: str = "") -> set[str]:
        if isinstance(value, dict):
            return {inner for name, one in value.items() for inner in places(one, f"{path}/{name}")}
        return {path}

    found = []
    outlier = pl.DataFrame(
        {"id": ["Z"], "customer": [999_999], "city": ["Elsewhere"], "age": [200], "amount": [-5e9], "member": [None]},
        schema=people(12).schema,
    )
    for name, frame in (("one", people()), ("other", pl.concat([people(), outlier]))):
        (tmp_path / name).mkdir()
        made = fit(frame, declared())
        told = texts(made, tmp_path / name)
        found.append(places({**told["model"]["options"], **told["manifest"]["privacy"]}))
        assert {"low", "high"} <= set(told["model"]["columns"][4].get("axis", {"low": 0, "high": 0}))
        assert made.privacy is not None
        assert made.privacy.domains == declared_domains()
    assert found[0] == found[1]


def declared_domains() -> dict[str, str]:
    return {
        "id": "identifier",
        "customer": "declared",
        "city": "declared",
        "age": "declared",
        "amount": "declared",
        "member": "type",
    }


@pytest.mark.parametrize("n", [0, 1, 3, 12])
def test_tables_of_any_size_are_fitted(n: int) -> None:
    drawn = fit(people(12)[:n], declared(), trees=2).sample(10, seed=1)
    assert drawn.height == 10


def test_errors_do_not_depend_on_rows() -> None:
    odd = people(20).with_columns(amount=pl.lit(float("inf")), city=pl.lit(None, dtype=pl.String))
    assert fit(odd, declared(), trees=2).sample(3, seed=1).height == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 1}, "seed=: is refused"),
        ({"holdout": 0.1}, "holdout=: is refused"),
        ({"release": arf_dask.ReleasePolicy()}, "release=: is refused"),
    ],
)
def test_arguments_that_would_reveal_something_are_refused(options: Any, message: str) -> None:
    with pytest.raises(PrivacyError, match=message):
        fit(people(20), declared(), **options)


def test_a_gate_on_real_rows_is_refused_and_a_report_is_marked(model: Model, tmp_path: Path) -> None:
    limits = arf_dask.Limits(c2st=0.9)
    with pytest.raises(PrivacyError, match="publish_if"):
        model.sample_parquet(tmp_path / "out", 10, publish_if=limits, real=people())
    with pytest.warns(arf_dask.PrivacyWarning, match="keep the report where the real rows are"):
        arf_dask.report(people(200), model.sample(200, seed=1), model=model, shadows=0, progress=False)


def test_kinds_of_data_with_inferred_types_are_refused(tmp_path: Path) -> None:
    people(20).write_csv(tmp_path / "t.csv")
    with pytest.raises(PrivacyError, match="the types of CSV are inferred"):
        fit(tmp_path / "t.csv", declared())  # type: ignore[arg-type]
    with pytest.raises(PrivacyError, match="pandas columns of objects"):
        fit(people(20).to_pandas().astype({"city": object}), declared())  # type: ignore[arg-type]


def test_columns_without_a_domain_are_listed() -> None:
    with pytest.raises(PrivacyError, match=r"'age' \(Int64\): .*'amount' \(Float64\): .*'city'|undeclared columns"):
        fit(people(20), DifferentialPrivacy(1.0))


def test_parquet_files_and_lazy_frames_are_read_part_by_part(tmp_path: Path) -> None:
    people().write_parquet(tmp_path / "t.parquet", row_group_size=500)
    assert fit(tmp_path / "t.parquet", declared(), trees=2).sample(5, seed=1).height == 5  # type: ignore[arg-type]
    made = arf_dask.synthesize(people().lazy(), privacy=declared(), keys=["id"], trees=2, refine=False, progress=False)
    assert isinstance(made, pl.LazyFrame)
    assert abs(made.collect().height - 4_000) < 400


def test_units_are_bounded_and_get_fresh_identifiers() -> None:
    model = fit(
        people(), declared(unit="customer", max_rows_per_unit=2, bounds={"age": (18, 90), "amount": (0, 2_000)})
    )
    statement = model.privacy
    assert statement is not None
    assert (statement.unit, statement.max_rows_per_unit) == ("customer", 2)
    assert {one["sensitivity"] for one in statement.mechanisms} == {2}
    assert "one customer (2 rows at most)" in statement.summary
    assert model.schema["customer"].kind == "key"


def test_levels_and_bounds_can_be_bought() -> None:
    frame = people(20_000).with_columns(
        city=pl.when(pl.int_range(pl.len()) == 7).then(pl.lit("Secretville")).otherwise("city")
    )
    model = fit(
        frame,
        declared(bounds={"age": "private", "amount": "private", "customer": (0, 7_000)}, levels={"city": "private"}),
    )
    statement = model.privacy
    assert statement is not None
    assert statement.domains["city"] == statement.domains["amount"] == "private"
    assert sum(one["delta"] for one in statement.mechanisms) <= 5e-10
    assert sum(one["rho"] for one in statement.mechanisms) <= statement.rho * (1 + 1e-9)
    drawn = model.sample(5_000, seed=1)
    assert set(drawn["city"]) <= {*CITIES, "(other)"}
    assert set(CITIES) <= set(drawn["city"])
    assert drawn["age"].is_between(0, 128).all()


def test_declared_rules_hold_in_drawn_rows() -> None:
    frame = people().with_columns(double=pl.col("age").fill_null(18) * 2)
    model = fit(
        frame,
        declared(bounds={"age": (18, 90), "double": (36, 180), "amount": (0, 2_000), "customer": (0, 2_000)}),
        rules=["age <= double"],
    )
    drawn = model.sample(1_000, seed=1).drop_nulls()
    assert (drawn["age"] <= drawn["double"]).all()


# The ledger.


def test_a_ledger_adds_up_and_refuses_beyond_its_cap(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    fit(people(50), declared(1.0), trees=2, privacy_ledger=path)
    ledger = json.loads(path.read_text())
    assert (ledger["unit"], ledger["cap"], len(ledger["fits"])) == ("row", None, 1)
    ledger["cap"] = {"epsilon": 1.6, "delta": 1e-9}
    path.write_text(json.dumps(ledger))
    fit(people(50), declared(1.0), trees=2, privacy_ledger=path)
    with pytest.raises(PrivacyError, match=r"epsilon would be 1\.\d+ at delta 1e-09, and the cap is 1\.6"):
        fit(people(50), declared(1.0), trees=2, privacy_ledger=path)
    assert len(json.loads(path.read_text())["fits"]) == 2
    assert [file.name for file in tmp_path.iterdir()] == ["ledger.json"]


def test_a_fit_that_fails_has_been_entered(tmp_path: Path) -> None:
    class StoppedError(Exception):
        pass

    def stop(*_: Any) -> None:
        raise StoppedError

    with pytest.raises(StoppedError):
        fit(people(50), declared(1.0), trees=2, privacy_ledger=tmp_path / "ledger.json", progress=stop)
    assert len(json.loads((tmp_path / "ledger.json").read_text())["fits"]) == 1


def test_a_ledger_of_another_unit_or_damaged_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    fit(people(50), declared(1.0), trees=2, privacy_ledger=path)
    with pytest.raises(PrivacyError, match="Costs of different units do not add up"):
        fit(
            people(50),
            declared(1.0, unit="customer", max_rows_per_unit=1, bounds={"age": (18, 90), "amount": (0, 2_000)}),
            privacy_ledger=path,
        )
    path.write_text("{")
    with pytest.raises(PrivacyError, match="damaged"):
        fit(people(50), declared(1.0), privacy_ledger=path)


def test_a_ledger_may_be_at_a_url(tmp_path: Path) -> None:
    import fsspec

    fit(people(50), declared(1.0), trees=2, privacy_ledger="memory://ledgers/a.json")
    fit(people(50), declared(1.0), trees=2, privacy_ledger="memory://ledgers/a.json")
    assert len(json.loads(fsspec.filesystem("memory").cat("/ledgers/a.json"))["fits"]) == 2
