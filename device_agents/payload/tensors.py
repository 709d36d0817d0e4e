"""Arrays as bytes with a typed header, in the layout of safetensors. No pickle, nothing executable.

Eight bytes with the length of the header, a JSON header ``{name: {dtype, shape, data_offsets}}``, then the
arrays end to end (https://github.com/huggingface/safetensors#format). Written out here because a device has
numpy and not necessarily the library; the tests hold it against the library.
"""

from __future__ import annotations

import json
import math
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

MAX_HEADER_BYTES = 1 << 20
_MAX_DIMENSIONS = 8

_NAMES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U8": "|u1",
    "BOOL": "|b1",
}
_DTYPES = {code: name for name, code in _NAMES.items()}


def pack_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Arrays in the order given.

    Raises:
        ValueError: An array has a type that does not travel.
    """
    header: dict[str, Any] = {}
    parts = []
    offset = 0
    for name, value in arrays.items():
        array = np.ascontiguousarray(value).reshape(np.shape(value))
        code = array.dtype.newbyteorder("<").str
        if code not in _DTYPES:
            raise ValueError(f"{name}: arrays of {array.dtype} do not travel")
        data = array.astype(code, copy=False).tobytes()
        header[name] = {
            "dtype": _DTYPES[code],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + len(data)],
        }
        offset += len(data)
        parts.append(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the format aligns the data to eight bytes with spaces
    return struct.pack("<Q", len(text)) + text + b"".join(parts)


def unpack_arrays(data: bytes) -> dict[str, NDArray[Any]]:
    """The arrays in ``data``, read-only and without a copy.

    Raises:
        ValueError: It is not in this layout, or claims what its bytes do not hold.
    """
    body, header = _split(data)
    arrays, due = {}, 0
    for name, entry in header.items():
        dtype, shape, (start, end) = _check_entry(name, entry)
        count = math.prod(shape)
        if start != due or end - start != count * dtype.itemsize or end > len(body):
            raise ValueError(f"{name}: {shape} of {dtype} is not at {start} to {end} of {len(body)} bytes")
        arrays[name] = np.frombuffer(body, dtype, count, start).reshape(shape)
        due = end
    if due != len(body):
        raise ValueError(f"{len(body) - due} bytes behind the last array")
    return arrays


def _split(data: bytes) -> tuple[memoryview, dict[str, Any]]:
    if len(data) < 8:
        raise ValueError("no header")
    (size,) = struct.unpack_from("<Q", data)
    if size > min(MAX_HEADER_BYTES, len(data) - 8):
        raise ValueError(f"a header of {size} bytes")
    header = json.loads(data[8 : 8 + size])
    if not isinstance(header, dict):
        raise ValueError("the header is not an object")  # noqa: TRY004 - the file is wrong, not the caller
    header.pop("__metadata__", None)
    return memoryview(data)[8 + size :], header


def _check_entry(name: str, entry: Any) -> tuple[np.dtype[Any], list[int], tuple[int, int]]:
    """Type, shape and place of one array, all of the right kind."""
    try:
        dtype, shape, (start, end) = np.dtype(_NAMES[entry["dtype"]]), entry["shape"], entry["data_offsets"]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{name!r:.80}: not an array's header") from error
    numbers = [*shape, start, end] if isinstance(shape, list) else []
    if not numbers or len(shape) > _MAX_DIMENSIONS or any(type(n) is not int or n < 0 for n in numbers):
        raise ValueError(f"{name!r:.80}: not a shape")
    return dtype, shape, (start, end)
