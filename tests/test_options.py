import json
from typing import Any

import numpy as np
import pytest

from arf_dask.errors import OptionError
from arf_dask.options import Options

NAMES = ["age", "city", "zip", "id"]


def test_defaults_are_valid() -> None:
    Options().check()
    Options().check_against(NAMES)


@pytest.mark.parametrize(
    "given",
    [
        {"trees": 1, "min_leaf": 1, "max_rounds": 0, "tolerance": 0.49},
        {"trees": np.int64(5), "tolerance": np.float32(0.1), "max_features": 1, "rows_per_tree": 1},
        {"bundles": False},
        {"bundles": True},
        {"bundles": [["city", "zip"]]},
        {"bundles": []},
        {"keys": ("id",), "columns": {"id": "key", "zip": "categorical", "age": "numeric"}},
        {"family": "uniform", "support": "open"},
    ],
)
def test_usable_values_pass(given: Any) -> None:
    options = Options(**given)
    options.check()
    options.check_against(NAMES)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"trees": 0}, "trees=0: give a whole number of at least 1"),
        ({"trees": 2.0}, "trees=2.0"),
        ({"trees": True}, "trees=True"),
        ({"min_leaf": -1}, "min_leaf=-1"),
        ({"max_rounds": -1}, "max_rounds=-1: give a whole number of at least 0"),
        ({"max_features": 0}, "max_features=0"),
        ({"rows_per_tree": "all"}, "rows_per_tree='all'"),
        ({"tolerance": 0.5}, "tolerance=0.5"),
        ({"tolerance": float("nan")}, "tolerance=nan"),
        ({"tolerance": "0"}, "tolerance='0'"),
        ({"family": "normal"}, "family='normal': give one of 'truncnorm', 'uniform'"),
        ({"support": None}, "support=None"),
        ({"columns": ["age"]}, "columns="),
        ({"columns": {"age": "number"}}, r"columns\['age'\]='number'"),
        ({"keys": "id"}, "keys='id': give a list"),
        ({"keys": [["id"]]}, r"keys: \['id'\] is not a column name"),
        ({"keys": [3, 3, "id", "id"]}, "keys: 3 is named twice"),
        ({"keys": ["id", "id"]}, "keys: 'id' is named twice"),
        ({"bundles": "all"}, "bundles='all'"),
        ({"bundles": None}, "bundles=None"),
        ({"bundles": ["city", "zip"]}, "bundles='city': give a list"),
        ({"bundles": [["city"]]}, "fewer than two columns"),
        ({"bundles": [["city", "city"]]}, "'city' is named twice"),
        ({"bundles": [["city", "zip"], ["zip", "age"]]}, "'zip' is named twice"),
        ({"keys": ["id"], "columns": {"id": "numeric"}}, "'id' is named in columns= as 'numeric' too"),
    ],
)
def test_other_values_are_refused_with_their_name(given: Any, message: Any) -> None:
    with pytest.raises(OptionError, match=message):
        Options(**given).check()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"columns": {"ages": "numeric"}}, "columns: no column 'ages' in the data. Did you mean 'age'?"),
        ({"keys": ["nr"]}, "keys: no column 'nr' in the data."),
        ({"keys": [3]}, "keys: no column 3 in the data."),
        ({"bundles": [["city", "zipp"]]}, "bundles: no column 'zipp' in the data. Did you mean 'zip'?"),
        ({"keys": ["id"], "bundles": [["city", "id"]]}, "bundles: 'id' is a key"),
        ({"columns": {"id": "key"}, "bundles": [["city", "id"]]}, "bundles: 'id' is a key"),
    ],
)
def test_names_that_are_no_columns_are_refused(given: Any, message: Any) -> None:
    options = Options(**given)
    options.check()
    with pytest.raises(OptionError) as caught:
        options.check_against(NAMES)
    assert str(caught.value).startswith(message)


def test_bundled_columns_are_those_of_explicit_bundles() -> None:
    assert Options(bundles=[["a", "b"], ("c", "d")]).bundled() == ["a", "b", "c", "d"]
    assert Options(bundles=False).bundled() == Options().bundled() == []


def test_options_are_plain_json() -> None:
    options = Options(columns={"zip": "categorical"}, keys=("id",), bundles=(("a", "b"),))
    again = json.loads(json.dumps(options.as_dict()))
    assert again == options.as_dict()
    assert again["bundles"] == [["a", "b"]]
    assert (again["trees"], again["keys"], again["columns"]) == (20, ["id"], {"zip": "categorical"})


def test_numpy_numbers_become_plain_json_too() -> None:
    numbers: dict[str, Any] = {"trees": np.int64(5), "tolerance": np.float32(0.25), "max_features": np.int32(2)}
    options = Options(**numbers)
    assert json.loads(json.dumps(options.as_dict()))["trees"] == 5
