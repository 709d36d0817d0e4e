import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agents.protocol import MAX_LINE_BYTES, MarkerMessage, Pong, ProbeDone, parse_line
from fedjoule.errors import DeviceError


def line(**message: object) -> bytes:
    return json.dumps(message).encode()


def test_messages_parse_to_their_types() -> None:
    assert isinstance(parse_line(line(type="pong", nonce=1, t_dev_ns=5)), Pong)
    probe = parse_line(line(type="probe_done", loss=2.3, duration_ns=10, samples=600))
    assert isinstance(probe, ProbeDone)
    marker = {"kind": "epoch", "edge": "start", "epoch": 1, "t_dev_ns": 7, "seq": 0}
    assert isinstance(parse_line(line(type="marker", marker=marker)), MarkerMessage)


@pytest.mark.parametrize(
    "bad",
    [
        b"not json",
        b"[]",
        b"{}",
        line(type="party"),
        line(type="pong", nonce=1, t_dev_ns=-5),
        line(type="pong", nonce=1, t_dev_ns=2**63),
        line(type="pong", nonce=1, t_dev_ns=1, extra="x"),
        b'{"type":"probe_done","loss":NaN,"duration_ns":1,"samples":1}',
        line(type="marker", marker={"kind": "nap", "edge": "start", "t_dev_ns": 1, "seq": 0}),
        line(type="error", message="x" * 5000),
    ],
)
def test_anything_else_is_refused(bad: bytes) -> None:
    with pytest.raises(DeviceError, match="no message"):
        parse_line(bad)


def test_a_long_line_is_refused_unread() -> None:
    with pytest.raises(DeviceError, match="bytes, more than"):
        parse_line(b" " * (MAX_LINE_BYTES + 1))


@given(st.binary(max_size=200))
def test_garbage_is_an_error_never_a_crash(garbage: bytes) -> None:
    with pytest.raises(DeviceError):
        parse_line(garbage)
