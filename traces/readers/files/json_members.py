"""Walks through one huge JSON object member by member; memory is bounded by the largest member."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from joulefleet.budgets import parse_json
from joulefleet.errors import DataQualityError

MAX_MEMBER_CHARS = 1 << 28
"""Longest member held in memory. One phone with a million events has about 40 million characters."""

_SPACE = re.compile(r"[ \t\r\n]*+")
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_KEY = re.compile(_STRING, re.DOTALL)
_TOKEN = re.compile(rf'{_STRING}|[{{}}\[\]]|(?P<open>")', re.DOTALL)
_SCALAR = re.compile(rf"{_STRING}|[^\s,{{}}\[\]\"]++(?=[\s,}}])", re.DOTALL)


class JsonMember(NamedTuple):
    """One member of the outermost object.

    Attributes:
        line: Line on which its key stands, from 1.
        key: Its name.
        value: Its parsed value.
    """

    line: int
    key: str
    value: Any


def object_members(chunks: Iterable[str], name: str) -> Iterator[JsonMember]:
    """The members of the one JSON object in a text.

    Raises:
        DataQualityError: The text is cut short, is not a JSON object, or a member is too long.
    """
    text = _Window(chunks, name)
    if text.next_char() != "{":
        raise text.error("does not begin with a JSON object")
    text.pass_char()
    if text.next_char() == "}":
        return
    while True:
        yield _member(text)
        after = text.next_char()
        text.pass_char()
        if after == "}":
            return
        if after != ",":
            raise text.error("a comma or a closing brace is missing")


def _member(text: _Window) -> JsonMember:
    if text.next_char() != '"':
        raise text.error("a quoted name is missing")
    line = text.line
    key = text.take(text.end_of(_KEY))
    if text.next_char() != ":":
        raise text.error("a colon is missing")
    text.pass_char()
    begin = text.next_char()
    if begin in ",}]":
        raise text.error("a value is missing")
    value = text.take(text.closing() if begin in "{[" else text.end_of(_SCALAR))
    return JsonMember(line, key, value)


class _Window:
    """The stretch of text being looked at; what was passed is forgotten."""

    def __init__(self, chunks: Iterable[str], name: str) -> None:
        self._chunks = iter(chunks)
        self._name = name
        self.text = ""
        self.at = 0
        self.line = 1

    def error(self, problem: str) -> DataQualityError:
        return DataQualityError(f"{self._name}:{self.line}: {problem}", hint="is it the right file?")

    def to(self, end: int) -> None:
        self.line += self.text.count("\n", self.at, end)
        self.at = end

    def next_char(self) -> str:
        """Pass white space; the character that follows."""
        while True:
            space = _SPACE.match(self.text, self.at)
            if space is not None:
                self.to(space.end())
            if self.at < len(self.text):
                return self.text[self.at]
            self._more()

    def pass_char(self) -> None:
        self.to(self.at + 1)

    def end_of(self, pattern: re.Pattern[str]) -> int:
        """Where a match that begins here ends, reading on while it may be cut by what was read so far."""
        while True:
            found = pattern.match(self.text, self.at)
            if found is not None and found.end() < len(self.text):
                return found.end()
            self._more()

    def closing(self) -> int:
        """End of the object or array that begins here."""
        depth = 0
        passed = 0  # of the text from here; what was scanned is not scanned again
        while True:
            for token in _TOKEN.finditer(self.text, self.at + passed):
                if token["open"]:
                    break  # a string that goes on beyond what was read
                passed = token.end() - self.at
                depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(token[0], 0)
                if depth == 0:
                    return token.end()
            self._more()

    def take(self, end: int) -> Any:
        """Pass the text up to ``end``; its value."""
        try:
            value = parse_json(self.text[self.at : end])
        except ValueError as error:
            raise self.error(f"is not JSON ({error})") from error
        self.to(end)
        return value

    def _more(self) -> None:
        """Read as much again as is being held, so that a long member is scanned a few times at most."""
        held = len(self.text) - self.at
        if held > MAX_MEMBER_CHARS:
            raise self.error(f"a member is longer than {MAX_MEMBER_CHARS} characters")
        parts = [self.text[self.at :]]
        grown = 0
        for chunk in self._chunks:
            parts.append(chunk)
            grown += len(chunk)
            if grown >= held and grown:
                break
        if not grown:
            raise self.error("the file ends in the middle of the JSON text")
        self.text = "".join(parts)
        self.at = 0
