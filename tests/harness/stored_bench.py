"""A bench run on disk, made by the runner's own writers: known power, failed attempts, a journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from device_agents.protocol import EpochMarker, Phase
from harness.bench.job.failures import failed_record, put_aside
from harness.bench.journal import JOURNAL, BenchJournal
from harness.bench.matrix import BenchJob, expand
from harness.bench.plan import load_plan
from harness.evidence.capture import MARKERS_FILE, DeviceFacts, write_capture
from harness.evidence.clock_fit import ClockFit, PingObservation
from harness.inventory import load_inventory
from joulefleet.errors import MeterDisconnected
from joulefleet.runstore import Journal, RunStore
from power.model import Finding, InstrumentInfo, SampleBlock, Severity
from power.recording import Recording, RecordingWriter, open_recording
from power.timebase import Timebase
from tests.harness.profile_captures import PERIOD_NS, RATE_HZ, SUPPLY_V, accuracy, load, one_round, write

PLAN = """
models = ["softmax"]
backends = ["numpy"]
local_epochs = 2
samples = 600

[[loads]]
name = "none"
cpu_share = 0

[[loads]]
name = "game"
cpu_share = 0.5

[repetitions]
count = 2
"""
INVENTORY = """
[devices.board]
host = "bench-host.example"
user = "secret-user"

[devices.board.meter]
kind = "ina219"
port = "/dev/ttyUSB0"
voltage_v = 4.0
voltage_max_v = 4.2
current_limit_a = 3.0

[devices.phone]
host = "phone.example"
product = "Pixel 5"

[devices.phone.meter]
kind = "ina219"
port = "/dev/ttyUSB1"
voltage_v = 4.0
voltage_max_v = 4.2
current_limit_a = 3.0
"""
TRAIN_W = 3.0
EPOCHS_S = [1.0, 0.9]
GAIN_REL = 0.02
HOSTILE = '=HYPERLINK("http://x.example")</script><b>\x1b[31m'


def stored_bench(root: Path) -> Path:
    """Four jobs of the first repetition, of which one failed for good; the second was not asked for.

    The board's instrument says it is real, the phone's that it is emulated. The phone needed two attempts
    for its first job.
    """
    with RunStore(root).create(
        "bench", kind="bench", config={"plan.toml": PLAN, "devices.toml": INVENTORY}
    ) as run:
        config = run.path / "config"
        jobs = expand(load_plan(config / "plan.toml"), load_inventory(config / "devices.toml"))
        journal = BenchJournal(run.journal(JOURNAL))
        for job in jobs:
            if job.repetition == 1:
                _do(run.path, job, journal)
        journal.close()
        run.leave_open("4 of 8 jobs were not asked for")
    return run.path


def _do(run: Path, job: BenchJob, journal: BenchJournal) -> None:
    is_phone, is_loaded = job.cell.device == "phone", job.cell.load.name == "game"
    folder = run / "jobs" / job.name
    if is_phone:
        _fail(run, job, 1, journal)
    if is_phone and is_loaded:
        _fail(run, job, 2, journal)
        journal.write("gave_up", job=job.name, attempt=2, error="the meter is gone")
        return
    journal.write("stage", job=job.name, attempt=1 + is_phone, stage="round")
    write(folder, one_round(EPOCHS_S, train_w=TRAIN_W, load_w=2.0 if is_loaded else None), **_facts(job))
    journal.write("finished", job=job.name, attempt=1 + is_phone)


def _fail(run: Path, job: BenchJob, number: int, journal: BenchJournal) -> None:
    folder = run / "jobs" / job.name
    folder.mkdir(parents=True)
    error = MeterDisconnected(f"the meter is gone {HOSTILE}", hint="check the cable")
    put_aside(run, folder, failed_record(job.name, number, "round", error))
    journal.write("stage", job=job.name, attempt=number, stage="round")
    journal.write("attempt_failed", job=job.name, attempt=number, stage="round", error="the meter is gone")


def _facts(job: BenchJob) -> dict[str, Any]:
    finding = Finding(code="device_problem", severity=Severity.WARNING, message=HOSTILE)
    pings = [
        PingObservation(sent_ns=t * 10**6, t_dev_ns=t * 10**6 + 200_000, received_ns=t * 10**6 + 500_000)
        for t in (100, 200, 5000)
    ]
    return {
        "device": DeviceFacts(name=job.cell.device, transport="ssh"),
        "capture_id": f"test/{job.name}",
        "workload": "softmax",
        "dataset": "synthetic",
        "backend": "numpy",
        "emulated": job.cell.device == "phone",
        "background": load(0.5, "game") if job.cell.load.name == "game" else load(0.0, "none", "none"),
        "attempt": 2 if job.cell.device == "phone" else 1,
        "gain_rel": GAIN_REL,
        "pings": tuple(pings),
        "findings": (finding,),
    }


def recording(folder: Path, watts: list[np.ndarray], lost: int = 0) -> Recording:
    """Blocks with ``lost`` samples missing between them."""
    folder.mkdir(parents=True)
    info = InstrumentInfo(kind="synthetic", emulated=True, rate_hz=RATE_HZ, tick_hz=RATE_HZ,
                          uniform_ticks=True, accuracy=accuracy())  # fmt: skip
    writer = RecordingWriter(folder, info, None, started_ns=0)
    first = 0
    for i, part in enumerate(watts):
        first += lost * (i > 0)
        ticks = first + np.arange(len(part))
        volts = np.full(len(part), SUPPLY_V)
        block = SampleBlock(ticks * PERIOD_NS, ticks, part / SUPPLY_V, volts, first, lost if i else 0)
        writer.append(block)
        first += len(part)
    writer.close(Timebase(ticks=(0, first + 1), host_ns=(0, (first + 1) * PERIOD_NS)), ())
    return open_recording(folder)


def capture_with_a_gap(folder: Path) -> None:
    """2 s of 1 W, 0.4 s without samples, 2 s of 1 W; an epoch across the gap, an upload without end."""
    recording(folder, [np.ones(2 * RATE_HZ)] * 2, lost=400)
    times_s = [(Phase.EPOCH, "start", 0.5), (Phase.EPOCH, "end", 3.5), (Phase.UPLOAD, "start", 4.0)]
    with Journal(folder / MARKERS_FILE) as journal:
        for seq, (kind, edge, at_s) in enumerate(times_s):
            epoch = int(kind is Phase.EPOCH)
            marker = EpochMarker(kind=kind, edge=edge, epoch=epoch, t_dev_ns=round(at_s * 1e9), seq=seq)
            journal.append(marker.model_dump(mode="json"))
    clock = ClockFit(offset_ns=0, reference_ns=0, residual_s=0.0, sync_uncertainty_s=1e-4, method="ping")
    device = DeviceFacts(name="board", transport="ssh")
    write_capture(
        folder, capture_id="gap", device=device, workload="softmax", samples=1, batch_size=1, clock=clock
    )
