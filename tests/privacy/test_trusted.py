"""Sensitivities: how much one unit changes exact counts, on neighbouring tables."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from arf_dask.data.parts import Parts, cut_frame, one_part
from arf_dask.errors import PrivacyError
from arf_dask.privacy.accountant import Accountant
from arf_dask.privacy.bins import value_cells
from arf_dask.privacy.declaration import DifferentialPrivacy
from arf_dask.privacy.domain import column_domains
from arf_dask.privacy.fitting import open_table
from arf_dask.privacy.trusted import FIXED_POINT, TrustedTable, group_pairs
from arf_dask.privacy.units import chosen_rows, most_per_unit
from arf_dask.runtime.seeds import Stage, generator
from arf_dask.runtime.tasks import Threads

ROWS = pl.DataFrame(
    {"a": [i % 5 for i in range(60)], "b": [i % 3 == 0 for i in range(60)], "c": [i % 4 for i in range(60)]}
)
PRIVATE = DifferentialPrivacy(1.0, bounds={"a": (0, 4), "c": (0, 3)})


def tuple_of_halves(counts: Any) -> Any:
    """Groups of two cells each, of both columns of a table."""
    return tuple((np.arange(size) // 2).astype(np.int32) for size in counts.shape)


def table_of(frame: pl.DataFrame, rho: float = 1e9) -> TrustedTable:
    parts = Parts(dict(frame.schema), cut_frame(frame), lambda result: result)
    table = TrustedTable(parts, None, 1, Accountant(rho), Threads(1))
    cells = [value_cells(domain) for domain in column_domains(dict(frame.schema), PRIVATE, set())]
    table.count_cells([one.cell_map for one in cells])
    return table


def test_one_row_changes_every_count_by_at_most_one() -> None:
    whole, less = table_of(ROWS), table_of(ROWS[1:])
    for pair, counts in whole._pairs.items():
        assert np.linalg.norm(counts - less._pairs[pair]) == 1.0
    for counts, fewer in zip(whole._ones, less._ones, strict=True):
        assert np.linalg.norm(counts - fewer) == 1.0


@pytest.mark.parametrize("row", [0, 7, 33])
def test_one_row_changes_every_score_by_at_most_one(row: int) -> None:
    whole, less = table_of(ROWS), table_of(pl.concat([ROWS[:row], ROWS[row + 1 :]]))
    rng = generator(1, Stage.PRIVACY, 9)
    for pair, counts in whole._pairs.items():
        groups = tuple_of_halves(counts)
        expected = rng.integers(0, 200, group_pairs(counts, groups).shape)
        scores = [np.abs(FIXED_POINT * group_pairs(t._pairs[pair], groups) - expected).sum() for t in (whole, less)]
        assert abs(int(scores[0]) - int(scores[1])) <= FIXED_POINT


def test_no_rows_give_counts_of_zero() -> None:
    table = table_of(ROWS[:0])
    assert all(not counts.any() for counts in table._ones)
    assert table._ones[0].shape == (5,)


def test_counts_do_not_depend_on_parts() -> None:
    frame = pl.concat([ROWS] * 3)
    one, many = table_of(frame), table_of(frame)
    cells = [value_cells(domain) for domain in column_domains(dict(frame.schema), PRIVATE, set())]
    pieces = [one_part(frame[i : i + 17]).items[0] for i in range(0, frame.height, 17)]
    many = TrustedTable(Parts(dict(frame.schema), pieces, lambda result: result), None, 1, Accountant(1e9), Threads(2))
    many.count_cells([cell.cell_map for cell in cells])
    assert all(np.array_equal(one._pairs[pair], many._pairs[pair]) for pair in one._pairs)


def test_an_answer_beyond_the_budget_is_refused_before_it_is_given() -> None:
    table = table_of(ROWS, rho=0.1)
    table.one_way(0, table.scale_for(0.06))
    with pytest.raises(PrivacyError, match="is left"):
        table.one_way(1, table.scale_for(0.06))


def test_counts_have_noise_of_the_requested_scale() -> None:
    table = table_of(ROWS)
    noise = np.concatenate([table.one_way(0, 25.0) - table._ones[0] for _ in range(800)])
    assert noise.std() == pytest.approx(25.0, rel=6 / np.sqrt(2 * len(noise)))
    pair_noise = (
        table.two_way((0, 2), (np.arange(5, dtype=np.int32), np.arange(4, dtype=np.int32)), 25.0) - table._pairs[0, 2]
    )
    assert 10 < pair_noise.std() < 50


def test_units_keep_at_most_so_many_rows() -> None:
    units = pl.Series([1] * 10 + [2] * 2 + [None] * 5)
    used = most_per_unit(units, generator(1, Stage.PRIVACY, 9).random(17), 3)
    assert [int(used[:10].sum()), int(used[10:12].sum()), int(used[12:].sum())] == [3, 2, 3]


def test_units_are_bounded_across_parts() -> None:
    frame = pl.DataFrame({"id": [i % 4 for i in range(40)], "x": range(40)})
    pieces = [one_part(frame[i : i + 7]).items[0] for i in range(0, 40, 7)]
    parts = Parts(dict(frame.schema), pieces, lambda result: result)
    used = chosen_rows(parts, "id", 2, Threads(1), generator(1, Stage.PRIVACY, 9))
    kept = frame.filter(pl.Series(np.concatenate(used)))
    assert kept["id"].value_counts()["count"].to_list() == [2, 2, 2, 2]


def test_the_choice_of_rows_cannot_be_repeated_from_anything_that_is_kept() -> None:
    """With a public seed, a unit that is added would change which rows of all other units are chosen."""
    frame = pl.DataFrame({"id": [i % 20 for i in range(400)], "a": [i % 5 for i in range(400)]})
    private = DifferentialPrivacy(1.0, unit="id", max_rows_per_unit=2, bounds={"a": (0, 4)})
    parts = one_part(frame)
    tables = [open_table(parts, private, Accountant(1.0), Threads(1)) for _ in range(2)]
    first, second = ([part.used for part in table._parts] for table in tables)
    assert first[0] is not None
    assert second[0] is not None
    assert first[0].sum() == second[0].sum() == 40
    assert (first[0] != second[0]).any()
