"""A probing run on disk with known seconds and watts: two devices, one of them twice as slow."""

from __future__ import annotations

from pathlib import Path

from device_agents.protocol import Phase
from harness.bench.journal import JOURNAL
from harness.evidence.capture import DeviceFacts
from harness.inventory import load_inventory
from harness.probing.plan import load_probing_plan
from harness.probing.schedule import PlannedRound, expand_rounds
from harness.rounds.record import PROBING, ProbingRoundRecord, probing_file
from joulefleet.records import write_record
from joulefleet.runstore import RunStore
from power.model import Finding, Severity
from tests.harness.profile_captures import one_round, write
from tests.harness.stored_bench import HOSTILE

EPOCH_S = {"fast": 1.0, "slow": 2.0}
PLAN = """
task = "softmax"
backend = "numpy"
candidates = [2]
chosen = [1]
local_epochs = 3
repetitions = 2
keep = "fastest"
"""
FINDING = Finding(code="hostile", severity=Severity.WARNING, message=HOSTILE)
INVENTORY = """
[devices.fast]
host = "fast.example"
user = "secret-user"
[devices.fast.meter]
kind = "ina219"
port = "/dev/ttyUSB0"
voltage_v = 4.0
voltage_max_v = 4.2
current_limit_a = 3.0
[devices.slow]
host = "slow.example"
[devices.slow.meter]
kind = "ina219"
port = "/dev/ttyUSB1"
voltage_v = 4.0
voltage_max_v = 4.2
current_limit_a = 3.0
"""


def stored_probing(root: Path, *, rounds: int | None = None) -> Path:
    """All rounds of the plan, or so many of them."""
    run = RunStore(root).create(
        "probing", kind=PROBING, config={"probing.toml": PLAN, "devices.toml": INVENTORY}
    )
    with run:
        config = run.path / "config"
        plan, inventory = load_probing_plan(config / "probing.toml"), load_inventory(config / "devices.toml")
        run.journal(JOURNAL).close()
        (run.path / "rounds").mkdir()
        for planned in expand_rounds(plan, inventory)[:rounds]:
            _write_round(run.path, planned)
    return run.path


def _write_round(run: Path, planned: PlannedRound) -> None:
    chosen = planned.candidates if planned.chosen is None else ("fast",)
    hashes = []
    for job, device in zip(planned.jobs, planned.candidates, strict=True):
        epochs = 3 if device in chosen else 1
        stretches = one_round([EPOCH_S[device]] * epochs)
        if device not in chosen:
            stretches = [s for s in stretches if s.phase is not Phase.UPLOAD]
        capture = write(
            run / "jobs" / job.name, stretches, capture_id=job.name, repetition=planned.repetition,
            workload="softmax", dataset="synthetic", backend="numpy", local_epochs=3,
            device=DeviceFacts(name=device, transport="ssh"), findings=(FINDING,),
        )  # fmt: skip
        hashes.append(capture.record.sha256())
    record = ProbingRoundRecord(
        number=planned.number,
        repetition=planned.repetition,
        candidates=planned.candidates,
        k=planned.chosen,
        chosen=chosen,
        reports_s={device: EPOCH_S[device] for device in planned.candidates},
        jobs=tuple(job.name for job in planned.jobs),
        captures_sha256=tuple(hashes),
    )
    write_record(probing_file(run, planned.name), record)
