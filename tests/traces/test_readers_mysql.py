"""The tokenizer of MySQL dumps, on its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulefleet.errors import DataQualityError
from traces.readers.files.mysql_dump import MAX_TOKEN_CHARS, InsertRow, insert_rows

QUIRKS = r"""
-- it's a comment
/*!40101 SET NAMES 'utf8' */;
# another ' one
CREATE TABLE `appusage` (
 `id` int(11) NOT NULL DEFAULT '0' COMMENT 'a, b',
 `uid` varchar(8),
 name text, `Time` int, duration decimal(10,2) DEFAULT NULL,
 PRIMARY KEY (`id`), KEY `x` (`uid`,`name`)
) ENGINE=MyISAM;
INSERT INTO other VALUES (1,'; INSERT INTO appusage VALUES (9)'), (2,'x');
INSERT INTO `appusage` VALUES (1,'A00','Bob\'s app',100,5),(2,'A00','Bob''s ""',200,NULL) , -- c
 (3, 'A00' , "dq ""x"" ''", 1e3 , -5 );
insert ignore into `db`.`appusage` (`uid`,`time`) values ('A', null), (now(), 3),('C',4) on duplicate key update x='a;b';
REPLACE INTO appusage(uid) VALUE (_utf8'a' 'b\n\%\x\0\Z'),('');
INSERT INTO appusage SELECT * FROM x;
INSERT INTO appusage VALUES (7,'cut;
"""  # noqa: E501
COLUMNS = ("id", "uid", "name", "time", "duration")


def pieces(text: str, size: int) -> Iterator[str]:
    return (text[at : at + size] for at in range(0, len(text), size))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10**6])
def test_every_quirk_in_chunks_of_any_size(size: int) -> None:
    rows = list(insert_rows(pieces(QUIRKS, size), {"appusage"}))
    assert rows == [
        InsertRow(12, "appusage", COLUMNS, ["1", "A00", "Bob's app", "100", "5"]),
        InsertRow(12, "appusage", COLUMNS, ["2", "A00", 'Bob\'s ""', "200", None]),
        InsertRow(13, "appusage", COLUMNS, ["3", "A00", "dq \"x\" ''", "1e3", "-5"]),
        InsertRow(14, "appusage", ("uid", "time"), ["A", None]),
        InsertRow(14, "appusage", ("uid", "time"), [], "a value that is neither a number, a string nor NULL"),
        InsertRow(14, "appusage", ("uid", "time"), ["C", "4"]),
        InsertRow(15, "appusage", ("uid",), ["ab\n\\%x\0\x1a"]),
        InsertRow(15, "appusage", ("uid",), [""]),
        InsertRow(16, "appusage", None, [], "INSERT without a list of VALUES"),
        InsertRow(17, "appusage", COLUMNS, [], "the file ends in the middle of a row"),
    ]


@pytest.mark.parametrize("end", ["(2,'b');", "garbage;", "('b')"])
def test_rows_that_are_not_separated_are_not_lost_in_silence(end: str) -> None:
    rows = list(insert_rows([f"INSERT INTO t VALUES (1,'a') {end} INSERT INTO t VALUES (3,'c');"], {"t"}))
    assert rows[0].values == ["1", "a"]
    assert rows[1].problem == "neither a comma nor a semicolon after a row"


@pytest.mark.parametrize("end", ["", ";", " AS new ON DUPLICATE KEY UPDATE x=1;", "\n-- end"])
def test_what_may_follow_rows(end: str) -> None:
    rows = list(insert_rows([f"INSERT INTO t VALUES (1,'a'){end}"], {"t"}))
    assert [(row.values, row.problem) for row in rows] == [(["1", "a"], "")]


TEXT = st.text(st.characters(codec="utf-8"), max_size=12) | st.text("'\"\\`;,() \n-#/*", max_size=12)


def backslashed(text: str, quote: str) -> str:
    return quote + text.replace("\\", "\\\\").replace(quote, "\\" + quote).replace("\0", "\\0") + quote


def doubled(text: str, quote: str) -> str:
    return quote + text.replace("\\", "\\\\").replace(quote, quote * 2) + quote


@given(
    st.lists(st.lists(TEXT | st.none() | st.integers(), min_size=1, max_size=4), min_size=1, max_size=6),
    st.data(),
)
@settings(deadline=None)
def test_what_is_quoted_comes_back(rows: list[list[str | int | None]], data: st.DataObject) -> None:
    def literal(value: str | int | None) -> str:
        if value is None:
            return data.draw(st.sampled_from(["NULL", "null"]))
        if isinstance(value, int):
            return str(value)
        return data.draw(st.sampled_from([backslashed, doubled]))(value, data.draw(st.sampled_from("'\"")))

    between = data.draw(st.sampled_from([",", " , ", ",\n", ", /* ' */ ", ",-- '\n"]))
    values = between.join("(" + between.join(map(literal, row)) + ")" for row in rows)
    text = f"INSERT INTO `other` VALUES {values};\nINSERT INTO `t` VALUES {values};"
    found = list(insert_rows(pieces(text, data.draw(st.integers(1, 40))), {"t"}))
    assert [row.values for row in found] == [
        [None if value is None else str(value) for value in row] for row in rows
    ]
    assert not any(row.problem for row in found)


@given(st.text("INSERT INTO t VALUES (1,'a\\');`\"-#/*\n", max_size=200), st.integers(1, 50))
@settings(deadline=None)
def test_noise_neither_hangs_nor_breaks(noise: str, size: int) -> None:
    whole = list(insert_rows([noise], {"t"}))
    assert list(insert_rows(pieces(noise, size), {"t"})) == whole


@pytest.mark.parametrize(
    "begin",
    ["INSERT INTO t VALUES (1,'never closed", "/* never closed", "INSERT INTO other VALUES ('never closed"],
)
def test_what_never_ends_is_refused_in_bounded_memory(begin: str) -> None:
    given_chars = 0

    def endless() -> Iterator[str]:
        nonlocal given_chars
        yield begin
        for chunk in repeat("x" * 65536):
            given_chars += len(chunk)
            yield chunk

    with pytest.raises(DataQualityError, match=r"line 1: .* more than"):
        list(insert_rows(endless(), {"t"}))
    assert given_chars < 2 * MAX_TOKEN_CHARS
