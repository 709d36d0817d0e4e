"""Arrays out of a foreign ``.npz``: only those asked for, and none before its size is known.

``numpy.load`` believes what the file says: an array's header may ask for any amount of memory, whatever the
archive's index says of its size.
"""

from __future__ import annotations

import math
import tokenize
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from joulefleet.errors import DataQualityError

_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}

# What zipfile and numpy raise for bytes that are not what they should be; RuntimeError: an encrypted member.
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, ValueError, EOFError, OSError, RuntimeError, MemoryError),
    *(SyntaxError, tokenize.TokenError, TypeError),
)


def read_npz(
    path: Path, *, required: Collection[str], optional: Collection[str], max_bytes: int
) -> dict[str, NDArray[Any]]:
    """The named arrays of an archive.

    Raises:
        DataQualityError: It is no archive of plain arrays, lacks a required one, or they are too large
            together.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in (*required, *optional) if f"{name}.npy" in archive.namelist()]
            missing = [name for name in required if name not in names]
            if missing:
                raise DataQualityError(f"{path.name}: has no array {missing[0]!r}")
            if sum(_size(archive, name) for name in names) > max_bytes:
                raise DataQualityError(f"{path.name}: its arrays have more than {max_bytes} bytes")
            return {name: _array(archive, name) for name in names}
    except _DAMAGE as error:
        raise DataQualityError(
            f"{path.name}: is not a whole npz archive of plain arrays ({error})", hint="copy it again"
        ) from error


def _size(archive: zipfile.ZipFile, name: str) -> int:
    """How much memory an array takes, by its own header."""
    with archive.open(f"{name}.npy") as member:
        read_header = _HEADERS.get(npy.read_magic(member))
        if read_header is None:
            raise ValueError(f"{name}: written in a form that is not known")
        shape, _, dtype = read_header(member)
        held = archive.getinfo(f"{name}.npy").file_size
    if dtype.hasobject:
        raise ValueError(f"{name}: holds Python objects")
    size = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or size > held:
        raise ValueError(f"{name}: its header says {size} bytes, the archive holds {held}")
    return size


def _array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    with archive.open(f"{name}.npy") as member:
        return np.asarray(npy.read_array(member, allow_pickle=False))
