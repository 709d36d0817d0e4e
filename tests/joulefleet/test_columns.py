"""What tables of other labs have to be, column by column: what is refused, and what just passes."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from joulefleet.errors import StorageError
from joulefleet.runstore.columns import Columns

SCHEMA = pa.schema([("t", pa.int64()), ("who", pa.string()), ("power", pa.float64())])
WHOLE: dict[str, Any] = {"t": [3, 5, 5, 9], "who": ["a", "b", "b", "c"], "power": [0.5, -1.0, 2.5, 4.0]}


def refusal(columns: Columns, values: Mapping[str, Any]) -> str:
    """What is said about a table after its name; nothing if it is taken."""
    try:
        columns.check(Path("x.parquet"), pa.table(dict(values)))
    except StorageError as error:
        return error.message.removeprefix("x.parquet: ")
    return ""


def test_columns_that_are_there_of_their_kind_and_whole() -> None:
    columns = Columns(SCHEMA)
    assert refusal(columns, WHOLE) == ""
    assert refusal(columns, WHOLE | {"more": [b"", b"x", None, b""]}) == ""
    assert refusal(columns, {name: WHOLE[name] for name in ("t", "power")}) == "has no column 'who'"
    assert refusal(columns, WHOLE | {"who": [1, 2, 3, 4]}) == "column 'who' holds int64, not string"
    assert refusal(columns, WHOLE | {"t": [1.0] * 4}) == "column 't' holds double, not int64"
    assert refusal(columns, WHOLE | {"t": [1, None, 3, 4]}) == "column 't' has rows without a value"
    assert refusal(Columns(SCHEMA, nulls=("t",)), WHOLE | {"t": [1, None, 3, 4]}) == ""
    empty = pa.table({name: pa.array([], SCHEMA.field(name).type) for name in WHOLE})
    assert refusal(columns, {name: empty[name] for name in WHOLE}) == ""
    assert refusal(columns, {"t": empty["t"]}) == "has no column 'who'"
    strict = Columns(SCHEMA, texts={"who": ("a",)}, finite=True, rising={"t": 1})
    assert refusal(strict, {name: empty[name] for name in WHOLE}) == ""


def test_whole_numbers_are_numbers_of_any_width_and_texts_are_long_or_short() -> None:
    columns = Columns(SCHEMA)
    narrow = WHOLE | {"t": pa.array(WHOLE["t"], pa.uint8()), "power": pa.array([1, 2, 3, 4], pa.int16())}
    assert refusal(columns, narrow) == ""
    assert refusal(columns, WHOLE | {"who": pa.array(WHOLE["who"], pa.large_string())}) == ""
    assert refusal(columns, WHOLE | {"power": pa.array(WHOLE["power"], pa.float32())}) == ""
    assert refusal(columns, WHOLE | {"power": [True] * 4}) == "column 'power' holds bool, not double"
    flags = Columns(pa.schema([("on", pa.bool_())]))
    assert refusal(flags, {"on": [True, False]}) == ""
    assert refusal(flags, {"on": [1, 0]}) == "column 'on' holds int64, not bool"


def test_a_column_that_is_there_twice() -> None:
    table = pa.table([[1], ["a"], [0.5], [0.5]], names=["t", "who", "power", "power"])
    with pytest.raises(StorageError, match="column 'power' is there twice"):
        Columns(SCHEMA).check(Path("x.parquet"), table)
    beside = pa.table([[1], ["a"], [0.5], [7], [8]], names=["t", "who", "power", "more", "more"])
    with pytest.raises(StorageError, match="column 'more' is there twice"):
        Columns(SCHEMA).check(Path("x.parquet"), beside)


def test_what_an_earlier_version_did_not_write() -> None:
    """May be missing, with its bounds; where it is there, they hold."""
    columns = Columns(SCHEMA, optional=("power",), lowest={"power": -1}, highest={"power": 4})
    without = {name: WHOLE[name] for name in ("t", "who")}
    assert refusal(columns, without) == ""
    assert refusal(columns, WHOLE) == ""
    assert refusal(columns, WHOLE | {"power": [0.5, -1.1, 2.5, 4.0]}) == "column 'power' has values below -1"
    assert refusal(columns, WHOLE | {"power": [0.5, -1.0, 2.5, 4.1]}) == "column 'power' has values above 4"
    assert refusal(columns, {"t": WHOLE["t"], "power": WHOLE["power"]}) == "has no column 'who'"


def test_names_are_among_those_there_are() -> None:
    columns = Columns(SCHEMA, texts={"who": ("c", "b", "a")})
    assert refusal(columns, WHOLE) == ""
    assert refusal(columns, WHOLE | {"who": ["a", "b", "z", "y"]}) == "column 'who' says 'z'"
    long = refusal(columns, WHOLE | {"who": ["a", "b", "c", "0123456789" * 5]})
    assert long == f"column 'who' says '{'0123456789' * 4}'"


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_numbers_that_are_none(wrong: float) -> None:
    """One of four is enough; whoever does not ask for finite ones takes them."""
    values = WHOLE | {"power": [0.5, wrong, 2.5, 4.0]}
    assert refusal(Columns(SCHEMA, finite=True), values) == "column 'power' has values that are no numbers"
    assert refusal(Columns(SCHEMA), values) == ""
    assert refusal(Columns(SCHEMA, finite=True), WHOLE) == ""


def test_further_columns_are_of_one_type_where_somebody_looks_at_them() -> None:
    columns = Columns(SCHEMA, others=pa.float64())
    assert refusal(columns, WHOLE | {"hot": [1, None, 3, 4], "cold": [0.5] * 4}) == ""
    told = refusal(columns, WHOLE | {"cold": [0.5] * 4, "hot": ["1"] * 4})
    assert told == "column 'hot' holds string, not double"


def test_values_that_contradict_each_other() -> None:
    """Two of each kind; equal to the bound is within it; one row of several is enough."""
    schema = pa.schema([(name, pa.int64()) for name in ("asked", "done", "lost", "t", "u")])
    columns = Columns(
        schema,
        lowest={"t": 0, "u": -3},
        highest={"t": 9, "u": 8},
        at_most={"done": "asked", "lost": "asked"},
        sums={"asked": ("done", "lost"), "u": ("t", "lost")},
        rising={"t": 2, "u": 3},
    )
    whole = {"asked": [4, 7, 5], "done": [4, 5, 0], "lost": [0, 2, 5], "t": [1, 3, 8], "u": [1, 5, 13]}
    assert refusal(replace(columns, highest={}), whole) == ""
    assert refusal(columns, whole) == "column 'u' has values above 8"
    columns = replace(columns, lowest={}, highest={})
    assert refusal(columns, whole | {"done": [4, 8, 0]}) == "column 'done' has values above 'asked'"
    assert refusal(columns, whole | {"lost": [0, 8, 5]}) == "column 'lost' has values above 'asked'"
    assert refusal(columns, whole | {"lost": [0, 2, 4]}) == (
        "column 'asked' has values that are not the sum of done, lost"
    )
    unsummed = "column 'u' has values that are not the sum of t, lost"
    assert refusal(columns, whole | {"u": [1, 5, 14]}) == unsummed
    columns = replace(columns, sums={})
    assert refusal(columns, whole | {"t": [1, 3, 4]}) == "column 't' has values in another order"
    assert refusal(columns, whole | {"t": [1, 2, 8]}) == "column 't' has values in another order"
    assert refusal(columns, whole | {"u": [1, 5, 7]}) == "column 'u' has values in another order"
    assert refusal(replace(columns, lowest={"t": 2, "u": 1}), whole) == "column 't' has values below 2"
    assert refusal(replace(columns, lowest={"t": 1, "u": 2}), whole) == "column 'u' has values below 2"


def test_each_row_lies_as_far_behind_as_the_one_before_says() -> None:
    """Blocks of 3, 2 and 9 samples begin at 0, 3 and 5: what the last one says is asked of nobody."""
    columns = Columns(pa.schema([("first", pa.int64()), ("n", pa.int64())]), rising={"first": "n"})
    assert refusal(columns, {"first": [0, 3, 5], "n": [3, 2, 9]}) == ""
    assert (
        refusal(columns, {"first": [0, 2, 5], "n": [3, 2, 9]}) == "column 'first' has values in another order"
    )
    assert (
        refusal(columns, {"first": [0, 3, 4], "n": [3, 2, 9]}) == "column 'first' has values in another order"
    )
    assert refusal(columns, {"first": [7], "n": [3]}) == ""
    # The difference of the two is more than such a number can be; their order is not in doubt.
    far = {"first": [0, 2**63 - 1], "n": [2, 2]}
    assert refusal(columns, far) == ""
