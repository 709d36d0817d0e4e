"""The opcodes of a pickle that build plain data, decoded one by one from a stream of bytes.

Opcodes and their arguments: the Python documentation of `pickletools` and PEP 3154 (protocol 4).
"""

from __future__ import annotations

import pickletools
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from joulefleet.errors import DataQualityError

MAX_STRING_BYTES = 1 << 20
MAX_LINE_BYTES = 1 << 16
MAX_LONG_BYTES = 64

Operation = tuple[str, Any]
"""What to do, and with what; ``VALUE`` and ``VALUES`` push, the other names are those of `pickletools`."""


class _Bytes:
    """A stream of bytes, read forwards; nothing that was taken is kept."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._data = b""
        self._at = 0

    def take(self, count: int) -> bytes:
        end = self._at + count
        while end > len(self._data):
            self._read_more()
            end = self._at + count
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def line(self) -> bytes:
        """Up to the next line end, which is taken too."""
        while (end := self._data.find(b"\n", self._at, self._at + MAX_LINE_BYTES)) < 0:
            if len(self._data) - self._at >= MAX_LINE_BYTES:
                raise DataQualityError(f"the pickle holds a line of more than {MAX_LINE_BYTES} bytes")
            self._read_more()
        taken = self._data[self._at : end]
        self._at = end + 1
        return taken

    def run(self, pattern: re.Pattern[bytes]) -> bytes:
        """As many repetitions of an opcode as are at hand."""
        found = pattern.match(self._data, self._at)
        if found is None:
            return b""
        self._at = found.end()
        return found[0]

    def _read_more(self) -> None:
        chunk = next(self._chunks, None)
        if chunk is None:
            raise DataQualityError("the pickle is cut short", hint="copy or download the file again")
        self._data = self._data[self._at :] + chunk
        self._at = 0


def operations(chunks: Iterable[bytes]) -> Iterator[Operation]:
    """Decode opcodes up to STOP.

    Raises:
        DataQualityError: An opcode does anything else than build plain data, or the pickle is cut short.
    """
    data = _Bytes(chunks)
    while True:
        code = data.take(1)
        decode = _DECODERS.get(code)
        if decode is None:
            raise _refused(code)
        operation = decode(data)
        if operation is not None:
            if operation[0] == "STOP":
                return
            yield operation


def _refused(code: bytes) -> DataQualityError:
    known = pickletools.code2op.get(code.decode("latin-1"))  # type: ignore[attr-defined]
    if known is None:
        return DataQualityError("this is not a pickle", hint="give FedScale's files as they were published")
    return DataQualityError(
        f"the pickle uses {known.name}: refused, only dicts, lists, tuples, numbers and strings are read",
        hint="a pickle can run code when it is loaded; do not open this file with pickle.load",
    )


def _fixed(layout: str, name: str = "VALUE") -> Callable[[_Bytes], Operation]:
    reader = struct.Struct(layout)

    def decode(data: _Bytes) -> Operation:
        return name, reader.unpack(data.take(reader.size))[0]

    return decode


def _run_of(code: bytes, layout: str) -> Callable[[_Bytes], Operation]:
    """Integers come in long runs; one match takes them all."""
    reader = struct.Struct(layout)
    one = struct.Struct(f"{layout[0]}x{layout[1:]}")
    pattern = re.compile(rb"(?:%s.{%d})+" % (re.escape(code), reader.size), re.DOTALL)

    def decode(data: _Bytes) -> Operation:
        values = [reader.unpack(data.take(reader.size))[0]]
        values += [value for (value,) in one.iter_unpack(data.run(pattern))]
        return "VALUES", values

    return decode


def _text(length_layout: str, encoding: str = "utf-8") -> Callable[[_Bytes], Operation]:
    length = struct.Struct(length_layout)

    def decode(data: _Bytes) -> Operation:
        size = length.unpack(data.take(length.size))[0]
        if not 0 <= size <= MAX_STRING_BYTES:
            raise DataQualityError(f"the pickle holds a string of {size} bytes")
        return "VALUE", _decoded(data.take(size), encoding)

    return decode


def _decoded(raw: bytes, encoding: str) -> str:
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise DataQualityError("the pickle holds a string that is not text") from error


def _long(length_layout: str) -> Callable[[_Bytes], Operation]:
    length = struct.Struct(length_layout)

    def decode(data: _Bytes) -> Operation:
        size = length.unpack(data.take(length.size))[0]
        if not 0 <= size <= MAX_LONG_BYTES:
            raise DataQualityError(f"the pickle holds an integer of {size} bytes")
        return "VALUE", int.from_bytes(data.take(size), "little", signed=True)

    return decode


def _from_line(convert: Callable[[str], Any], name: str = "VALUE") -> Callable[[_Bytes], Operation]:
    def decode(data: _Bytes) -> Operation:
        text = _decoded(data.line(), "latin-1")
        try:
            return name, convert(text)
        except ValueError as error:
            raise DataQualityError(
                f"the pickle holds {text[:40]!r} where a number or a string belongs"
            ) from error

    return decode


def _line_integer(text: str) -> int | bool:
    # Protocol 0 writes the booleans as I00 and I01.
    return text == "01" if text in ("00", "01") else int(text)


def _line_string(text: str) -> str:
    """Protocol 0 of Python 2: a quoted string; those with escapes are not needed and not read."""
    if len(text) < 2 or text[0] != text[-1] or text[0] not in "'\"" or "\\" in text or not text.isascii():
        raise ValueError(text)
    return text[1:-1]


def _line_unicode(text: str) -> str:
    return text.encode("latin-1").decode("raw-unicode-escape")


def _always(name: str, *, argument: Any = None) -> Callable[[_Bytes], Operation]:
    return lambda data: (name, argument)


def _skip(count: int) -> Callable[[_Bytes], Operation | None]:
    def decode(data: _Bytes) -> None:
        data.take(count)

    return decode


_DECODERS: dict[bytes, Callable[[_Bytes], Operation | None]] = {
    b"\x80": _skip(1),  # PROTO
    b"\x95": _skip(8),  # FRAME
    b".": _always("STOP"),
    b"(": _always("MARK"),
    b"N": _always("VALUE"),
    b"\x88": _always("VALUE", argument=True),
    b"\x89": _always("VALUE", argument=False),
    b"J": _run_of(b"J", "<i"),
    b"M": _run_of(b"M", "<H"),
    b"K": _run_of(b"K", "<B"),
    b"G": _run_of(b"G", ">d"),
    b"\x8a": _long("<B"),
    b"\x8b": _long("<i"),
    b"I": _from_line(_line_integer),
    b"L": _from_line(lambda text: int(text.removesuffix("L"))),
    b"F": _from_line(float),
    b"S": _from_line(_line_string),
    b"V": _from_line(_line_unicode),
    b"X": _text("<I"),
    b"\x8c": _text("<B"),
    b"\x8d": _text("<Q"),
    b"T": _text("<i", "ascii"),
    b"U": _text("<B", "ascii"),
    b"}": _always("EMPTY_DICT"),
    b"]": _always("EMPTY_LIST"),
    b")": _always("VALUE", argument=()),
    b"d": _always("DICT"),
    b"l": _always("LIST"),
    b"t": _always("TUPLE"),
    b"\x85": _always("TUPLE_OF", argument=1),
    b"\x86": _always("TUPLE_OF", argument=2),
    b"\x87": _always("TUPLE_OF", argument=3),
    b"a": _always("APPEND"),
    b"e": _always("APPENDS"),
    b"s": _always("SETITEM"),
    b"u": _always("SETITEMS"),
    b"\x94": _always("MEMOIZE"),
    b"p": _from_line(int, "PUT"),
    b"q": _fixed("<B", "PUT"),
    b"r": _fixed("<I", "PUT"),
    b"g": _from_line(int, "GET"),
    b"h": _fixed("<B", "GET"),
    b"j": _fixed("<I", "GET"),
}
