"""Things in the place of an agent that are none: each ends in a typed error, in bounded memory and time."""

import json
import struct
import tracemalloc

import numpy as np
import pytest

from device_agents.job import BlobRef
from device_agents.payload.link.wire import MAX_JOURNAL_BYTES
from device_agents.payload.tensors import pack_arrays
from device_agents.protocol import JobStatus
from device_agents.session.agent_session import AgentSession
from device_agents.session.job_record import read_job
from device_agents.session.running_job import MAX_RESULT_BYTES, read_model
from joulefleet.errors import DeviceError, DeviceProtocolError, DeviceUnreachable
from tests.device_agents.agents import a_model, kill, session_with, softmax

PRELUDE = """
import json, sys
seq = 0
def say(type, **more):
    global seq
    sys.stdout.buffer.write(json.dumps({"type": type, "seq": seq, **more}).encode() + b"\\n")
    sys.stdout.buffer.flush()
    seq += 1
def hear():
    return json.loads(sys.stdin.buffer.readline())
def hello(**more):
    hear()
    clock = {"monotonic_ns": 1, "realtime_ns": 1, "boottime_ns": 1}
    say("hello", **{"version": 1, "pid": 1, "python": "3", "boot_id": "", "clock": clock, **more})
def done(job_id, **more):
    cpu = {"epochs_s": 0, "agent_s": 0}
    fields = dict(outcome="finished", code="", message="", epochs=1, loss=1.0, uploaded=False, result=None,
                  background=None, cpu=cpu, t_dev_ns=1, wall_step_ns=0, suspended_ns=0)
    say("done", **{**fields, "job_id": job_id, **more})
"""


def test_garbage_in_place_of_a_hello() -> None:
    with (
        session_with("print('Welcome to Raspbian')") as channel,
        pytest.raises(DeviceProtocolError, match="no message") as caught,
    ):
        AgentSession(channel)
    assert not caught.value.transient


def test_a_hello_nested_without_end() -> None:
    with (
        session_with("print('[' * 60_000)") as channel,
        pytest.raises(DeviceProtocolError, match="no message"),
    ):
        AgentSession(channel)


@pytest.mark.parametrize("version", [0, 2, "'1'", None])
def test_another_version_is_named_before_anything_else_is_checked(version: object) -> None:
    program = f"{PRELUDE}\nhear(); say('hello', version={version}, something_new=[1, 2])"
    with (
        session_with(program) as channel,
        pytest.raises(DeviceProtocolError, match=r"speaks protocol .*, this host 1") as caught,
    ):
        AgentSession(channel)
    assert "deploy" in caught.value.hint


def test_garbage_in_the_middle() -> None:
    with session_with(PRELUDE + "hello(); hear(); print('Segmentation fault')") as channel:
        session = AgentSession(channel)
        with pytest.raises(DeviceProtocolError, match="Segmentation fault"):
            session.ping(1)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("seq += 1; say('pong', nonce=0, t_dev_ns=1)", "message 2 arrived where 1 was due"),
        ("say('pong', nonce=7, t_dev_ns=1)", "answered ping 7"),
        ("say('ok', job_id='')", "sent 'ok' where Pong was due"),
        ("say('error', code='busy', message='not now', job_id='')", "not now"),
    ],
)
def test_a_wrong_answer_to_a_ping(answer: str, message: str) -> None:
    with session_with(f"{PRELUDE}\nhello(); hear(); {answer}") as channel:
        session = AgentSession(channel)
        with pytest.raises(DeviceError, match=message):
            session.ping(1)


def test_an_endless_line_is_given_up_in_bounded_memory() -> None:
    program = PRELUDE + "hello(); hear()\nwhile True: sys.stdout.write('x' * 65536)"
    with session_with(program) as channel:
        session = AgentSession(channel)
        tracemalloc.start()
        try:
            with pytest.raises(DeviceError, match="line longer than"):
                session.ping(1)
            kill(channel)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak_bytes < 2_000_000


def test_a_reply_of_a_gigabyte_is_refused_unread() -> None:
    program = (
        PRELUDE
        + f"""
hello(); hear(); say("accepted", job_id="big")
say("blob", job_id="big", name="result", size=10**9, sha256="0" * 64)
while True: sys.stdout.buffer.write(bytes({1 << 20}))
"""
    )
    with session_with(program) as channel:
        session = AgentSession(channel)
        tracemalloc.start()
        try:
            with pytest.raises(
                DeviceProtocolError, match=f"1000000000 bytes, more than the {MAX_RESULT_BYTES}"
            ):
                session.run_round(softmax(upload=True), job_id="big")
            kill(channel)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak_bytes < 2_000_000


def one_upload(data: bytes, **header: object) -> str:
    fields = {"size": len(data), "sha256": BlobRef.of(data).sha256, **header}
    return (
        PRELUDE
        + f"""
hello(); hear(); say("accepted", job_id="j")
say("blob", job_id="j", name="result", **json.loads({json.dumps(json.dumps(fields))}))
sys.stdout.buffer.write({data!r}); sys.stdout.buffer.flush(); hear(); done("j")
"""
    )


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (one_upload(a_model(), size=80_000), "more than the"),
        (one_upload(a_model() + b"x"), "1 bytes behind the last array"),
        (one_upload(a_model(), sha256="0" * 64), "arrived damaged"),
        (one_upload(b"\x80\x04]q\x00."), "do not parse"),  # a pickle
        (one_upload(pack_arrays({"weights": np.zeros(3)})), "other weights than it was given"),
        (one_upload(pack_arrays({"../../evil": np.zeros(3)})), "other weights than it was given"),
    ],
)
def test_weights_that_are_not_what_was_asked_for(program: str, message: str) -> None:
    with session_with(program) as channel:
        session = AgentSession(channel)
        job = softmax(upload=True, model=BlobRef.of(a_model()))
        with pytest.raises(DeviceError, match=message):
            session.run_round(job, job_id="j", blobs={"model": a_model()})


def test_weights_nested_without_end() -> None:
    with pytest.raises(DeviceProtocolError, match="do not parse"):
        read_model(struct.pack("<Q", 100_000) + b"[" * 100_000, None)


TWO_PROBES = """
report = dict(job_id="j", loss=1, duration_ns=1, samples=1)
say("probe_done", **report); hear(); say("probe_done", **report)
"""

TWICE_THE_SAME_MARKER = """
marker = {"kind": "wait", "edge": "start", "t_dev_ns": 1, "seq": 0}
say("marker", marker=marker); say("marker", marker=marker)
"""


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("say('want', job_id='j', name='shard', sha256='', size=1)", "asked for 'shard', which is not due"),
        ("say('want', job_id='j', name='/etc/passwd', sha256='', size=1)", "no message"),
        ("say('accepted', job_id='j')", "sent 'accepted', which is not due"),
        ("done('other')", "speaks of job 'other'"),
        (
            "done('j', outcome='failed', code='storage_full', message='no room')",
            "no space left on the device",
        ),
        ("done('j', outcome='failed', code='x', message='y' * 5000)", "no message"),
        ("done('j', outcome='elsewhere')", "no message"),
        ("done('j', loss=float('nan'))", "no message"),
        (TWO_PROBES, "probe that was not due"),
        ("say('blob', job_id='j', name='result', size=1, sha256='')", "result that was not due"),
        (TWICE_THE_SAME_MARKER, "marker 0 arrived where 1 was due"),
    ],
)
def test_nonsense_during_a_job(script: str, message: str) -> None:
    program = f"{PRELUDE}\nhello(); hear(); say('accepted', job_id='j')\n{script}\nhear()"
    with session_with(program) as channel:
        session = AgentSession(channel)
        with pytest.raises(DeviceError, match=message):
            session.run_round(softmax(quiet=False), job_id="j")


A_MARKER = {"kind": "wait", "edge": "start", "t_dev_ns": 1, "seq": 0}


@pytest.mark.parametrize(
    ("fault", "transient"),
    [
        ("print('Segmentation fault', flush=True)", False),
        ("sys.stdout.write('x' * 10**6)", False),
        ("say('blob', job_id='j', name='result', size=10**9, sha256='0' * 64)", False),
        ("done('j', outcome='failed', code='storage_full', message='no room')", True),
        ("sys.exit(1)", True),
    ],
)
def test_markers_that_have_arrived_survive_what_comes_next(fault: str, transient: bool) -> None:
    begin = f"hello(); hear(); say('accepted', job_id='j'); say('marker', marker={A_MARKER})"
    kept: list[int] = []
    with session_with(f"{PRELUDE}\n{begin}\n{fault}\nhear()") as channel:
        session = AgentSession(channel, on_marker=lambda marker: kept.append(marker.seq))
        with pytest.raises(DeviceError) as caught:
            session.run_round(softmax(quiet=False, upload=True), job_id="j")
    assert caught.value.transient is transient
    assert [marker.seq for marker in session.markers] == kept == [0]


def test_a_missing_marker_is_noticed() -> None:
    script = (
        "m = {'kind': 'wait', 'edge': 'start', 't_dev_ns': 1, 'seq': 1}\nsay('marker', marker=m); done('j')"
    )
    program = f"{PRELUDE}\nhello(); hear(); say('accepted', job_id='j')\n{script}"
    with (
        session_with(program) as channel,
        pytest.raises(DeviceProtocolError, match="marker 0 of job j is missing"),
    ):
        AgentSession(channel).run_round(softmax(quiet=False), job_id="j")


STATUS = {"job_id": "j", "state": "done", "result": None, "telemetry_bytes": 0, "log_bytes": 0}


def chunk(file: str, size: int) -> str:
    """A status of ten bytes, then a piece."""
    announce = f"say('status', **{STATUS}, journal_bytes=10); hear()\n"
    return announce + f"say('chunk', job_id='j', file='{file}', offset=0, size={size})\n"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (f"say('status', **{STATUS}, journal_bytes={MAX_JOURNAL_BYTES + 1})", "more than the"),
        (chunk("journal", 11), "block of 11 bytes, more than the 10"),
        (chunk("journal", 0), "another piece"),
        (chunk("telemetry", 10), "another piece"),
        (chunk("../x", 10), "no message"),
    ],
)
def test_collecting_from_a_liar(script: str, message: str) -> None:
    with session_with(f"{PRELUDE}\nhello(); hear()\n{script}\nhear()") as channel:
        session = AgentSession(channel)
        with pytest.raises(DeviceProtocolError, match=message):
            session.collect("j")


def test_an_agent_that_ends_in_the_middle_of_a_block() -> None:
    script = chunk("journal", 10) + "print('abc')"
    with session_with(f"{PRELUDE}\nhello(); hear()\n{script}") as channel:
        session = AgentSession(channel)
        with pytest.raises(DeviceUnreachable, match="ended unexpectedly"):
            session.collect("j")


def marker(seq: int) -> bytes:
    record = {"type": "marker", "marker": {"kind": "wait", "edge": "start", "t_dev_ns": 1, "seq": seq}}
    return json.dumps(record).encode() + b"\n"


def status() -> JobStatus:
    return JobStatus.model_validate({**STATUS, "seq": 0, "journal_bytes": 0})


def test_a_journal_with_a_hole_or_a_forged_line_is_refused() -> None:
    assert len(read_job(status(), marker(0) + marker(1), b"", b"").markers) == 2
    with pytest.raises(DeviceProtocolError, match="marker 2 stands where 1 was due"):
        read_job(status(), marker(0) + marker(2), b"", b"")
    with pytest.raises(DeviceProtocolError, match="journal line 2"):
        read_job(status(), marker(0) + b'{"type":"marker"}\n', b"", b"")
    uneven = {"type": "power", "source": "s", "first_index": 0, "dropped": 0, "t_dev_ns": [1], "read_ns": 1}
    with pytest.raises(DeviceProtocolError, match="not as long"):
        read_job(status(), b"", json.dumps({**uneven, "raw": {"current_a": [1, 2]}}).encode() + b"\n", b"")


def test_half_a_line_at_the_end_of_a_journal_is_left_out() -> None:
    assert len(read_job(status(), marker(0) + marker(1)[:20], b"", b"").markers) == 1
