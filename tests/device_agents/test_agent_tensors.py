"""Weights on the wire: the layout of safetensors, held against the library, and what is not it."""

import json
import struct

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from device_agents.payload.tensors import MAX_HEADER_BYTES, pack_arrays, unpack_arrays

DTYPES = ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"]

some_arrays = st.dictionaries(
    st.text("abc.é_", min_size=1, max_size=8),
    st.sampled_from(DTYPES).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    ),
    max_size=5,
)


def equal(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return list(a) == list(b) and all(
        a[name].dtype == b[name].dtype
        and a[name].shape == b[name].shape
        and a[name].tobytes() == b[name].tobytes()
        for name in a
    )


@settings(deadline=None)
@given(some_arrays)
def test_what_is_packed_comes_back_and_the_library_reads_it(arrays: dict[str, np.ndarray]) -> None:
    data = pack_arrays(arrays)
    assert equal(unpack_arrays(data), arrays)
    theirs = safetensors.numpy.load(data)
    assert equal(dict(sorted(theirs.items())), dict(sorted(arrays.items())))


@settings(deadline=None)
@given(some_arrays)
def test_what_the_library_writes_is_read(arrays: dict[str, np.ndarray]) -> None:
    ours = unpack_arrays(safetensors.numpy.save(arrays, metadata={"made by": "the library"}))
    assert equal(dict(sorted(ours.items())), dict(sorted(arrays.items())))


def test_views_and_foreign_byte_order_are_written_as_what_they_show() -> None:
    view = np.arange(12.0).reshape(3, 4).T[::2]
    arrays = unpack_arrays(pack_arrays({"view": view, "big": np.arange(3, dtype=">i4")}))
    assert np.array_equal(arrays["view"], view)
    assert arrays["big"].tolist() == [0, 1, 2]


def test_objects_do_not_travel() -> None:
    with pytest.raises(ValueError, match="do not travel"):
        pack_arrays({"evil": np.array([object()])})


def forged(header: object, body: bytes = bytes(16)) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"1234567",
        struct.pack("<Q", 10**18),
        struct.pack("<Q", MAX_HEADER_BYTES + 1) + bytes(MAX_HEADER_BYTES + 1),
        forged([1, 2]),
        forged({"a": 1}),
        forged({"a": {"dtype": "O", "shape": [2], "data_offsets": [0, 16]}}),
        forged({"a": {"dtype": "F64", "shape": [2], "data_offsets": [0, 15]}}),
        forged({"a": {"dtype": "F64", "shape": [3], "data_offsets": [0, 24]}}),
        forged({"a": {"dtype": "F64", "shape": [-2], "data_offsets": [0, 16]}}),
        forged({"a": {"dtype": "F64", "shape": [2.0], "data_offsets": [0, 16]}}),
        forged({"a": {"dtype": "F64", "shape": "2", "data_offsets": [0, 16]}}),
        forged({"a": {"dtype": "F64", "shape": [2], "data_offsets": [0, 16, 17]}}),
        forged({"a": {"dtype": "F64", "shape": [1], "data_offsets": [8, 16]}}),
        forged({"a": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}),
        forged({"a": {"dtype": "U8", "shape": [1] * 9, "data_offsets": [0, 1]}}),
        forged({"a": {"dtype": "U8", "shape": [2**62, 4], "data_offsets": [0, 16]}}),
    ],
)
def test_what_is_not_the_layout_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"header|shape|bytes"):
        unpack_arrays(data)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_garbage_is_an_error_never_a_crash(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        unpack_arrays(struct.pack("<Q", len(data)) + data)
