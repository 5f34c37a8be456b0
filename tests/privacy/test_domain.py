"""Declared domains: every value has a cell, whatever it is, and cells give values of the column back."""

import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest

from arf_dask.errors import PrivacyError
from arf_dask.privacy.bins import _line_cells, value_cells
from arf_dask.privacy.declaration import DifferentialPrivacy
from arf_dask.privacy.domain import ColumnDomain, column_domains


def domain_of(dtype: Any, values: Any = (), **declared: Any) -> tuple[ColumnDomain, pl.Series]:
    series = pl.Series("x", values, dtype=dtype)
    given: dict[str, Any] = {name: {"x": value} for name, value in declared.items() if name != "nullable"}
    private = DifferentialPrivacy(1.0, **given, nullable=declared.get("nullable", False))
    return column_domains({"x": series.dtype}, private, set())[0], series


def test_integers_in_bounds_are_cells_and_others_are_clipped() -> None:
    domain, values = domain_of(pl.Int64, [17, 18, 90, -5, 10**15, None], bounds=(17, 90))
    assert domain.n_fine == 74
    assert domain.encode(values).tolist() == [0, 1, 73, 0, 73, 0]


def test_nulls_have_a_cell_only_if_they_are_declared() -> None:
    domain, values = domain_of(pl.Int64, [1, None, 3], bounds=(1, 3), nullable=True)
    assert domain.encode(values).tolist() == [0, 3, 2]


def test_other_texts_become_other() -> None:
    domain, values = domain_of(pl.String, ["Rome", "Oslo", "Paris", None], levels=["Rome", "Oslo"])
    assert domain.levels is not None
    assert domain.levels.to_list() == ["Rome", "Oslo", "(other)"]
    assert domain.encode(values).tolist() == [0, 1, 2, 2]


def test_other_numbers_become_the_nearest_level() -> None:
    domain, values = domain_of(pl.Int32, [1, 2, 6, 100], levels=[9, 1, 5])
    assert domain.encode(values).tolist() == [0, 0, 1, 2]


def test_types_declare_the_levels_of_enums_and_booleans() -> None:
    domain, values = domain_of(pl.Enum(["a", "b"]), ["b", "a"])
    assert (domain.source, domain.encode(values).tolist()) == ("type", [1, 0])
    domain, values = domain_of(pl.Boolean, [True, False, None])
    assert domain.encode(values).tolist() == [1, 0, 0]


def test_odd_floats_have_cells() -> None:
    domain, values = domain_of(
        pl.Float64,
        [0.0, 10.0, 2.5, math.nan, math.inf, -math.inf, None, -0.0, 1e300],
        bounds=(-10.0, 10.0),
        spikes=[2.5],
    )
    assert domain.atoms.tolist() == [-10.0, 0.0, 2.5, 10.0]
    assert domain.encode(values).tolist() == [1, 3, 2, 0, 3, 0, 0, 1, 3]


def test_floats_on_a_declared_grid_are_rounded_to_it() -> None:
    domain, values = domain_of(pl.Float64, [0.0, 0.3, 0.1 + 0.2, 1.0, 0.26], bounds=(0, 1, 0.1))
    assert domain.n_fine == 11
    assert domain.encode(values).tolist() == [0, 3, 3, 10, 3]
    assert domain.decode_points(np.array([0.3])).to_list() == [0.3]


@pytest.mark.parametrize(
    ("dtype", "low", "high", "inside"),
    [
        (pl.Date, date(2020, 1, 1), date(2029, 12, 31), date(2024, 2, 29)),
        (pl.Datetime("us"), datetime(2020, 1, 1), datetime(2021, 1, 1), datetime(2020, 5, 5, 1, 2, 3, 4)),
        (pl.Duration("ms"), timedelta(0), timedelta(days=9), timedelta(hours=5)),
        (pl.Time, time(0), time(23, 59), time(12, 30)),
        (pl.Decimal(10, 2), Decimal("0.00"), Decimal("900.00"), Decimal("12.34")),
        (pl.UInt64, 0, 2**63 + 5, 2**62),
        (pl.Int128, -(2**100), 2**100, 7),
        (pl.Float32, 0.0, 1.0, 0.5),
    ],
)
def test_values_of_every_type_have_cells_and_come_back(dtype: Any, low: Any, high: Any, inside: Any) -> None:
    domain, values = domain_of(dtype, [low, high, inside, None], bounds=(low, high), spikes=[inside], nullable=True)
    cells = _line_cells(domain, np.array([0])) if domain.n_bins else value_cells(domain)
    ids = cells.cell_map.cells[domain.encode(values)]
    back = cells.decode(ids, np.random.Generator(np.random.SFC64(1)))
    assert back.dtype == values.dtype
    assert back[3] is None
    if domain.axis is not None and domain.axis.lossless:
        assert back.to_list() == values.to_list()


def test_draws_stay_within_their_cell() -> None:
    domain, _ = domain_of(pl.Int64, bounds=(0, 1_000_000))
    cells = _line_cells(domain, np.array([0, 65_536]))
    drawn = cells.decode(
        np.repeat(np.arange(cells.n_cells), 500).astype(np.int32), np.random.Generator(np.random.SFC64(1))
    )
    again = cells.cell_map.cells[domain.encode(drawn)]
    inside = ~np.isin(drawn.to_numpy(), [0, 1_000_000])  # uniform draws may fall on an atom
    assert (again == np.repeat(np.arange(cells.n_cells), 500))[inside].all()


@pytest.mark.parametrize(
    ("dtype", "declared", "message"),
    [
        (pl.Int64, {}, r"'x' \(Int64\): say bounds=\{'x': \(low, high\)\}"),
        (pl.String, {}, r"'x' \(String\): say levels=\{'x': \[\.\.\.\]\}"),
        (pl.Int64, {"bounds": (5, 5)}, "a low value and a higher one"),
        (pl.Int64, {"bounds": ("a", "b")}, "cannot be read"),
        (pl.Date, {"bounds": (1, 5)}, "they are not Date"),
        (pl.Enum(["a"]), {"levels": ["a"]}, "come from its type"),
        (pl.Int64, {"levels": "private"}, "levels of numbers are declared"),
    ],
)
def test_domains_that_are_unknown_or_wrong_are_errors(dtype: Any, declared: Any, message: str) -> None:
    with pytest.raises(PrivacyError, match=message):
        domain_of(dtype, **declared)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epsilon": -1}, "epsilon=-1"),
        ({"epsilon": 1.0, "delta": 0.5}, "delta=0.5"),
        ({"epsilon": 1.0, "unit": "id"}, "say max_rows_per_unit= too"),
        ({"epsilon": 1.0, "max_rows_per_unit": 3}, "say unit= too"),
        ({"epsilon": 1.0, "bounds": {"x": 3}}, "bounds=3"),
        ({"epsilon": 1.0, "bounds": {"x": (1, 2)}, "levels": {"x": [1]}}, "both declared"),
        ({"epsilon": 1.0, "levels": {"x": "all"}}, "levels='all'"),
        ({"epsilon": 1.0, "nullable": "x"}, "nullable='x'"),
        ({"epsilon": 1.0, "key_patterns": {"x": "A-"}}, "key pattern 'A-'"),
    ],
)
def test_wrong_declarations_are_errors(arguments: Any, message: str) -> None:
    with pytest.raises(PrivacyError, match=message):
        DifferentialPrivacy(**arguments)
