"""What the agent costs beside the training: its own threads. `benchmarks.quiet_mode` adds the link.

The agent accounts for the processor time of its own threads (reader, telemetry, power sensors, heartbeat,
markers) and of the epochs; both come back with the end of a job. The telemetry is read from a tree of files
with the sources of an eight-core phone, because a virtual machine has hardly any of its own.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks.result import Figure, figure
from device_agents import AgentSession, Job
from device_agents.transport import LocalTransport

REPEATS = 5
SAMPLES = 200_000
EPOCHS = 8
BAR_PERCENT = 1.0
CORES, ZONES = 8, 30


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


def run() -> list[Figure]:
    """All modes in turn, in one agent."""
    modes = {
        "no telemetry": {"telemetry_hz": 0.0},
        "telemetry at 2 Hz": {"telemetry_hz": 2.0},
        "telemetry at 5 Hz": {"telemetry_hz": 5.0},
    }
    percent: dict[str, list[float]] = {mode: [] for mode in modes}
    with tempfile.TemporaryDirectory(prefix="agent-overhead-") as name:
        folder = Path(name)
        argv = [sys.executable, "-m", "device_agents.payload.agent", "--state", str(folder / "state")]
        argv += ["--root", str(phone_tree(folder / "root"))]
        one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        with LocalTransport(one_thread).open(argv) as channel:
            session = AgentSession(channel)
            for _ in range(REPEATS):
                for mode, changes in modes.items():
                    job = Job(workload="softmax", samples=SAMPLES, epochs=EPOCHS, seed=1, probe=False)
                    cpu = session.run_round(job.model_copy(update=changes)).done.cpu
                    percent[mode].append(100 * cpu.agent_s / (cpu.epochs_s - cpu.agent_s))
    return [
        figure(
            "agent_overhead",
            f"agent's threads, {mode}",
            values,
            "% of training CPU",
            bar=BAR_PERCENT,
            better="lower",
            note="telemetry goes by the clock: on a busy machine training gets less done beside it",
        )
        for mode, values in percent.items()
    ]


if __name__ == "__main__":
    from benchmarks.__main__ import show

    for one in run():
        show(one)
