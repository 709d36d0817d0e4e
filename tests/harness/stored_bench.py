"""A bench run on disk, made by the runner's own writers: known power, failed attempts, a journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedjoule.errors import MeterDisconnected
from fedjoule.runstore import RunStore
from harness.bench.failures import failed_record, put_aside
from harness.bench.journal import JOURNAL, BenchJournal
from harness.bench.matrix import BenchJob, expand
from harness.bench.plan import load_plan
from harness.capture import DeviceFacts, PingObservation
from harness.inventory import load_inventory
from power.model import Finding, Severity
from tests.harness.profile_captures import load, one_round, write

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
        "pings": tuple(pings),
        "findings": (finding,),
    }
