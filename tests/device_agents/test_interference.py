"""Background load: real processes, their share of a core, and that they never outlive the agent."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from device_agents.job import BackgroundLoad, LoadStep
from device_agents.payload.interference import Interference, parse_load


def started(load: BackgroundLoad) -> Interference:
    interference = Interference(parse_load(load.model_dump(mode="json")))
    interference.start()
    return interference


def workers(interference: Interference) -> list[int]:
    return [worker.pid for worker in interference._workers]


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_until(state: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not state():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("cores", [1, 2])
def test_each_worker_takes_no_more_than_its_share_and_reports_it(cores: int) -> None:
    interference = started(BackgroundLoad.constant(0.3, cores))
    pids = workers(interference)
    before = [cpu_s(pid) for pid in pids]
    time.sleep(1.0)
    used = [cpu_s(pid) - b for pid, b in zip(pids, before, strict=True)]
    report = interference.stop()
    assert report["workers"] == cores == len(pids)
    # Never more than asked for, a period at each end aside; how much less depends on who else wants the core.
    assert 0 < report["cpu_s"] <= 0.3 * (report["wall_s"] + cores * 0.2) + 0.02
    # The kernel's count, in ticks of 10 ms, agrees with the report, which leaves the interpreter's start out.
    assert sum(used) <= report["cpu_s"] + 0.03 * cores
    assert report["copied_bytes"] == 0
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []


def test_no_load_takes_next_to_nothing() -> None:
    interference = started(BackgroundLoad.constant(0.0))
    time.sleep(0.5)
    report = interference.stop()
    assert report["cpu_s"] < 0.1 * report["wall_s"]


def test_memory_load_copies() -> None:
    load = BackgroundLoad(kind="memory", steps=(LoadStep(duration_s=1, cpu=1.0),), buffer_bytes=8 << 20)
    interference = started(load)
    (pid,) = workers(interference)
    wait_until(lambda: cpu_s(pid) >= 0.2)
    report = interference.stop()
    assert report["copied_bytes"] > 8 << 20
    assert report["copied_bytes"] % (1 << 20) == 0


def test_a_recorded_sequence_is_followed() -> None:
    """An app in the foreground for a while, then nothing for long."""
    steps = (LoadStep(duration_s=0.4, cpu=0.8), LoadStep(duration_s=600, cpu=0.0))
    interference = started(BackgroundLoad(steps=steps))
    (pid,) = workers(interference)
    time.sleep(0.5)

    def asleep() -> bool:  # half a second with at most the end of the last period; a busy machine begins late
        before = cpu_s(pid)
        time.sleep(0.5)
        return cpu_s(pid) - before <= 0.05

    wait_until(asleep)
    assert interference.stop()["cpu_s"] <= 0.8 * 0.6


ORPHAN_MAKER = """
import json, sys, time
from device_agents.payload.interference import Interference, parse_load
load = Interference(parse_load(json.loads(sys.argv[1])))
load.start()
print(*[worker.pid for worker in load._workers], flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("kind", ["cpu", "memory"])
def test_workers_die_with_a_killed_agent(kind: str) -> None:
    load = BackgroundLoad.constant(1.0, 2, "memory" if kind == "memory" else "cpu")
    agent = subprocess.Popen(
        [sys.executable, "-c", ORPHAN_MAKER, json.dumps(load.model_dump(mode="json"))], stdout=subprocess.PIPE
    )
    assert agent.stdout is not None
    pids = [int(word) for word in agent.stdout.readline().split()]
    assert len(pids) == 2
    assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    os.kill(agent.pid, signal.SIGKILL)
    agent.wait()
    agent.stdout.close()
    deadline = time.monotonic() + 20
    while any(_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [pid for pid in pids if _alive(pid)] == []


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def test_a_worker_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("device_agents.payload.interference.STOP_TIMEOUT_S", 0.2)
    interference = started(BackgroundLoad.constant(0.1))
    (pid,) = workers(interference)
    os.kill(pid, signal.SIGSTOP)
    assert interference.stop() == {"workers": 0, "cpu_s": 0, "wall_s": 0, "copied_bytes": 0}
    assert not _alive(pid)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "disk"},
        {"cores": 0},
        {"cores": 65},
        {"steps": []},
        {"steps": [{"duration_s": 0, "cpu": 0.5}]},
        {"steps": [{"duration_s": 1, "cpu": 1.5}]},
        {"buffer_bytes": 1},
    ],
)
def test_a_load_out_of_range_is_refused(wrong: dict[str, object]) -> None:
    good = BackgroundLoad.constant(0.5).model_dump(mode="json")
    with pytest.raises(ValueError, match=r"cores|steps|buffers"):
        parse_load({**good, **wrong})
