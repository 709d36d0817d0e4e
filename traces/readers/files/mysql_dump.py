"""A streaming tokenizer for MySQL dumps: rows of INSERT statements out of any amount of SQL text.

It knows as much SQL as a dump needs and no more: comments, quoted strings and names, INSERT and REPLACE
with one or many rows, and the column order from CREATE TABLE. Everything else is skipped up to its ``;``.
String rules follow the MySQL 8.0 reference manual, section 9.1.1 "String Literals": backslash escapes,
doubled quotes, adjacent strings joined.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from joulefleet.errors import DataQualityError

MAX_TOKEN_CHARS = 1 << 20
"""Longest row, string, comment or table definition held in memory. Real rows have some hundred characters."""

_HEADER_CHARS = 1 << 16  # enough for `INSERT INTO` with its column list

# Quantifiers over text are possessive: an unclosed quote costs one pass, never a backtracking search.
_SINGLE = r"'[^'\\]*+(?:(?:\\.|'')[^'\\]*+)*+'"
_DOUBLE = r'"[^"\\]*+(?:(?:\\.|"")[^"\\]*+)*+"'
_STRING = rf"(?:{_SINGLE}|{_DOUBLE})"
_BACKQUOTED = r"`[^`]*+(?:``[^`]*+)*+`"
_COMMENT = r"(?:--(?=\s)[^\n]*+\n|\#[^\n]*+\n|/\*(?:[^*]|\*(?!/))*+\*/)"
_GAP = rf"(?:\s|{_COMMENT})*+"
_NAME = rf'(?:{_BACKQUOTED}|"[^"]*+"|[\w$]++)'
_BARE = r"[+-]?+(?:(?:\d++(?:\.\d*+)?|\.\d++)(?:e[+-]?+\d++)?|\w++)"
_JOINED = rf"(?:_\w++\s*+)?{_STRING}(?:\s*+{_STRING})*+"
_VALUE = rf"{_GAP}(?:{_JOINED}|{_BARE}){_GAP}"


def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL | re.IGNORECASE)


_GAP_RE = _regex(_GAP)
_INSERT = _regex(
    rf"(?:INSERT|REPLACE)\b{_GAP}(?:(?:LOW_PRIORITY|DELAYED|HIGH_PRIORITY|IGNORE)\b{_GAP})*+(?:INTO\b{_GAP})?"
    rf"(?:{_NAME}{_GAP}\.{_GAP})?(?P<table>{_NAME}){_GAP}"
)
_VALUES = _regex(rf"(?:\((?P<columns>[^()]*+)\){_GAP})?VALUES?{_GAP}(?=\()")
_CREATE = _regex(
    rf"CREATE\b{_GAP}(?:TEMPORARY\b{_GAP})?TABLE\b{_GAP}(?:IF\s++NOT\s++EXISTS\b{_GAP})?"
    rf"(?:{_NAME}{_GAP}\.{_GAP})?(?P<table>{_NAME}){_GAP}(?=\()"
)
_ROW = _regex(rf"\({_VALUE}(?:,{_VALUE})*+\)")
_AFTER_ROWS = _regex(r";|ON\b|AS\b|\Z")
_FIELD = _regex(rf"{_GAP}(?:'([^'\\]*+)'(?!\s*+['\"])|({_JOINED})|({_BARE})){_GAP}(?:,|\Z)")
_LITERAL = _regex(_STRING)
_NAME_RE = _regex(_NAME)
# A lone - or / may begin a comment that ends in the next chunk: it is passed when its neighbours are known.
_PASSABLE = _regex(rf"(?:[^;'\"`\#/-]++|{_STRING}|{_BACKQUOTED}|{_COMMENT}|-(?!-\s)(?=..)|/(?!\*)(?=.))*+")
_NESTING = _regex(rf"[()]|{_STRING}|{_BACKQUOTED}|{_COMMENT}|(?P<open>['\"`]|/\*)")
_ESCAPE = {"'": _regex(r"\\(.)|''"), '"': _regex(r'\\(.)|""')}
# `\%` and `\_` stay as they are; any other escaped character stands for itself (section 9.1.1, table 9.1).
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_NULL = frozenset(map("".join, product("Nn", "Uu", "Ll", "Ll")))
_NOT_COLUMNS = {"primary", "key", "unique", "index", "constraint", "fulltext", "spatial", "foreign", "check"}


class InsertRow(NamedTuple):
    """One row of an INSERT.

    Attributes:
        line: Line on which the row begins, from 1.
        table: Name of the table, in lower case.
        columns: Names in the order of the values, in lower case; None when the dump does not say.
        values: None for NULL, else the text of the value without quotes; empty when there is a problem.
        problem: Why the row could not be read, or nothing.
    """

    line: int
    table: str
    columns: tuple[str, ...] | None
    values: list[str | None]
    problem: str = ""


def insert_rows(chunks: Iterable[str], tables: Collection[str]) -> Iterator[InsertRow]:
    """Every row inserted into one of ``tables`` (lower case), in the order of the dump.

    Raises:
        DataQualityError: A row, string or comment does not end within ``MAX_TOKEN_CHARS``.
    """
    text = _Window(chunks)
    order: dict[str, tuple[str, ...]] = {}
    while text.at_statement():
        if found := text.match(_INSERT):
            yield from _insert(text, found, tables, order)
        elif found := text.match(_CREATE):
            text.to(found.end())
            table = _unquoted(found["table"])
            if table in tables and (end := text.closing()) is not None:
                order[table] = _defined_columns(text.text[text.at + 1 : end - 1])
        text.skip_statement()


def _insert(
    text: _Window, found: re.Match[str], tables: Collection[str], order: dict[str, tuple[str, ...]]
) -> Iterator[InsertRow]:
    table = _unquoted(found["table"])
    if table not in tables:
        return
    text.to(found.end())
    values = text.match(_VALUES)
    if values is None:
        yield InsertRow(text.line, table, None, [], "INSERT without a list of VALUES")
        return
    columns = order.get(table)
    if values["columns"] is not None:
        columns = tuple(_unquoted(name) for name in _NAME_RE.findall(values["columns"]))
    text.to(values.end())
    yield from _rows(text, table, columns)


def _rows(text: _Window, table: str, columns: tuple[str, ...] | None) -> Iterator[InsertRow]:
    while True:
        row = _ROW.match(text.text, text.at)
        if row is not None:
            yield InsertRow(text.line, table, columns, _fields(row[0]))
            text.to(row.end())
        else:
            line = text.line
            end = text.closing()
            if end is None:
                yield InsertRow(line, table, columns, [], "the file ends in the middle of a row")
                return
            if (row := _ROW.match(text.text, text.at)) is not None:
                continue  # the row was only cut by the end of a chunk
            yield InsertRow(line, table, columns, [], "a value that is neither a number, a string nor NULL")
            text.to(end)
        if not text.another_row():
            break
    if not _AFTER_ROWS.match(text.text, text.at):
        yield InsertRow(text.line, table, columns, [], "neither a comma nor a semicolon after a row")


class _Window:
    """The stretch of text being looked at; consumed text is forgotten, lines are counted."""

    def __init__(self, chunks: Iterable[str]) -> None:
        self._chunks = iter(chunks)
        self._ended = False
        self.text = ""
        self.at = 0
        self.line = 1

    def to(self, end: int) -> None:
        """Consume up to ``end``."""
        self.line += self.text.count("\n", self.at, end)
        self.at = end

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Match here, with enough text read for any header."""
        while len(self.text) - self.at < _HEADER_CHARS and self._more():
            pass
        return pattern.match(self.text, self.at)

    def at_statement(self) -> bool:
        """Skip white space and comments; whether anything follows."""
        while True:
            gap = self.match(_GAP_RE)
            if gap is not None:
                self.to(gap.end())
            if self.at < len(self.text):
                return True
            if not self._more():
                return False

    def another_row(self) -> bool:
        """Consume the comma between two rows; whether there was one."""
        text, at = self.text, self.at
        if text.startswith(",(", at):  # how mysqldump writes it
            self.at = at + 1
            return True
        while True:
            gap = _GAP_RE.match(self.text, self.at)
            if gap is not None:
                self.to(gap.end())
            if self.at < len(self.text) - 2 or not self._more():
                break
        if not self.text.startswith(",", self.at):
            return False
        self.to(self.at + 1)
        return self.at_statement() and self.text.startswith("(", self.at)

    def skip_statement(self) -> None:
        """Consume everything up to and including the next ``;`` outside strings and comments."""
        while True:
            passed = _PASSABLE.match(self.text, self.at)
            if passed is not None:
                self.to(passed.end())
            if self.text.startswith(";", self.at):
                self.to(self.at + 1)
                return
            if not self._more():
                self.to(len(self.text))
                return

    def closing(self) -> int | None:
        """End of the parenthesis that opens here, or None if the text ends before it closes."""
        while True:
            depth = 0
            for token in _NESTING.finditer(self.text, self.at):
                if token["open"]:
                    break  # a string that goes on beyond what was read
                depth += {"(": 1, ")": -1}.get(token[0], 0)
                if depth == 0:
                    return token.end()
            if not self._more():
                return None

    def _more(self) -> bool:
        if len(self.text) - self.at > MAX_TOKEN_CHARS:
            raise DataQualityError(
                f"line {self.line}: a row, string or comment has more than {MAX_TOKEN_CHARS} characters",
                hint="look for a quote that is not closed near that line",
            )
        chunk = next(self._chunks, None)
        if chunk is None:
            if self._ended:
                return False
            # Two characters that end any line comment and settle every look-ahead.
            chunk, self._ended = "\n\n", True
        self.text = self.text[self.at :] + chunk
        self.at = 0
        return True


def _fields(row: str) -> list[str | None]:
    return [
        (None if bare in _NULL else bare) if bare else _unquoted_text(joined) if joined else simple
        for simple, joined, bare in _FIELD.findall(row, 1, len(row) - 1)
    ]


def _unquoted_text(literals: str) -> str:
    return _name(literals) if len(literals) < 256 else _joined(literals)


@lru_cache(maxsize=4096)
def _name(literals: str) -> str:
    """Users and apps repeat in every row."""
    return _joined(literals)


def _joined(literals: str) -> str:
    return "".join(
        _ESCAPE[literal[0]].sub(_unescape, literal[1:-1]) for literal in _LITERAL.findall(literals)
    )


def _unescape(escape: re.Match[str]) -> str:
    return _ESCAPED.get(escape[1], escape[1]) if escape[1] else escape[0][0]


def _unquoted(name: str) -> str:
    bare = name[1:-1].replace("``", "`") if name[0] in '`"' else name
    return bare.lower()


def _defined_columns(definition: str) -> tuple[str, ...]:
    """Column names of the inside of ``CREATE TABLE t (...)``."""
    names, depth, fresh = [], 0, True
    for token in _regex(rf"[(),]|{_STRING}|{_NAME}").finditer(definition):
        if token[0] in "()":
            depth += 1 if token[0] == "(" else -1
        elif token[0] == "," and depth == 0:
            fresh = True
        elif fresh:
            fresh = False
            if token[0].lower() not in _NOT_COLUMNS:
                names.append(_unquoted(token[0]))
    return tuple(names)
