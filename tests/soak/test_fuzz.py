"""A few random tables of the fuzzer, as `make fuzz` runs by the thousand."""

import pytest

from tests.soak.fuzz import run_case
from tests.soak.fuzz_frames import make_case


@pytest.mark.parametrize("seed", [0, 4, 112, 303])
def test_random_tables_with_random_rules_keep_all_laws(seed: int) -> None:
    assert [str(failure) for failure in run_case(make_case(seed)).failures] == []
