"""What the agent costs beside the training: its own threads, and what sending as it happens adds to that.

The agent accounts for the processor time of its own threads (reader, telemetry, power sensors, heartbeat,
markers) and of the epochs; both come back with the end of a job. The telemetry is read from a tree of files
with the sources of an eight-core phone, because a virtual machine has hardly any of its own.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from benchmarks.result import Figure, figure
from device_agents.job import Job
from device_agents.session import AgentSession
from device_agents.transport.local import LocalChannel

REPEATS = 5
SAMPLES = 200_000
EPOCHS = 8
BAR_PERCENT = 1.0
CORES, ZONES = 8, 30


class CountingChannel(LocalChannel):
    """Counts the lines that the agent sends."""

    lines = 0
    received_bytes = 0

    def receive_line(self, timeout_s: float) -> bytes:
        """See `Channel`."""
        line = super().receive_line(timeout_s)
        self.lines += 1
        self.received_bytes += len(line) + 1
        return line


def phone_tree(root: Path) -> Path:
    """Eight cores, thirty thermal zones, a battery; the rest as this machine has it."""
    cpu, thermal = root / "sys/devices/system/cpu", root / "sys/class/thermal"
    files = {cpu / f"cpu{n}/cpufreq/scaling_cur_freq": "1804800" for n in range(CORES)}
    files |= {thermal / f"thermal_zone{n}/temp": "41234" for n in range(ZONES)}
    files |= {thermal / f"thermal_zone{n}/type": f"zone-{n}" for n in range(ZONES)}
    battery = root / "sys/class/power_supply/battery"
    files |= {battery / "type": "Battery", battery / "capacity": "83", battery / "temp": "314"}
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    (root / "proc").symlink_to("/proc")
    return root


class Measured:
    """One mode over several jobs."""

    def __init__(self) -> None:
        self.agent_percent: list[float] = []
        self.epochs_s: list[float] = []
        self.lines_per_s: list[float] = []
        self.bytes_per_s: list[float] = []

    def add(self, channel: CountingChannel, session: AgentSession, job: Job) -> None:
        """Run one job and keep its figures."""
        lines, received = channel.lines, channel.received_bytes
        result = session.run_round(job)
        cpu = result.done.cpu
        wall_s = (result.markers[-1].t_dev_ns - result.markers[0].t_dev_ns) * 1e-9
        self.agent_percent.append(100 * cpu.agent_s / (cpu.epochs_s - cpu.agent_s))
        self.epochs_s.append(cpu.epochs_s)
        self.lines_per_s.append((channel.lines - lines) / wall_s)
        self.bytes_per_s.append((channel.received_bytes - received) / wall_s)


def run() -> list[Figure]:
    """Quiet and non-quiet jobs in turn, in one agent."""
    modes = {
        "no telemetry": {"telemetry_hz": 0.0},
        "telemetry at 2 Hz, quiet": {"telemetry_hz": 2.0},
        "telemetry at 5 Hz, quiet": {"telemetry_hz": 5.0},
        "telemetry at 5 Hz, sent as it happens": {"telemetry_hz": 5.0, "quiet": False},
    }
    measured = {name: Measured() for name in modes}
    with tempfile.TemporaryDirectory(prefix="agent-overhead-") as name:
        folder = Path(name)
        argv = [sys.executable, "-m", "device_agents.payload.agent", "--state", str(folder / "state")]
        argv += ["--root", str(phone_tree(folder / "root"))]
        one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        with CountingChannel(argv, {**os.environ, **one_thread}) as channel:
            session = AgentSession(channel)
            for _ in range(REPEATS):
                for mode, changes in modes.items():
                    job = Job(workload="softmax", samples=SAMPLES, epochs=EPOCHS, seed=1, probe=False)
                    measured[mode].add(channel, session, job.model_copy(update=changes))
    return _figures(measured)


def _figures(measured: dict[str, Measured]) -> list[Figure]:
    figures = [
        figure(
            "agent_overhead",
            f"agent threads, {mode}",
            found.agent_percent,
            "% of training CPU",
            bar=BAR_PERCENT,
            better="lower",
        )
        for mode, found in measured.items()
    ]
    quiet, loud = (measured[m] for m in ("telemetry at 5 Hz, quiet", "telemetry at 5 Hz, sent as it happens"))
    ratios = [b / a for a, b in zip(quiet.epochs_s, loud.epochs_s, strict=True)]
    pipe = "over a pipe on this machine; a radio that is kept awake costs more than this can show"
    more = {
        "epoch CPU time, non-quiet against quiet": (ratios, "x", pipe),
        "messages during a non-quiet job": (loud.lines_per_s, "per s", ""),
        "bytes during a non-quiet job": (loud.bytes_per_s, "B/s", ""),
        "messages during a quiet job": (
            quiet.lines_per_s,
            "per s",
            "the first, the last, and the collecting",
        ),
    }
    for name, (values, unit, note) in more.items():
        figures.append(figure("agent_overhead", name, values, unit, better="lower", note=note))
    return figures


if __name__ == "__main__":
    from benchmarks.__main__ import show

    for one in run():
        show(one)
