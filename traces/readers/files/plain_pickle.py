"""Reads the plain data in a pickle without unpickling it.

Python's own unpickler runs what the file tells it to run. This is a small interpreter for the opcodes that
build dicts, lists, tuples, numbers, strings, booleans and None; it has no opcode that looks up a name, calls
anything or sets an attribute, so there is nothing to switch off. Every other opcode is refused by name.

The items of the outermost dict are handed out as they come and then forgotten, so memory does not grow with
the file: a first pass notes which memo entries are recalled later, the second keeps only those. What is held
at once has a budget in bytes. A pickle writes a dict in batches of 1,000 items; FedScale's have 100 values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from joulefleet.budgets import NUMBERED_KEYS, PICKLED_BYTES
from joulefleet.errors import DataQualityError
from traces.readers.files.pickle_opcodes import operations

_VALUE_BYTES = 64
"""What any value takes at least, its place in a container included."""

MAX_RECALLED = 1_000_000
"""Most memo entries kept because the pickle recalls them later (repeated keys and names)."""


def dict_items(open_chunks: Callable[[], Iterable[bytes]]) -> Iterator[tuple[Any, Any]]:
    """Items of the dict that a pickle holds, in the order of the file.

    Args:
        open_chunks: Gives the bytes of the pickle from its beginning; called twice.

    Raises:
        DataQualityError: The pickle is truncated, is not one dict of plain data, or asks for anything else.
    """
    recalled = _recalled_entries(open_chunks())
    yield from _Builder(recalled).items(open_chunks())


def _recalled_entries(chunks: Iterable[bytes]) -> set[int]:
    recalled = set()
    for name, argument in operations(chunks):
        if name == "GET":
            recalled.add(int(argument))
            if len(recalled) > MAX_RECALLED:
                raise DataQualityError(f"the pickle shares more than {MAX_RECALLED} values: not plain data")
    return recalled


class _Builder:
    """The pickle machine's stack and memo, for plain data only."""

    def __init__(self, recalled: set[int]) -> None:
        self._recalled = recalled
        self._memo: dict[int, Any] = {}
        self._memo_size = 0
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._root: dict[Any, Any] | None = None
        self._items: list[tuple[Any, Any]] = []
        self._held_bytes = self._memo_bytes = 0
        self._build: dict[str, Callable[[Any], None]] = {
            "VALUE": self._push,
            "VALUES": self._push_run,
            "GET": self._get,
            "PUT": self._put,
            "MEMOIZE": lambda _: self._put(self._memo_size),
            "MARK": lambda _: self._marks.append(len(self._stack)),
            "EMPTY_DICT": lambda _: self._push({}),
            "EMPTY_LIST": lambda _: self._push([]),
            "LIST": lambda _: self._push(self._since_mark()),
            "DICT": lambda _: self._push(_paired(self._since_mark())),
            "TUPLE": lambda _: self._push(tuple(self._since_mark())),
            "TUPLE_OF": lambda count: self._push(tuple(self._last(count))),
            "APPEND": lambda _: self._extend(self._last(1)),
            "APPENDS": lambda _: self._extend(self._since_mark()),
            "SETITEM": lambda _: self._update(self._last(2)),
            "SETITEMS": lambda _: self._update(self._since_mark()),
        }

    def items(self, chunks: Iterable[bytes]) -> Iterator[tuple[Any, Any]]:
        for name, argument in operations(chunks):
            self._build[name](argument)
            if self._items:
                # Only finished items of the outermost dict leave; half-built ones are still on the stack.
                yield from self._items
                self._items.clear()
                self._held_bytes = self._memo_bytes + _VALUE_BYTES * len(self._stack)
        if self._root is None or len(self._stack) != 1 or self._stack[0] is not self._root or self._marks:
            raise DataQualityError("the pickle does not hold one dict")

    def _push(self, value: Any) -> None:
        if not self._stack:
            if not isinstance(value, dict) or self._root is not None:
                raise DataQualityError(
                    f"the pickle holds a {type(value).__name__}, not a dict of devices",
                    hint="give FedScale's client_behave_trace or client_device_capacity",
                )
            self._root = value
            self._items += value.items()
        self._stack.append(value)
        self._count(_VALUE_BYTES + (4 * len(value) if isinstance(value, str) else 0))

    def _push_run(self, values: list[Any]) -> None:
        if not self._stack:
            self._push(values[0])
        self._stack.extend(values)
        self._count(_VALUE_BYTES * len(values))

    def _count(self, size: int) -> None:
        self._held_bytes += size
        if self._held_bytes > PICKLED_BYTES:
            raise DataQualityError(f"what the pickle holds at once takes more than {PICKLED_BYTES >> 20} MB")

    def _put(self, index: int) -> None:
        self._memo_size += 1
        if index in self._recalled:
            if not self._stack:
                raise _malformed()
            value = self._memo[index] = self._stack[-1]
            size = _VALUE_BYTES + (4 * len(value) if isinstance(value, str) else 0)
            self._memo_bytes += size
            self._count(size)

    def _get(self, index: int) -> None:
        if index not in self._memo:
            raise _malformed()
        value = self._memo[index]
        if value is self._root:
            raise DataQualityError("the pickle's dict contains itself: not plain data")
        self._push(value)

    def _since_mark(self) -> list[Any]:
        if not self._marks:
            raise _malformed()
        return self._last(len(self._stack) - self._marks.pop())

    def _last(self, count: int) -> list[Any]:
        floor = self._marks[-1] if self._marks else 0
        if count < 0 or len(self._stack) - count < floor:
            raise _malformed()
        taken = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        return taken

    def _extend(self, values: list[Any]) -> None:
        if not self._stack or not isinstance(self._stack[-1], list):
            raise _malformed()
        self._stack[-1].extend(values)

    def _update(self, values: list[Any]) -> None:
        if not self._stack or not isinstance(self._stack[-1], dict):
            raise _malformed()
        if self._stack[-1] is self._root:
            self._items += _pairs(values)  # as they come: nothing is looked up in it, so nothing collides
            return
        self._stack[-1].update(_paired(values))
        _check_keys(self._stack[-1])


def _pairs(values: list[Any]) -> list[tuple[Any, Any]]:
    keys = values[::2]
    if len(values) % 2 or not all(isinstance(key, str | int | float) for key in keys):
        raise _malformed()
    return list(zip(keys, values[1::2], strict=True))


def _paired(values: list[Any]) -> dict[Any, Any]:
    """A dict. Strings have a hash that nobody can foresee; numbers that collide would take for ever."""
    pairs = _pairs(values)
    if sum(not isinstance(key, str) for key, _ in pairs) > NUMBERED_KEYS:
        raise _numbered()
    return dict(pairs)


def _check_keys(found: dict[Any, Any]) -> None:
    if len(found) > NUMBERED_KEYS and sum(not isinstance(key, str) for key in found) > NUMBERED_KEYS:
        raise _numbered()


def _numbered() -> DataQualityError:
    return DataQualityError(f"an inner dict of the pickle has more than {NUMBERED_KEYS} numbers as keys")


def _malformed() -> DataQualityError:
    return DataQualityError("the pickle is malformed")
