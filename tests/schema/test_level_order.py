"""The order of levels: what belongs together is contiguous, so that one or two splits separate it."""

from itertools import pairwise

import numpy as np
import polars as pl

from arf_dask.schema.discrete import Discrete
from arf_dask.schema.learning import infer_schema
from arf_dask.schema.level_order import coarse_members, nested_order, nested_orders, scored_levels

ZONES = np.array([[0, 0], [1, 0], [2, 0], [3, 0], [4, 1], [5, 1], [6, 1], [7, 1]], dtype=np.int32)  # zone, borough


def test_a_column_of_few_levels_is_coarse_where_another_names_the_states() -> None:
    [borough] = coarse_members(ZONES)
    assert borough.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    # Columns on a par: neither names the combinations.
    assert coarse_members(np.array([[a, b] for a in range(4) for b in range(4)], dtype=np.int32)) == []
    # Two names of one thing: neither is coarse.
    assert coarse_members(np.array([[a, a] for a in range(8)], dtype=np.int32)) == []


def test_states_with_few_rows_are_scored_by_a_coarse_column() -> None:
    borough = ZONES[:, 1]
    few_rows = Discrete(np.arange(8, dtype=np.int32).repeat(3), 8)
    many_rows = Discrete(np.arange(8, dtype=np.int32).repeat(5), 8)
    assert scored_levels(few_rows, [borough]).ids.tolist() == borough[few_rows.ids].tolist()
    assert scored_levels(many_rows, [borough]) is many_rows
    assert scored_levels(few_rows, []) is few_rows
    lone_rows = Discrete(np.arange(8, dtype=np.int32), 8)
    assert scored_levels(lone_rows, [borough]).n_values == 1


def test_levels_of_the_leading_column_are_contiguous() -> None:
    # Six states; the first coarse column says nothing about the other variable, the second one decides it.
    states = Discrete(np.tile(np.arange(6, dtype=np.int32), 50), 6)
    silent, telling = np.array([0, 1, 0, 1, 0, 1], dtype=np.int32), np.array([0, 0, 1, 1, 1, 0], dtype=np.int32)
    other = Discrete(telling[states.ids], 2)
    order = nested_order(states, [silent, telling], [other], other.ids.astype(float))
    assert sorted(order[:3].tolist()) == [0, 1, 5]
    assert sorted(order[3:].tolist()) == [2, 3, 4]


def contiguous(values: list[object]) -> bool:
    changes = sum(one != other for one, other in pairwise(values))
    return changes == len(set(values)) - 1


def test_zones_of_a_borough_follow_each_other() -> None:
    rng = np.random.default_rng(3)
    zone = rng.integers(0, 60, 3_000)
    borough = zone % 5
    target = np.where(rng.random(3_000) < 0.7, borough, rng.integers(0, 5, 3_000))
    frame = pl.DataFrame(
        {
            "zone": [f"zone {number}" for number in zone],
            "borough": [f"borough {number}" for number in borough],
            "target": target,
            "fare": rng.gamma(2, 9, 3_000) + 3 * borough,
        }
    )
    schema = infer_schema(frame, kinds={}, keys=[])
    assert schema.bundles == [["zone", "borough"]]
    assert contiguous(schema.variables[0].tokens[:, 1].tolist())


def test_nested_places_are_ordered_from_coarse_to_fine() -> None:
    rng = np.random.default_rng(4)
    street = rng.integers(0, 120, 4_000)
    city, country = street % 24, street % 4  # four countries with six cities of five streets
    frame = pl.DataFrame(
        {
            "street": [f"street {number}" for number in street],
            "city": [f"city {number}" for number in city],
            "country": [f"country {number}" for number in country],
            "price": np.round(rng.normal(10 * country + city / 3, 1), 2),
        }
    )
    schema = infer_schema(frame, kinds={}, keys=[])
    [variable] = [v for v in schema.variables if len(v.columns) == 3]
    assert contiguous(variable.tokens[:, 1].tolist())
    assert contiguous(variable.tokens[:, 2].tolist())


def test_a_coarse_column_that_says_nothing_does_not_lead() -> None:
    # Eight states in two groups; what the other variable follows is the number of the state, not its group.
    rng = np.random.default_rng(5)
    states = Discrete(rng.integers(0, 8, 2_000).astype(np.int32), 8)
    group = np.arange(8, dtype=np.int32) % 2
    other = Discrete((states.ids // 2).astype(np.int32), 4)
    assert nested_orders([states, other], {0: [group]}) == {}
    assert nested_orders([states, other], {}) == {}
