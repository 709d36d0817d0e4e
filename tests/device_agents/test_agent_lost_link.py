"""The link cut, and the agent killed, in every phase: nothing that was stamped is lost."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from device_agents.payload.tensors import unpack_arrays
from device_agents.protocol import EpochMarker, Phase
from device_agents.session.agent_session import AgentSession
from device_agents.session.job_record import JobRecord
from device_agents.session.running_job import read_model
from device_agents.transport.local import LocalChannel
from joulefleet.errors import DeviceBusy, DeviceError, DeviceUnreachable
from tests.device_agents.agents import cut, kill, open_agent, session_on, softmax, wait_for_exit
from tests.device_agents.phases import (
    BEFORE_THE_MODEL_IS_THERE,
    MODEL,
    PHASES,
    begins,
    is_prefix,
    job_of_all_phases,
)


@dataclass
class Interruption:
    """What the host had seen when it happened."""

    seen: list[EpochMarker]
    job_id: str


class Snapped(Exception):
    """Thrown through the host's session when the link goes."""


def interrupt(
    channel: LocalChannel, phase: str, on_disconnect: str, how: Callable[[LocalChannel], None]
) -> Interruption:
    """Run a job and do something to it as soon as the host sees the phase begin."""
    result = Interruption([], f"{phase}-{on_disconnect}")

    def on_marker(marker: EpochMarker) -> None:
        result.seen.append(marker)
        if begins(marker, phase):
            how(channel)
            raise Snapped

    session = AgentSession(channel, on_marker=on_marker)
    with pytest.raises((Snapped, DeviceUnreachable)):
        session.run_round(
            job_of_all_phases(on_disconnect, quiet=False),
            lambda _: True,
            blobs={"model": MODEL},
            job_id=result.job_id,
        )
    return result


def collect(state: Path, job_id: str) -> tuple[JobRecord, bytes | None]:
    """Over a new connection: markers, end, and the result if there is one."""
    with session_on(state) as session:
        record = session.attach(job_id, wait_s=30)
        has_result = record.end is not None and record.end.result is not None
        return record, session.fetch_result(job_id) if has_result else None


@pytest.mark.parametrize("phase", PHASES)
def test_cut_and_told_to_stop(tmp_path: Path, phase: str) -> None:
    channel = open_agent(tmp_path)
    cut_at = interrupt(channel, phase, "stop", cut)
    record, _ = collect(tmp_path, cut_at.job_id)
    assert wait_for_exit(channel) == 0
    assert record.state == "done"
    assert is_prefix(cut_at.seen, record.markers)
    assert record.end is not None
    assert record.end.outcome == "link_lost"
    assert not record.end.uploaded


@pytest.mark.parametrize("phase", PHASES)
def test_cut_and_told_to_finish(tmp_path: Path, phase: str) -> None:
    channel = open_agent(tmp_path)
    cut_at = interrupt(channel, phase, "finish", cut)
    record, result = collect(tmp_path, cut_at.job_id)
    assert wait_for_exit(channel) == 0
    assert record.state == "done"
    assert is_prefix(cut_at.seen, record.markers)
    assert record.end is not None
    if phase in BEFORE_THE_MODEL_IS_THERE:  # without the model there is nothing to finish
        assert (record.end.outcome, record.end.epochs) == ("link_lost", 0)
        return
    assert (record.end.outcome, record.end.epochs, record.end.uploaded) == ("finished", 3, False)
    ended = [m.epoch for m in record.markers if m.kind is Phase.EPOCH and m.edge == "end"]
    assert ended == [1, 2, 3]
    assert record.decision is not None
    assert record.decision.by == ("host" if phase in ("epochs", "upload") else "policy")
    assert result is not None
    assert not np.array_equal(read_model(result, MODEL)["weights"], unpack_arrays(MODEL)["weights"])


def test_cut_in_the_middle_of_a_blob(tmp_path: Path) -> None:
    channel = open_agent(tmp_path)
    session = AgentSession(channel)
    send = channel.send

    def half(data: bytes, **_: float) -> None:
        if data == MODEL:
            send(data[: len(data) // 2])
            cut(channel)
            raise Snapped
        send(data)

    channel.send = half  # type: ignore[method-assign]
    with pytest.raises(Snapped):
        session.run_round(job_of_all_phases("finish", sync=None), blobs={"model": MODEL}, job_id="half")
    record, _ = collect(tmp_path, "half")
    assert wait_for_exit(channel) == 0
    assert [(m.kind, m.edge) for m in record.markers] == [(Phase.DOWNLOAD, "start")]
    assert record.end is not None
    assert record.end.outcome == "link_lost"
    assert [file.name for file in (tmp_path / "jobs/half").glob("model*")] == []


@pytest.mark.parametrize("phase", PHASES)
def test_killed(tmp_path: Path, phase: str) -> None:
    channel = open_agent(tmp_path)
    with channel:
        killed_at = interrupt(channel, phase, "finish", kill)
    record, _ = collect(tmp_path, killed_at.job_id)
    assert record.state == "died"
    assert record.end is None
    assert is_prefix(killed_at.seen, record.markers)
    assert killed_at.seen


def test_the_result_after_a_lost_link_is_that_of_an_undisturbed_run(tmp_path: Path) -> None:
    channel = open_agent(tmp_path)
    cut_at = interrupt(channel, "epochs", "finish", cut)
    record, result = collect(tmp_path, cut_at.job_id)
    wait_for_exit(channel)
    with session_on(tmp_path) as session:
        whole = session.run_round(job_of_all_phases("finish"), blobs={"model": MODEL})
    assert record.end is not None
    assert record.end.loss == whole.done.loss
    assert result is not None
    assert whole.model is not None
    assert unpack_arrays(result)["weights"].tobytes() == whole.model["weights"].tobytes()


def test_an_orphan_can_be_watched_and_cancelled(tmp_path: Path) -> None:
    channel = open_agent(tmp_path)
    session = AgentSession(channel)
    endless = softmax(samples=50_000, epochs=10_000, probe=False, on_disconnect="finish")
    session._link.send({"type": "job", "job_id": "orphan", **endless.model_dump(mode="json")})
    cut(channel)
    with session_on(tmp_path) as other:
        while len(other.collect("orphan").markers) < 4:
            time.sleep(0.05)
        running = other.attach("orphan", wait_s=0.2)
        assert running.state == "running"
        assert running.end is None
        with pytest.raises(DeviceError, match="still running"):
            other.forget("orphan")
        other.cancel_orphan("orphan")
        ended = other.attach("orphan", wait_s=30)
        assert ended.end is not None
        assert ended.end.outcome == "cancelled"
        assert is_prefix(list(running.markers), ended.markers)
    assert wait_for_exit(channel) == 0


def test_no_second_job_beside_one_that_outlived_its_host(tmp_path: Path) -> None:
    """Both would train at once, and each would be charged for the other."""
    channel = open_agent(tmp_path)
    session = AgentSession(channel)
    endless = softmax(samples=50_000, epochs=10_000, probe=False, on_disconnect="finish")
    session._link.send({"type": "job", "job_id": "orphan", **endless.model_dump(mode="json")})
    cut(channel)
    with session_on(tmp_path) as other:
        while not (tmp_path / "jobs/orphan/journal.jsonl").exists():
            time.sleep(0.05)
        named = rf"job 'orphan' is running on the device \(.* kill {session.hello.pid}\)"
        with pytest.raises(DeviceBusy, match=named) as caught:
            other.require_free()
        assert caught.value.transient
        with pytest.raises(DeviceBusy, match=named):
            other.run_round(softmax(), job_id="second")
        assert [folder.name for folder in (tmp_path / "jobs").iterdir()] == ["orphan"]
        os.kill(session.hello.pid, signal.SIGTERM)  # as the message says
        assert other.attach("orphan", wait_s=30).state == "done"
        other.require_free()
        assert other.run_round(softmax(), job_id="second").done.outcome == "finished"
    assert wait_for_exit(channel) == 0


def test_the_device_is_free_again_when_an_agent_is_killed(tmp_path: Path) -> None:
    channel = open_agent(tmp_path)
    with channel:
        interrupt(channel, "epochs", "finish", kill)
    with session_on(tmp_path) as session:
        session.require_free()
        assert session.run_round(softmax()).done.outcome == "finished"


def test_a_host_that_goes_before_the_job_begins(tmp_path: Path) -> None:
    """The agent has read the job and the end of its input before it starts on the job."""
    for number, policy in enumerate(["stop", "finish"]):
        channel = open_agent(tmp_path)
        session = AgentSession(channel)
        os.kill(channel.pid, signal.SIGSTOP)
        job = softmax(epochs=5, samples=20_000, probe=False, on_disconnect=policy)
        session._link.send({"type": "job", "job_id": f"job{number}", **job.model_dump(mode="json")})
        cut(channel)
        os.kill(channel.pid, signal.SIGCONT)
        assert wait_for_exit(channel) == 0
    ends = []
    with session_on(tmp_path) as session:
        for number in range(2):
            end = session.collect(f"job{number}").end
            assert end is not None
            ends.append((end.outcome, end.epochs))
    assert ends == [("link_lost", 0), ("finished", 5)]


def test_a_reboot_is_recognised_by_the_boot_id(tmp_path: Path) -> None:
    """Two boots of a device: the same folder, another boot id below its root."""
    boots = []
    for number in (1, 2):
        file = tmp_path / f"boot{number}/proc/sys/kernel/random/boot_id"
        file.parent.mkdir(parents=True)
        file.write_text(f"{number}0000000-0000-4000-8000-000000000000\n")
        boots.append(str(tmp_path / f"boot{number}"))
    channel = open_agent(tmp_path / "state", "--root", boots[0])
    with channel:
        killed_at = interrupt(channel, "wait", "finish", kill)
    with session_on(tmp_path / "state", "--root", boots[0]) as session:
        assert session.collect(killed_at.job_id).state == "died"
    with session_on(tmp_path / "state", "--root", boots[1]) as session:
        record = session.collect(killed_at.job_id)
        assert record.state == "rebooted"
        assert record.begin is not None
        assert record.begin.boot_id != session.hello.boot_id
        assert is_prefix(killed_at.seen, record.markers)


def test_terminated_by_the_system_it_still_says_how_it_ended(tmp_path: Path) -> None:
    def terminate(channel: LocalChannel) -> None:
        os.kill(channel.pid, signal.SIGTERM)

    channel = open_agent(tmp_path)
    with channel:
        ended_at = interrupt(channel, "epochs", "finish", terminate)
        wait_for_exit(channel)
    record, _ = collect(tmp_path, ended_at.job_id)
    assert record.end is not None
    assert record.end.outcome == "cancelled"


@pytest.mark.campaign
def test_killed_at_random_moments(
    tmp_path: Path, campaign_count: Callable[[int, int], int], record_property: Callable[[str, object], None]
) -> None:
    """A marker is journalled before it is sent: all that the host has seen is there, and at most one more.

    The moments are spread over the time that a whole job takes here.
    """
    rng = np.random.default_rng(3)
    kills = campaign_count(3, 200)
    whole_s = min(_duration_s(tmp_path) for _ in range(3))
    found: list[JobRecord] = []
    for number in range(kills):
        channel = open_agent(tmp_path)
        with channel:
            session = AgentSession(channel)
            killer = threading.Timer(rng.uniform(0.0, whole_s), os.kill, (channel.pid, signal.SIGKILL))
            killer.start()
            job = job_of_all_phases("finish", quiet=False)
            with contextlib.suppress(DeviceUnreachable):  # it may have been over already
                session.run_round(job, blobs={"model": MODEL}, job_id=f"job{number}")
            killer.join()
        found += _collected(tmp_path, f"job{number}", session.markers)
    record_property("kills", kills)
    record_property("killed_midway", sum(record.state == "died" for record in found))
    record_property("markers_recovered", sum(len(record.markers) for record in found))
    record_property("last_markers", len({len(record.markers) for record in found}))
    assert any(record.state == "died" for record in found)


def _duration_s(state: Path) -> float:
    with session_on(state) as session:
        start_s = time.monotonic()
        session.run_round(job_of_all_phases("finish", quiet=False), blobs={"model": MODEL})
        return time.monotonic() - start_s


def _collected(state: Path, job_id: str, seen: tuple[EpochMarker, ...]) -> list[JobRecord]:
    """What a killed job left, every marker that was seen in it; nothing if it had not begun."""
    if not (state / "jobs" / job_id / "lock").exists():
        assert not seen
        return []
    with session_on(state) as session:
        record = session.collect(job_id)
    assert record.state in ("died", "done")
    assert is_prefix(seen, record.markers)
    assert len(record.markers) - len(seen) in (0, 1)
    return [record]
