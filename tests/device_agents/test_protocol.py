import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agents.payload.link.wire import MAX_LINE_BYTES, encode
from device_agents.protocol import Done, MarkerMessage, Pong, ProbeDone, parse_line
from joulefleet.errors import DeviceError, DeviceProtocolError


def line(**message: object) -> bytes:
    return json.dumps({"seq": 0, **message}).encode()


def test_messages_parse_to_their_types() -> None:
    assert isinstance(parse_line(line(type="pong", nonce=1, t_dev_ns=5)), Pong)
    probe = parse_line(line(type="probe_done", job_id="j", loss=2.3, duration_ns=10, samples=600))
    assert isinstance(probe, ProbeDone)
    marker = {"kind": "epoch", "edge": "start", "epoch": 1, "t_dev_ns": 7, "seq": 0}
    assert isinstance(parse_line(line(type="marker", marker=marker)), MarkerMessage)


def test_a_diverged_loss_is_no_number() -> None:
    probe = parse_line(line(type="probe_done", job_id="j", loss=None, duration_ns=10, samples=600))
    assert isinstance(probe, ProbeDone)
    assert probe.loss is None


@pytest.mark.parametrize(
    "bad",
    [
        b"not json",
        b"[]",
        b"{}",
        line(type="party"),
        json.dumps({"type": "pong", "nonce": 1, "t_dev_ns": 5}).encode(),
        line(type="pong", nonce=1, t_dev_ns=-5),
        line(type="pong", nonce=1, t_dev_ns=2**63),
        line(type="pong", nonce=1, t_dev_ns=1, extra="x"),
        b'{"type":"probe_done","seq":0,"job_id":"j","loss":NaN,"duration_ns":1,"samples":1}',
        line(type="marker", marker={"kind": "nap", "edge": "start", "t_dev_ns": 1, "seq": 0}),
        line(type="accepted", job_id="../up"),
        line(type="error", code="x", job_id="", message="x" * 5000),
    ],
)
def test_anything_else_is_refused(bad: bytes) -> None:
    with pytest.raises(DeviceProtocolError, match="no message"):
        parse_line(bad)


def test_a_long_line_is_refused_unread() -> None:
    with pytest.raises(DeviceError, match="bytes, more than"):
        parse_line(b" " * (MAX_LINE_BYTES + 1))


def test_a_nan_never_leaves() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode({"type": "x", "loss": float("nan")})


@given(st.binary(max_size=200))
def test_garbage_is_an_error_never_a_crash(garbage: bytes) -> None:
    with pytest.raises(DeviceError):
        parse_line(garbage)


@given(st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists, max_leaves=5))
def test_a_field_of_the_wrong_kind_is_an_error_never_a_crash(value: object) -> None:
    good = {
        "type": "done", "seq": 0, "job_id": "j", "outcome": "finished", "code": "", "message": "",
        "epochs": 1, "loss": 0.5, "uploaded": False, "result": None, "background": None, "t_dev_ns": 1,
        "wall_step_ns": 0, "suspended_ns": None, "cpu": {"epochs_s": 1.0, "agent_s": 0.1},
    }  # fmt: skip
    assert isinstance(parse_line(json.dumps(good).encode()), Done)
    for field in good:
        try:
            parse_line(json.dumps({**good, field: value}).encode())
        except DeviceProtocolError:
            continue
