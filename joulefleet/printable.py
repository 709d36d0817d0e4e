"""Text from outside, made safe to show: the one filter of terminals, logs, spreadsheets and pages.

Device errors, names of runs, files, keys and methods, a meter's strings, the words of other people's
exceptions: all of them may hold escape sequences that retitle a window or fill the clipboard, characters that
reverse a line or are not seen, line breaks that forge a line, and formulas. Nobody has to remember: what
prints, logs and writes tables calls `printable` itself, and so does every `JoulefleetError`.
"""

from __future__ import annotations

import csv
import io
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

_UNUSUAL = re.compile(r"[^ -~]")
_SPACES = frozenset(
    "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
)
# Shown as nothing although they are letters or marks (Unicode: Default_Ignorable_Code_Point outside of Cf).
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""What spreadsheets take for a formula (OWASP: CSV injection); full-width signs too, in some of them."""


def printable(text: object, *, keep: str = "") -> str:
    r"""Text in which every character can be seen: others are shown as ``\n``, ``\x1b``, ``\u202e``.

    That is all of Unicode's category "other" (control, format with bidirectional and zero-width characters,
    surrogates, private use, unassigned), line and paragraph separators, and what is ignored by default.

    Args:
        text: From wherever.
        keep: Control characters that are meant, as ``"\n"`` in a text of several lines.
    """
    text = str(text)
    if text.isascii() and text.isprintable():
        return text
    return _UNUSUAL.sub(lambda found: _shown(found[0], keep), text)


def _shown(char: str, keep: str) -> str:
    if char in keep or char in _SPACES or (char.isprintable() and not _UNSEEN.match(char)):
        return char
    code = ord(char)
    if char in _NAMED:
        return _NAMED[char]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def printable_data(data: Any) -> Any:
    """Plain containers with every text in them, keys too, made printable."""
    if isinstance(data, str):
        return printable(data, keep="\n")
    if isinstance(data, Mapping):
        return {printable_data(key): printable_data(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [printable_data(value) for value in data]
    return data


def markdown_text(text: str) -> str:
    """A line or cell of Markdown: no other cell, no element of HTML, no link."""
    return printable(text).replace("|", "\\|").replace("<", "&lt;").replace("](", "]\\(")


class CsvWriter:
    """Writes rows as CSV in which no text is a formula; numbers may be negative.

    A cell that a spreadsheet would evaluate gets an apostrophe in front.
    """

    def __init__(self, file: TextIO, header: Iterable[str]) -> None:
        self._rows = csv.writer(file, lineterminator="\n")
        self.header = tuple(header)
        self.write(self.header)

    def write(self, row: Iterable[Any]) -> None:
        """Write one row; None is an empty cell."""
        self._rows.writerow([csv_cell(cell) if isinstance(cell, str) else cell for cell in row])

    def write_named(self, row: Mapping[str, Any]) -> None:
        """Write one row given by the names of its columns; those without a value are empty."""
        self.write(row.get(name) for name in self.header)


def csv_text(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A CSV file as text."""
    text = io.StringIO()
    writer = CsvWriter(text, header)
    for row in rows:
        writer.write(row)
    return text.getvalue()


def csv_cell(text: str) -> str:
    """Text that no spreadsheet evaluates. Text that is a number stays one."""
    shown = printable(text)
    return f"'{shown}" if text.lstrip(" ").startswith(_FORMULA_STARTS) and not _is_number(text) else shown


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii() and not text[0].isspace()


class PrintableFormatter(logging.Formatter):
    """A log in which each record is one line; those of a traceback are set in, so that none poses as one."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's line, and below it a traceback or stack."""
        record.message = record.getMessage()
        if self.usesTime():
            record.asctime = self.formatTime(record, self.datefmt)
        lines = [printable(self.formatMessage(record))]
        # Not `record.exc_text`, where another handler may have left its own form of it.
        if record.exc_info:
            lines.append(_set_in(self.formatException(record.exc_info)))
        if record.stack_info:
            lines.append(_set_in(record.stack_info))
        return "\n".join(lines)


def _set_in(text: str) -> str:
    return "\n".join(f"  {line}" for line in printable(text, keep="\n").split("\n"))


def listed(names: Sequence[str], most: int = 20) -> str:
    """Names in a sentence; of many the first, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
