"""docs/defaults.md states the settings that the package has."""

import re
from pathlib import Path

from arf_dask.options import LEAF_ROWS, REFINED_LEAF_ROWS, REFINED_ROWS
from arf_dask.refinement.boosting import Boosting
from arf_dask.training.refining import FRESH_ROWS, LEAST_ROWS, MOST_CELLS

PAGE = (Path(__file__).parents[2] / "docs" / "defaults.md").read_text(encoding="utf-8")
SECTION = PAGE.split("\n## refine\n")[1].split("\n## ")[0]


def test_the_settings_of_boosting_are_those_of_the_learner() -> None:
    stated = dict(re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", SECTION, flags=re.MULTILINE))
    assert stated == {name: str(value) for name, value in Boosting._field_defaults.items()}


def test_the_numbers_of_rows_are_those_of_fit() -> None:
    text = " ".join(SECTION.split())
    assert f"a model of at least {REFINED_ROWS} training rows" in text
    assert f"leaves of at least {REFINED_LEAF_ROWS} rows, any other of at least {LEAF_ROWS}" in text
    assert f"at most {MOST_CELLS:,} cells" in text
    assert f"at least {LEAST_ROWS:,} rows are taken" in text
    assert f"{FRESH_ROWS:,} further rows" in text
