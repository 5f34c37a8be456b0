from __future__ import annotations

import json
import re
from datetime import date
from decimal import Decimal
from itertools import pairwise
from uuid import UUID

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import arf_dask
from arf_dask.data.keys import KeyShape, fresh_keys
from arf_dask.data.profiling import profile_frame
from arf_dask.data.template_learning import learn_strings
from arf_dask.data.templates import _scatter, find_growth, fresh_strings, split_words
from arf_dask.errors import OptionError

RANDOM = np.random.default_rng(7)
NAMES = ["anna", "bob", "charlie", "dmitri", "eve", "frank", "gustav", "hal", "irene", "john", "kim", "lou"]


def learn_key(series: pl.Series) -> KeyShape:
    """The shape of a column that is declared a key."""
    [profile] = profile_frame(series.to_frame(), {}, [series.name])
    assert profile.key is not None
    return profile.key


def looks_like_key(series: pl.Series) -> bool:
    [profile] = profile_frame(series.to_frame(), {}, [])
    return profile.kind == "key"


def fresh(series: pl.Series, n: int, first_row: int = 0, seed: int = 3) -> pl.Series:
    return fresh_keys(learn_key(series), first_row, n, np.random.default_rng(0), series.name, series.dtype, seed)


def integers(*values: int | None, dtype: type[pl.DataType] = pl.Int64) -> pl.Series:
    return pl.Series("k", values, dtype=dtype)


def classes(text: str) -> str:
    marked = re.sub("[a-z]", "a", re.sub("[A-Z]", "A", re.sub("[0-9]", "0", text)))
    return re.sub(r"[^\x00-\x7f]", "é", marked)


def random_digits(n_digits: int, n: int) -> list[str]:
    return [f"{number:0{n_digits}d}" for number in np.unique(RANDOM.integers(0, 10**n_digits, n)).tolist()]


def random_uuids(n: int) -> list[str]:
    return [str(UUID(bytes=RANDOM.bytes(16), version=4)) for _ in range(n)]


def emails(n: int) -> list[str]:
    first, last, host = (RANDOM.choice(NAMES, n) for _ in range(3))
    return sorted({f"{a}.{b}{i % 97}@{c}.com" for i, (a, b, c) in enumerate(zip(first, last, host, strict=True))})


COLUMNS = {
    "padded sequence": [f"ORD-{number:06d}" for number in range(1, 401)],
    "full sequence": [f"ORD-{number:03d}" for number in range(1000)],
    "unpadded sequence": [f"user{number}@example.com" for number in range(1, 501)],
    "random digits": random_digits(6, 500),
    "UUIDs": random_uuids(200),
    "few UUIDs": random_uuids(5),
    "short hexadecimals": [f"{number:06x}" for number in np.unique(RANDOM.integers(0, 16**6, 900)).tolist()],
    "e-mail addresses": emails(600),
    "number plates": [f"{a}{b}-{number}" for a in "ABCDEF" for b in "XYZ" for number in range(10, 40)],
    "letter pairs": [chr(65 + a) + chr(65 + b) for a in range(26) for b in range(26)],
    "letters of both cases": [chr(65 + a) + chr(97 + b) for a in range(26) for b in range(26)],
    "mixed shapes": [*random_digits(4, 300), *random_uuids(40), *[f"A-{n}" for n in range(50)], "", "x", "#"],
    "Chinese": ["".join(map(chr, RANDOM.integers(0x4E00, 0x4E40, 3))) for _ in range(300)],
    "emoji": ["".join(RANDOM.choice(["😀", "😃", "🎉"], size)) for size in (1, 2, 3, 4) for _ in range(9)],
    "punctuation": ["." * n + "-" * m for n in range(6) for m in range(6)],
    "empty string": [""],
    "one value": ["UNKNOWN"] * 100,
    "long text": ["".join(RANDOM.choice(list("abc DE12,"), 400)) for _ in range(40)],
    "control characters": [f"\x00{n}\n\x00" for n in range(40)],
}


# Which columns are keys


@pytest.mark.parametrize("dtype", [pl.String, pl.Categorical])
def test_strings_are_a_key_from_85_percent_distinct_on(dtype: type[pl.DataType]) -> None:
    distinct = [f"v{number}" for number in range(85)]
    assert looks_like_key(pl.Series([*distinct, *["v0"] * 15, None, None], dtype=dtype))
    assert not looks_like_key(pl.Series([*distinct, *["v0"] * 16], dtype=dtype))


def test_fewer_than_30_values_are_never_a_key() -> None:
    assert not looks_like_key(pl.Series("id", [*map(str, range(29)), None, None]))
    assert not looks_like_key(pl.Series("id", range(29)))
    assert looks_like_key(pl.Series("id", [*map(str, range(30)), None, None]))


def test_integers_that_are_all_different_are_a_key_only_if_they_are_dense_or_named_so() -> None:
    squares = [number**2 for number in range(100)]
    assert not looks_like_key(pl.Series("population", squares))
    assert looks_like_key(pl.Series("order_id", squares))
    assert not looks_like_key(pl.Series("order_id", [*squares, 0]))
    assert looks_like_key(pl.Series("v", range(7, 207)))
    assert not looks_like_key(pl.Series("year", range(1900, 2000)))


def test_thirty_integers_are_a_key_if_close_together_or_named_like_one() -> None:
    squares = [number**2 for number in range(30)]
    assert looks_like_key(pl.Series("v", range(500, 560, 2)))
    assert not looks_like_key(pl.Series("v", squares))
    for name in (
        "id",
        "order_id",
        "OrderID",
        "orderId",
        "userid",
        "Account No.",
        "api-key",
        "ZIP code",
        "n°_nr",
    ):
        assert looks_like_key(pl.Series(name, squares)), name
    for name in ("piano", "monkey", "identity", "notes"):
        assert not looks_like_key(pl.Series(name, squares)), name


@pytest.mark.parametrize("dtype", [pl.Float64, pl.Decimal(10, 0), pl.Date, pl.Datetime, pl.Duration, pl.Time])
def test_measures_and_times_are_never_a_key(dtype: pl.DataType) -> None:
    assert not looks_like_key(pl.Series("id", range(200)).cast(dtype))


def test_enums_and_booleans_are_never_a_key() -> None:
    names = [f"v{number}" for number in range(50)]
    assert not looks_like_key(pl.Series("id", names, dtype=pl.Enum(names)))
    assert not looks_like_key(pl.Series("id", [True, False] * 50))


# Integers


def test_integers_go_on_after_the_highest_in_their_step() -> None:
    assert fresh(integers(30, 10, None, 20, 50), 3).drop_nulls().is_in([60, 70, 80]).all()
    assert fresh(integers(30, 10, 20, 50), 3).to_list() == [60, 70, 80]
    assert fresh(integers(30, 10, 20, 50), 2, first_row=5).to_list() == [110, 120]


def test_integers_that_are_no_sequence_go_on_by_one() -> None:
    assert fresh(integers(4, 1_000, 88_000), 2).to_list() == [88_001, 88_002]
    assert fresh(integers(7), 2).to_list() == [8, 9]


def test_at_the_end_of_the_type_integers_go_on_below_the_lowest() -> None:
    column = integers(120, 122, 124, dtype=pl.Int8)
    assert fresh(column, 4).to_list() == [126, 118, 116, 114]
    assert fresh(column, 2, first_row=1).to_list() == [118, 116]


def test_a_full_type_is_an_error_that_tells_what_to_do() -> None:
    column = integers(*range(2, 255), dtype=pl.UInt8)
    assert fresh(column, 3).to_list() == [255, 1, 0]
    with pytest.raises(ValueError, match=r"column 'k': .* 3 fresh keys, but 4 are needed\. Cast the column to a wider"):
        fresh(column, 4)


@pytest.mark.parametrize(
    ("dtype", "highest"),
    [(pl.UInt64, 2**64 - 10), (pl.Int128, 2**100), (pl.Int128, -(2**127) + 5), (pl.UInt128, 2**128 - 10)],
)
def test_wide_integers_stay_exact(dtype: type[pl.DataType], highest: int) -> None:
    column = integers(highest - 2, highest, highest - 4, dtype=dtype)
    assert fresh(column, 3).to_list() == [highest + 2, highest + 4, highest + 6]
    assert fresh(column, 3).dtype == dtype


@pytest.mark.parametrize("scale", [0, 2])
def test_decimals_go_on_in_their_own_scale(scale: int) -> None:
    unit = Decimal(1).scaleb(-scale)
    column = pl.Series("k", [-3 * unit, -2 * unit, -unit], dtype=pl.Decimal(9, scale))
    result = fresh(column, 3)
    assert result.to_list() == [0 * unit, unit, 2 * unit]
    assert result.dtype == column.dtype


# Strings, worked out by hand


@pytest.mark.parametrize(
    ("column", "first", "after"),
    [
        ("padded sequence", "ORD-000401", "ORD-000402"),
        ("full sequence", "ORD-1000", "ORD-1001"),
        ("unpadded sequence", "user501@example.com", "user502@example.com"),
        ("letter pairs", "BAA", "BAB"),
        ("empty string", "1", "2"),
    ],
)
def test_sequences_go_on(column: str, first: str, after: str) -> None:
    assert fresh(pl.Series(COLUMNS[column]), 2).to_list() == [first, after]


def test_a_sequence_grows_a_digit_when_its_own_are_used_up() -> None:
    column = pl.Series([f"K{number}x" for number in range(900, 998)])
    assert fresh(column, 4).to_list() == ["K998x", "K999x", "K1000x", "K1001x"]


def test_uuids_stay_uuids_of_their_version_and_variant() -> None:
    result = [UUID(text) for text in fresh(pl.Series(COLUMNS["UUIDs"]), 500)]
    assert all(key.version == 4 for key in result)


def test_few_uuids_stay_hexadecimal() -> None:
    assert all(UUID(text) for text in fresh(pl.Series(COLUMNS["few UUIDs"]), 100))


def test_emails_keep_their_common_host() -> None:
    column = pl.Series([f"{a}.{b}@example.org" for a in NAMES for b in NAMES])
    assert fresh(column, 200).str.contains(r"^[a-z]+\.[a-z]+@example\.org$").all()


def test_forms_come_in_their_shares() -> None:
    column = pl.Series([*random_digits(9, 300), *[f"X-{text}" for text in random_digits(8, 100)]])
    share = fresh(column, 10_000).str.starts_with("X-").mean()
    assert share == pytest.approx(0.25, abs=0.01)


def test_categorical_keys_come_back_categorical() -> None:
    result = fresh(pl.Series("k", COLUMNS["padded sequence"], dtype=pl.Categorical), 2)
    assert result.dtype == pl.Categorical
    assert result.to_list() == ["ORD-000401", "ORD-000402"]


def test_growth_replaces_the_last_digits_of_the_last_run() -> None:
    assert find_growth(["A", "0-9", "-", "x", "0-9", "0-9", "y", "."]) == (4, 6, 2)
    assert find_growth(["a-z", "a-z", "@"]) == (0, 2, 0)
    assert find_growth(["x", "a-z"]) == (2, 2, 2)
    assert find_growth(["-", ""]) == (2, 2, 0)


def test_words_are_cut_where_the_next_position_would_not_fit() -> None:
    assert split_words([10] * 20) == [(0, 18), (18, 20)]
    assert split_words([]) == [(0, 0)]


@settings(deadline=None)
@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
def test_scattering_is_one_to_one(size: int, key: int) -> None:
    result = _scatter(np.arange(size, dtype=np.uint64), size, key)
    assert np.sort(result).tolist() == list(range(size))


# All columns


@pytest.mark.parametrize("name", COLUMNS)
def test_keys_are_distinct_and_never_copied(name: str) -> None:
    training = pl.Series(COLUMNS[name])
    result = fresh(training, 20_000)
    assert result.n_unique() == 20_000
    assert not result.is_in(training.implode()).any()


@pytest.mark.parametrize("name", COLUMNS)
def test_cutting_into_blocks_changes_nothing(name: str) -> None:
    training = pl.Series(COLUMNS[name])
    cuts = [0, 1, 1, 700, 4096, 6000]
    blocks = [fresh(training, end - begin, begin) for begin, end in pairwise(cuts)]
    assert pl.concat(blocks).to_list() == fresh(training, 6000).to_list()


@pytest.mark.parametrize("name", COLUMNS)
def test_a_shape_survives_json(name: str) -> None:
    shape = learn_key(pl.Series(COLUMNS[name]))
    assert KeyShape.from_dict(json.loads(json.dumps(shape.to_dict()))) == shape


@pytest.mark.parametrize("name", ["random digits", "UUIDs", "e-mail addresses", "Chinese", "number plates"])
def test_lengths_and_classes_are_kept_while_there_is_room(name: str) -> None:
    forms = {classes(text) for text in COLUMNS[name]}
    lengths = {len(text) for text in COLUMNS[name]}
    result = fresh(pl.Series(COLUMNS[name]), 40)
    assert set(result.str.len_chars()) <= lengths
    if name not in ("UUIDs", "e-mail addresses"):  # there, letters and digits mix freely within a position
        assert {classes(text) for text in result} <= forms


@pytest.mark.parametrize("name", COLUMNS)
def test_a_shape_holds_no_training_value(name: str) -> None:
    shape = learn_key(pl.Series(COLUMNS[name])).to_dict()["values"]
    literals = {
        shape["prefix"],
        shape["suffix"],
        *("".join(template["positions"]) for template in shape["templates"]),
    }
    assert not (literals - {""}) & set(COLUMNS[name])


def test_a_rare_form_keeps_no_letter_or_digit_and_no_value() -> None:
    shape = learn_key(pl.Series([*COLUMNS["random digits"], *[f"Bob-{n}7" for n in range(10, 29)], "-+-"]))
    written = json.dumps(shape.to_dict()["values"]["templates"])
    rare = [entry["positions"] for entry in shape.to_dict()["values"]["templates"] if "-" in entry["positions"]]
    assert rare == [["A-Z", "a-z", "a-z", "-", "0-9", "0-9", "0-9"]]
    assert "+" not in written


def test_another_seed_gives_other_keys() -> None:
    training = pl.Series(COLUMNS["UUIDs"])
    assert not fresh(training, 100, seed=1).is_in(fresh(training, 100, seed=2).implode()).any()


def test_the_order_of_training_rows_does_not_matter() -> None:
    training = pl.Series(COLUMNS["mixed shapes"])
    assert learn_key(training) == learn_key(training.reverse())


def test_far_rows_have_keys_too() -> None:
    for name in COLUMNS:
        assert fresh(pl.Series(COLUMNS[name]), 50, first_row=10**12).n_unique() == 50


TEXTS = st.text(alphabet="aB0129fZ-.é中\x00", max_size=5)


@settings(deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=120), st.integers(0, 2**64 - 1), st.integers(0, 900))
def test_any_strings_give_distinct_new_keys_whatever_the_blocks(texts: list[str], seed: int, cut: int) -> None:
    training = pl.Series(texts, dtype=pl.String)
    blocks = pl.concat([fresh(training, cut, 0, seed), fresh(training, 900 - cut, cut, seed)])
    assert blocks.n_unique() == 900
    assert not blocks.is_in(training.implode()).any()
    assert blocks.to_list() == fresh(training, 900, 0, seed).to_list()


FORMS = ["{}", "{:03d}", "N{:x}", "{:x}", "{:o}-z", "{:X}{:d}", "{:d}x{:d}", "a{:d}b", "Q-{:05d}-7", "{:c}"]


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(FORMS), min_size=1, max_size=4),
    st.sets(st.integers(48, 1500), min_size=20, max_size=300),
)
def test_any_written_numbers_give_distinct_new_keys(forms: list[str], numbers: set[int]) -> None:
    training = pl.Series([form.format(number, number) for form in forms for number in numbers])
    result = fresh(training, 3000)
    assert result.n_unique() == 3000
    assert not result.is_in(training.implode()).any()


@settings(deadline=None)
@given(
    st.lists(st.integers(-100, 100), min_size=1, max_size=30, unique=True),
    st.integers(0, 12),
    st.sampled_from([pl.Int16, pl.Int64, pl.Int128, pl.Decimal(5, 0), pl.Decimal(38, 3)]),
)
def test_any_integers_give_distinct_new_keys_whatever_the_blocks(
    values: list[int], cut: int, dtype: pl.DataType
) -> None:
    training = pl.Series("k", values).cast(dtype)
    whole = fresh(training, 12)
    assert whole.n_unique() == 12
    assert not set(whole.to_list()) & set(training.to_list())
    assert [*fresh(training, cut).to_list(), *fresh(training, 12 - cut, cut).to_list()] == whole.to_list()
    assert KeyShape.from_dict(json.loads(json.dumps(learn_key(training).to_dict()))) == learn_key(training)


# Nulls, and what cannot be done


@pytest.mark.parametrize("dtype", [pl.String, pl.Categorical, pl.Int16, pl.Decimal(9, 2)])
@pytest.mark.parametrize("values", [[None], [None, None]])
def test_a_column_without_values_gives_nulls(dtype: pl.DataType, values: list[None]) -> None:
    column = pl.Series("k", values, dtype=dtype)
    shape = KeyShape.from_dict(json.loads(json.dumps(learn_key(column).to_dict())))
    result = fresh_keys(shape, 5, 3, np.random.default_rng(0), "k", dtype, seed=1)
    assert result.to_list() == [None] * 3
    assert result.dtype == dtype


@pytest.mark.parametrize("dtype", [pl.String, pl.Categorical, pl.UInt32, pl.Int128, pl.Decimal(9, 2)])
def test_the_share_of_nulls_is_kept(dtype: pl.DataType) -> None:
    column = pl.Series("k", range(100)).cast(dtype if dtype != pl.Categorical else pl.String).cast(dtype)
    with_nulls = pl.concat([column, pl.Series("k", [None] * 100, dtype=dtype)])
    result = fresh(with_nulls, 4000)
    assert result.null_count() == pytest.approx(2000, abs=200)
    assert result.drop_nulls().n_unique() == 4000 - result.null_count()
    assert (result.name, result.dtype) == ("k", dtype)


def test_no_rows_give_an_empty_column() -> None:
    for column in (integers(1, 2), pl.Series(["a"]), pl.Series(["a", None]), pl.Series(["é"])):
        assert fresh(column, 0).is_empty()
        assert fresh(column, 0).dtype == column.dtype


@pytest.mark.parametrize("values", [[1.5], [date(2024, 1, 1)], [True]])
def test_other_types_are_refused_with_column_and_type(values: list[object]) -> None:
    column = pl.Series("when", values)
    with pytest.raises(OptionError, match=rf"keys: .*'when' \({re.escape(str(column.dtype))}\).*Cast it"):
        learn_key(column)


STRINGS = learn_key(pl.Series(COLUMNS["padded sequence"])).to_dict()
NUMBERS = learn_key(integers(1, 2, 3)).to_dict()


def changed(shape: dict[str, object], path: str, value: object) -> dict[str, object]:
    copy = json.loads(json.dumps(shape))
    *parents, last = [int(step) if step.isdigit() else step for step in path.split("/")]
    place = copy
    for step in parents:
        place = place[step]
    place[last] = value
    return copy


@pytest.mark.parametrize(
    ("shape", "path", "value"),
    [
        (STRINGS, "kind", "poem"),
        (STRINGS, "kind", "sequence"),
        (STRINGS, "kind", ["template"]),
        (STRINGS, "n_rows", -1),
        (STRINGS, "n_rows", True),
        (STRINGS, "null_share", float("nan")),
        (STRINGS, "null_share", 1.5),
        (STRINGS, "null_share", "0"),
        (STRINGS, "values", None),
        (STRINGS, "values", []),
        (STRINGS, "more", 1),
        (STRINGS, "values/prefix", 5),
        (STRINGS, "values/prefix", "x" * 1000),
        (STRINGS, "values/suffix", "\ud800"),
        (STRINGS, "values/others", "abc"),
        (STRINGS, "values/others", "éé"),
        (STRINGS, "values/templates", []),
        (STRINGS, "values/templates", STRINGS["values"]["templates"] * 201),
        (STRINGS, "values/templates/0", "x"),
        (STRINGS, "values/templates/0/share", -0.5),
        (STRINGS, "values/templates/0/share", 0.0),
        (STRINGS, "values/templates/0/share", float("inf")),
        (STRINGS, "values/templates/0/start", -1),
        (STRINGS, "values/templates/0/start", 1.0),
        (STRINGS, "values/templates/0/room", 10**6),
        (STRINGS, "values/templates/0/grown_width", 0),
        (STRINGS, "values/templates/0/grown_width", 10**9),
        (STRINGS, "values/templates/0/positions", ["0-9"] * 257),
        (STRINGS, "values/templates/0/positions/0", 7),
        (STRINGS, "values/templates/0/positions/0", "\udc00"),
        (STRINGS, "values/templates/0/positions/0", "ba"),
        (STRINGS, "values/templates/0/positions/0", "9-0"),
        (STRINGS, "values/templates/0/positions/0", "a-z|.*"),
        (NUMBERS, "values/step", 0),
        (NUMBERS, "values/step", 1.0),
        (NUMBERS, "values/lowest", 9),
        (NUMBERS, "values/high_limit", 2**200),
        (NUMBERS, "values/scale", -1),
        (NUMBERS, "values/highest", "3"),
    ],
)
def test_a_damaged_shape_is_refused(shape: dict[str, object], path: str, value: object) -> None:
    with pytest.raises(ValueError, match=r"^key shape: .* fit and save it again\.$"):
        KeyShape.from_dict(changed(shape, path, value))


@pytest.mark.parametrize("data", [None, [], "x", {}, {"kind": "template"}])
def test_what_is_no_shape_at_all_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match="key shape"):
        KeyShape.from_dict(data)


def test_letters_of_fresh_strings_are_those_that_most_values_have_at_their_place() -> None:
    rng = np.random.default_rng(0)
    vowels, consonants = np.array(list("aeiou")), np.array(list("bdfgklmnprst"))
    parts = [rng.choice(vowels if place % 2 else consonants, 4_000) for place in range(20)]
    values = pl.Series(["".join(letters) + "@x.org" for letters in zip(*parts, strict=True)]).unique(
        maintain_order=True
    )
    shape = learn_strings(values)
    fresh = fresh_strings(shape, 0, 5_000, seed=1)
    assert fresh.n_unique() == 5_000
    assert not fresh.is_in(values.implode()).any()
    assert fresh.str.contains("^([bdfgklmnprst][aeiou]){10}@x.org$").all()
    assert fresh.str.head(1).n_unique() >= 8


def test_uniform_characters_are_not_narrowed() -> None:
    rng = np.random.default_rng(0)
    values = pl.Series(["".join(rng.choice(list("0123456789abcdef"), 16)) for _ in range(2_000)])
    assert set(learn_strings(values).templates[0].positions) == {"0-9a-f"}


def test_a_dozen_people_do_not_come_out_with_their_salaries() -> None:
    names = ["Ann", "Bo", "Cy", "Di", "Ed", "Flo", "Gus", "Hal", "Ida", "Joe", "Kim", "Lou"]
    salaries = [1200, 3400, 5100, 2300, 4400, 3900, 2800, 6100, 7300, 1900, 2600, 3300]
    people = pl.DataFrame({"name": names, "salary": salaries, "age": [30, 41, 22, 35, 55, 61, 28, 39, 47, 52, 33, 26]})
    with pytest.warns(arf_dask.KeyColumnWarning, match="'name' are mostly distinct, and are sampled verbatim"):
        rows = arf_dask.synthesize(people, n=300, trees=3, seed=1, progress=False)
    assert rows.join(people, on=people.columns, how="semi").height == 0
