"""How much a file from outside may ask for: the budgets of all readers, and what holds to them.

A few kilobytes can ask for gigabytes (compression, lengths in a header, run-length encoding) or for hours
(nesting, keys that collide). Each limit is far above what real files need; a file that is over one is refused
with a sentence. `OverBudget` is a ValueError, so that a reader's own error names the file.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

CONFIG_BYTES = 4 << 20
"""A TOML file that people write."""

RECORD_BYTES = 256 << 20
"""A JSON record. A capture of a day with its clock exchanges has some ten megabytes."""

JOURNAL_LINE_BYTES = 8 << 20
"""One line of a journal. The longest names all jobs of a plan: 100,000 of them have four megabytes."""

HASHED_BYTES = 256 << 30
"""A file that is hashed. A week of samples at 5 kHz has a third of it."""

DEPTH = 64
"""Levels of nesting in JSON and TOML. Ours have six."""

COLUMNS = 100_000
"""Of a table. The widest format has one column per phone."""

BATCH_BYTES = 1 << 30
"""One batch of a stored table once it is unpacked."""

TABLE_BYTES = 8 << 30
"""A table that is read as a whole. A million rounds' participants have less than one."""

ARCHIVE_BYTES = 8 << 30
"""The arrays of an npz archive together."""

PICKLED_BYTES = 256 << 20
"""What is held at once of a pickle that is being read."""

NUMBERED_KEYS = 4096
"""Entries of a dict with numbers as keys, which unlike strings can be chosen so that they collide."""

UNPACKED_BYTES, UNPACKED_RATIO = 64 << 20, 200
"""A packed file gives no more than the first, or than the second times its size. CSV packs to a tenth."""

ARRAY_BYTES = 2 << 30
"""One packed array of a data set. EMNIST, the largest of those that are read, has half of it."""

IMAGE_BYTES = 64 << 20
"""One file of an archive of images."""


class OverBudget(ValueError):
    """A file asks for more than any real one needs."""


def read_bounded(path: Path, limit: int) -> bytes:
    """A whole file.

    Raises:
        OSError: From the operating system.
        OverBudget: It has more than ``limit`` bytes; no more than that is read.
    """
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OverBudget(f"more than {limit >> 20} MB, where a few are usual")
    return data


def parse_json(data: str | bytes) -> Any:
    """A JSON value.

    Raises:
        ValueError: It is none, or nested too deeply.
    """
    try:
        value = json.loads(data)
    except RecursionError:
        raise OverBudget("nested too deeply") from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except ValueError:  # Python's words are advice to lift its limit
        raise OverBudget("a number of thousands of digits") from None
    check_depth(value)
    return value


def check_depth(value: Any) -> None:
    """Refuse lists and dicts that are nested more than `DEPTH` levels; without recursion.

    Raises:
        OverBudget: They are.
    """
    level: list[Any] = [value]
    for _ in range(DEPTH):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += [each for each in one.values() if isinstance(each, dict | list)]
            elif isinstance(one, list):
                inner += [each for each in one if isinstance(each, dict | list)]
        if not inner:
            return
        level = inner
    raise OverBudget(f"nested more than {DEPTH} levels deep")


def parse_toml_data(text: str) -> dict[str, Any]:
    """The data of a TOML text.

    Raises:
        ValueError: It is none, or nested too deeply.
    """
    import tomllib

    # For a key of n parts tomllib keeps n * n / 2 of them: 20,000 parts, or 40 kB, would take 1.5 GB.
    crowded = [line for line in text.splitlines() if line.count(".") > DEPTH and line.lstrip()[0] != "#"]
    if any(part.count(".") > DEPTH for line in crowded for part in _KEY_ENDS.split(line)):
        raise OverBudget(f"a key of more than {DEPTH} parts")
    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise OverBudget("nested too deeply") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # as above
        raise OverBudget("a number of thousands of digits") from None
    check_depth(data)
    return data


_KEY_ENDS = re.compile(r"[=,\[\]{}]")


def npz_arrays(
    path: Path, names: Collection[str] | None = None, *, limit: int = ARCHIVE_BYTES
) -> dict[str, NDArray[Any]]:
    """Arrays of an npz archive (all, or those of ``names`` that it has), of numbers and texts only.

    Raises:
        OSError: From the operating system.
        ValueError: It is no whole archive of plain arrays, or they are too large together.
    """
    import tokenize
    import zlib

    try:
        with zipfile.ZipFile(path) as archive:
            held = {name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")}
            wanted = sorted(held if names is None else held & set(names))
            if sum(_array_bytes(archive, name) for name in wanted) > limit:
                raise OverBudget(f"its arrays have more than {limit} bytes")
            return {name: _array(archive, name) for name in wanted}
    except OverBudget:
        raise
    # What zipfile and numpy raise for bytes that are not as they should be; RuntimeError: encrypted.
    # numpy's own words may advise to load it with pickle, which would run what is in it.
    except (
        *(zipfile.BadZipFile, zlib.error, ValueError, EOFError, RuntimeError, MemoryError, OverflowError),
        *(SyntaxError, tokenize.TokenError, TypeError, KeyError, IndexError),
    ) as error:
        raise ValueError(f"is not a whole npz archive of plain arrays ({type(error).__name__})") from None


def _array_bytes(archive: zipfile.ZipFile, name: str) -> int:
    """How much memory an array takes, by its own header."""
    import math

    from numpy.lib import format as npy

    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    with archive.open(f"{name}.npy") as member:
        shape, _, dtype = readers[npy.read_magic(member)](member)
        held = archive.getinfo(f"{name}.npy").file_size
    size = math.prod(shape) * dtype.itemsize
    if dtype.hasobject or min(shape, default=0) < 0 or size > held:
        raise ValueError(f"{name}: not an array of plain values that fits its archive")
    return size


def _array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    import numpy as np
    from numpy.lib import format as npy

    with archive.open(f"{name}.npy") as member:
        return np.asarray(npy.read_array(member, allow_pickle=False))
