"""What a reader relies on in a table: a folder from elsewhere may hold other columns under the same name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joulefleet.errors import StorageError

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

_HINT = "the file was changed, or is of another program: restore it from a copy"


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """What the columns of a table have to be. Widths are free: an earlier version may have had others.

    Attributes:
        schema: As its writer has it.
        optional: Those that an earlier version did not write.
        nulls: Those in which a value may be missing.
        texts: Of columns that hold names, all names there are.
        lowest: Of numbers, the smallest that can be.
        highest: And the largest.
        at_most: Of a column, another one that is never less in the same row.
        sums: Of a column, those that make it up.
        rising: Of a column, how far each row lies behind the one before at least: a number, or a column of
            that one. Looked at within a batch.
        finite: Whether every number has a value, so not "nan" or "inf".
        others: Type of all further columns, in which values may be missing; None if nobody looks at them.
    """

    schema: pa.Schema
    optional: Collection[str] = ()
    nulls: Collection[str] = ()
    texts: Mapping[str, Collection[str]] = field(default_factory=dict)
    lowest: Mapping[str, int] = field(default_factory=dict)
    highest: Mapping[str, int] = field(default_factory=dict)
    at_most: Mapping[str, str] = field(default_factory=dict)
    sums: Mapping[str, Collection[str]] = field(default_factory=dict)
    rising: Mapping[str, int | str] = field(default_factory=dict)
    finite: bool = False
    others: pa.DataType | None = None

    def check(self, path: Path, rows: pa.RecordBatch | pa.Table) -> None:
        """Look at some rows, and at the columns even if there are none.

        Raises:
            StorageError: A column is not what it has to be; the message names it.
        """
        stored = rows.schema
        twice = [name for name, count in Counter(stored.names).items() if count > 1]
        if twice:
            raise StorageError(f"{path}: column {twice[0]!r} is there twice", hint=_HINT)
        for name in self.schema.names:
            if name in stored.names:
                self._check_column(path, name, rows.column(name))
            elif name not in self.optional:
                raise StorageError(f"{path}: has no column {name!r}", hint=_HINT)
        for other in stored:
            if self.others is not None and other.name not in self.schema.names:
                _check_kind(path, other.name, other.type, self.others)
        wrong = next(self._contradictions(rows), None)
        if wrong is not None:
            raise StorageError(f"{path}: {wrong}", hint=_HINT)

    def _contradictions(self, rows: pa.RecordBatch | pa.Table) -> Iterator[str]:
        """Values that cannot be, alone or beside others."""
        import numpy as np

        def of(name: str) -> NDArray[Any]:
            return np.asarray(rows.column(name))

        there = set(rows.schema.names)
        found = [
            *((name, of(name) < x, f"below {x}") for name, x in self.lowest.items() if name in there),
            *((name, of(name) > x, f"above {x}") for name, x in self.highest.items() if name in there),
            *((name, of(name) > of(other), f"above {other!r}") for name, other in self.at_most.items()),
            *(
                (name, of(name) != sum(map(of, parts)), f"that are not the sum of {', '.join(parts)}")
                for name, parts in self.sums.items()
            ),
            # Differences, as a sum may be more than such a number can be.
            *(
                (name, np.diff(of(name)) < (of(by)[:-1] if isinstance(by, str) else by), "in another order")
                for name, by in self.rising.items()
            ),
        ]
        yield from (f"column {name!r} has values {text}" for name, wrong, text in found if wrong.any())

    def _check_column(self, path: Path, name: str, column: pa.Array | pa.ChunkedArray) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        _check_kind(path, name, column.type, self.schema.field(name).type)
        if column.null_count and name not in self.nulls:
            raise StorageError(f"{path}: column {name!r} has rows without a value", hint=_HINT)
        finite = pc.is_finite(column) if self.finite and pa.types.is_floating(column.type) else None
        if finite is not None and not pc.all(finite, min_count=0).as_py():
            raise StorageError(f"{path}: column {name!r} has values that are no numbers", hint=_HINT)
        if name in self.texts:
            known = pc.is_in(column, value_set=pa.array(sorted(self.texts[name]), column.type))
            if not pc.all(known, min_count=0).as_py():
                other = column.filter(pc.invert(known))[0].as_py()
                raise StorageError(f"{path}: column {name!r} says {str(other)[:40]!r}", hint=_HINT)


def _check_kind(path: Path, name: str, found: pa.DataType, expected: pa.DataType) -> None:
    if not {_kind(found)} <= _FITS.get(_kind(expected), {_kind(expected)}):
        raise StorageError(f"{path}: column {name!r} holds {found}, not {expected}", hint=_HINT)


_FITS = {"number": {"number", "whole number"}}
"""Whole numbers are numbers too."""


def _kind(of: pa.DataType) -> str:
    import pyarrow as pa

    if pa.types.is_integer(of):
        return "whole number"
    if pa.types.is_floating(of):
        return "number"
    if pa.types.is_string(of) or pa.types.is_large_string(of):
        return "text"
    return str(of)
