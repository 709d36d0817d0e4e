"""Class 1, by somebody who had read SECURITY.md only: lines, floods and last words in place of an agent's."""

from __future__ import annotations

import re
import time

import pytest

from device_agents.session.agent_session import AgentSession
from device_agents.transport import local
from joulefleet.errors import DeviceError
from tests.device_agents.agents import session_with, softmax
from tests.device_agents.test_agent_untrusted import PRELUDE

RAW = PRELUDE + (
    "def raw(data):\n    sys.stdout.buffer.write(data); sys.stdout.buffer.flush()\n"
    "def line(rest):\n    raw(b'{\"seq\":2,' + rest + b'}\\n')\n"
    "hello(); hear(); say('accepted', job_id='j')\n"
)
LINES = {
    "a number of nine thousand digits": 'line(b\'"type":"heartbeat","t_dev_ns":\' + b\'9\' * 9000)',
    "beyond what a float holds": 'line(b\'"type":"heartbeat","t_dev_ns":1e999\')',
    "Infinity": 'line(b\'"type":"heartbeat","t_dev_ns":Infinity,"phase":"epoch","epoch":1\')',
    "half a character": "done('j', outcome='failed', code='x', message='\\ud800')",
    "no UTF-8": 'line(b\'"type":"heartbeat","phase":"\\xff\\xfe"\')',
    "UTF-16": "raw('{\"type\":\"heartbeat\"}\\n'.encode('utf-16'))",
    "a byte order mark": "raw(b'\\xef\\xbb\\xbf{}\\n')",
    "zeros": "raw(bytes(1000) + b'\\n')",
    "empty lines": "raw(b'\\n' * 100_000)",
    "a list": "raw(b'[1, 2, 3]\\n')",
    "two types": 'line(b\'"type":"heartbeat","type":"done"\')',
    "too many facts": "say('marker', marker=dict(kind='wait', edge='start', t_dev_ns=1, seq=0,"
    " extra={str(i): 1 for i in range(33)}))",
    "facts without end": 'line(b\'"type":"marker","marker":{"extra":{"a":\' + b\'[\' * 5000)',
    "a number twice": "seq = 1; say('heartbeat', t_dev_ns=1, phase='epoch', epoch=1)",
    "time below zero for a processor": "done('j', cpu=dict(epochs_s=-1.0, agent_s=0))",
    "more time than there was": "done('j', cpu=dict(epochs_s=1e308, agent_s=0))",
    "a loss that is none": "done('j', loss=float('nan'))",
    "the clock before it began": "done('j', t_dev_ns=-5)",
    "a result of the host": "done('j', result=dict(path='../../../etc/passwd', size=1, sha256='0' * 64))",
    "accepted twice": "say('accepted', job_id='j')",
    "an epoch below zero": "say('heartbeat', t_dev_ns=1, phase='epoch', epoch=-7)",
    "samples below zero": "say('probe_done', job_id='j', loss=1.0, duration_ns=1, samples=-600)",
    "last words of 60 kB": "done('j', outcome='failed', code='x', message='\\x1b[2J' * 15000)",
    "an epoch of 292 years": "say('probe_done', job_id='j', loss=1e308, duration_ns=2**63 - 1, samples=9)",
}


@pytest.mark.parametrize("program", LINES.values(), ids=LINES.keys())
def test_a_line_that_is_none_ends_the_job(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "HANG_UP_S", 0.1)
    with session_with(f"{RAW}{program}\nsys.stdin.read()") as channel:
        session = AgentSession(channel, timeout_s=20.0)
        with pytest.raises(DeviceError) as caught:
            session.run_round(softmax(quiet=False, deadline_s=20), job_id="j")
    assert not re.search(r"[^\x20-\x7e]", caught.value.message)  # nor does it reach a terminal as it is
    assert len(caught.value.message) < 1000


def test_what_is_said_after_the_end_is_no_answer_to_the_next_job() -> None:
    program = "done('j'); done('k'); hear(); hear(); sys.stdin.read()"
    with session_with(RAW + program) as channel:
        session = AgentSession(channel, timeout_s=5.0)
        assert session.run_round(softmax(quiet=False), job_id="j").job_id == "j"
        with pytest.raises(DeviceError, match="which it never accepted"):
            session.run_round(softmax(quiet=False), job_id="k")


@pytest.mark.parametrize("pipe", ["stdout", "stderr"])
def test_a_command_that_prints_without_end_takes_neither_memory_nor_time(pipe: str) -> None:
    """`resource.getrusage` never falls, so another process does it."""
    import subprocess
    import sys

    redirected = " >&2" if pipe == "stderr" else ""
    code = (
        "import resource\nfrom device_agents.transport.local import LocalTransport\n"
        "from joulefleet.errors import DeviceError\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"try: LocalTransport().run(['sh', '-c', 'yes{redirected}'], timeout_s=1)\n"
        "except DeviceError as error: print(error)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    began_s = time.monotonic()
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    words, kilobytes = told.stdout.splitlines()
    assert "printed more than" in words or "did not end within 1 s" in words
    assert int(kilobytes) < 50_000
    assert time.monotonic() - began_s < 20


def test_a_file_that_never_ends_is_refused() -> None:
    with pytest.raises(DeviceError, match="not a plain file"):
        local.LocalTransport().download("/dev/zero", max_bytes=1000)
