"""A canary audit of the answers about rows: lower bounds of epsilon from many answers with and without one unit.

The bound is below the claim for the product, and above it for planted mistakes: units that are not bounded, an exact
number of rows, and bounds that are read from the data.
"""

import math
from collections.abc import Callable

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from scipy.stats import beta

from arf_dask.data.parts import one_part
from arf_dask.privacy.accountant import Accountant
from arf_dask.privacy.bins import value_cells
from arf_dask.privacy.declaration import DifferentialPrivacy
from arf_dask.privacy.domain import column_domains
from arf_dask.privacy.noise import rho_of
from arf_dask.privacy.trusted import TrustedTable
from arf_dask.privacy.units import chosen_rows
from arf_dask.runtime.seeds import Stage, entropy, generator
from arf_dask.runtime.tasks import Threads

CLAIM, DELTA = 1.0, 1e-6
RUNS, UNIT_ROWS = 1_000, 30
CONFIDENCE = 0.999
ROWS = pl.DataFrame({"unit": range(100), "x": [i % 4 for i in range(100)]})
CANARY = pl.DataFrame({"unit": [1_000] * UNIT_ROWS, "x": [9] * UNIT_ROWS})  # in a cell that is empty without it
Answer = Callable[[pl.DataFrame], float]


def lower_bound(answer: Answer) -> float:
    """The epsilon that answers with and without the canary prove at least, by Clopper-Pearson."""
    without = np.array([answer(ROWS) for _ in range(RUNS)])
    within = np.array([answer(pl.concat([ROWS, CANARY])) for _ in range(RUNS)])
    half = RUNS // 2  # thresholds are chosen on one half, and judged on the other
    thresholds = np.unique(np.quantile(np.concatenate([without[:half], within[:half]]), np.linspace(0.02, 0.98, 40)))
    found = [bound_at(within[:half], without[:half], threshold) for threshold in thresholds]
    return bound_at(within[half:], without[half:], thresholds[int(np.argmax(found))])


def bound_at(within: NDArray[np.float64], without: NDArray[np.float64], threshold: float) -> float:
    """The bound of the attack that says "canary" at and above a threshold."""
    hits, alarms, n = int((within >= threshold).sum()), int((without >= threshold).sum()), len(within)
    alpha = 1 - CONFIDENCE
    hit_rate = float(beta.ppf(alpha / 2, hits, n - hits + 1)) if hits else 0.0
    alarm_rate = float(beta.ppf(1 - alpha / 2, alarms + 1, n - alarms)) if alarms < n else 1.0
    return math.log(max(hit_rate - DELTA, 1e-12) / alarm_rate)


def noisy_count(frame: pl.DataFrame, rows_per_unit: int, *, bounds_units: bool) -> float:
    """The noisy count of the canary's cell, with the whole budget of the claim."""
    parts = one_part(frame)
    rng = generator(entropy(None), Stage.PRIVACY, 0)
    used = chosen_rows(parts, "unit", rows_per_unit, Threads(1), rng) if bounds_units else None
    table = TrustedTable(parts, used, rows_per_unit, Accountant(RHO), Threads(1))
    private = DifferentialPrivacy(CLAIM, bounds={"x": (0, 9)})
    domain = column_domains({"x": pl.Int64()}, private, set())[0]
    table.count_cells([value_cells(domain).cell_map])
    return float(table.one_way(0, table.scale_for(RHO))[9])


RHO = rho_of(CLAIM, DELTA)


@pytest.mark.slow
@pytest.mark.parametrize("rows_per_unit", [1, 3])
def test_the_bound_of_the_product_is_below_its_claim(rows_per_unit: int) -> None:
    assert lower_bound(lambda frame: noisy_count(frame, rows_per_unit, bounds_units=True)) < CLAIM


@pytest.mark.slow
def test_units_that_are_not_bounded_are_found() -> None:
    assert lower_bound(lambda frame: noisy_count(frame, 1, bounds_units=False)) > CLAIM


@pytest.mark.parametrize("mistake", [lambda frame: float(frame.height), lambda frame: float(frame["x"].max())])
def test_exact_figures_are_found(mistake: Answer) -> None:
    assert lower_bound(mistake) > CLAIM
