"""A real agent plays its pattern while an emulated meter turns the agent's processor time into power."""

import math
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from device_agents.job import SyncPattern
from device_agents.session.agent_session import AgentSession
from harness.clock import align, burst_runs
from harness.clock.align import MAX_DISAGREEMENT_S
from power.emulated.options import EmulatorOptions
from power.emulated.service import EmulatorProcess
from power.meter import MeterConfig, open_meter
from power.recording import open_recording
from power.recording.recorder import record
from tests.device_agents.agents import open_agent, softmax

# Meters are recorded in real time: such tests run one after the other, not against each other.
pytestmark = pytest.mark.xdist_group("bench")


def test_a_live_pattern_is_reported_and_agrees_with_the_pings(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Here device and host share one clock, so the offset is the meter's own delay.

    The emulated meter learns of processor time only when it is scheduled itself, and spreads it over the time
    since: on a busy machine the bursts appear early, by as much as it was kept waiting.
    """
    started, stop = threading.Event(), threading.Event()
    with open_agent(tmp_path / "state") as channel:
        session = AgentSession(channel)
        options = EmulatorOptions(
            signal=f"process:pid={channel.pid},idle=0.8,dynamic=2.0,voltage=4.0", noise_a=0.01, tau_s=0.005
        )
        with EmulatorProcess("monsoon-lvpm", options) as instrument:
            config = MeterConfig(
                kind="monsoon-lvpm",
                port=instrument.address,
                voltage_v=4.0,
                voltage_max_v=4.2,
                current_limit_a=4.0,
            )

            def run() -> None:
                with open_meter(config) as opened:
                    record(opened, tmp_path / "recording", stop=stop, on_block=lambda _: started.set())

            recorder = threading.Thread(target=run)
            recorder.start()
            try:
                assert started.wait(30)
                pings = session.ping(20)
                markers = session.run_round(softmax(epochs=1, probe=False, sync=SyncPattern())).markers
                pings += session.ping(20)
                stop.wait(1.0)
            finally:
                stop.set()
                recorder.join()
    bursts = burst_runs(markers)
    assert [run.when for run in bursts] == ["before", "after"]
    assert all(run.late_ns for run in bursts)
    found = align(open_recording(tmp_path / "recording"), pings, bursts)
    record_property("method", found.fit.method)
    record_property("sync_uncertainty_ms", found.fit.sync_uncertainty_s * 1e3)
    record_property("tau_ms", found.fit.tau_s and found.fit.tau_s * 1e3)
    record_property("latest_edge_ms", max(max(run.late_ns) for run in bursts) * 1e-6)
    for burst in found.bursts:
        record_property(
            burst.when,
            {"peak_to_sidelobe": burst.peak_to_sidelobe, "from_pings_s": burst.from_pings_s}
            | {"standard_s": burst.standard_s, "refused": burst.refused},
        )
    assert math.isfinite(found.fit.sync_uncertainty_s)
    for run in bursts:
        off_s = (found.fit.to_host_ns(run.middle_ns) - found.pings.to_host_ns(run.middle_ns)) * 1e-9
        assert abs(off_s) < MAX_DISAGREEMENT_S
