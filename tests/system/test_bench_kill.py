"""A bench run that is killed again and again loses nothing that was finished, and comes to its end."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.bench.job.failures import AttemptRecord
from harness.evidence.capture import is_whole, open_capture, verify_capture
from harness.outputs import EPOCHS_FILE
from joulefleet.records import read_record
from joulefleet.runstore import RunStore, read_journal
from tests.harness.local_bench import FAST, LocalBench, local_bench

# Meters are recorded in real time: such tests run one after the other, not against each other.
pytestmark = pytest.mark.xdist_group("bench")

LOADS = ['name = "none"\ncpu_share = 0', 'name = "game"\ncpu_share = 0.5']


def start(bench: LocalBench, root: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "harness", "bench", "run", str(bench.folder / "plan.toml"),
               "--inventory", str(bench.inventory), "--root", str(root), "--json", *more]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(run: Path) -> dict[str, str]:
    """The finished jobs, each with one hash over its files, but for the table that follows from them."""
    hashes = {}
    for folder in sorted((run / "jobs").glob("*")):
        if is_whole(folder):
            files = sorted(p for p in folder.iterdir() if p.name not in {".lock", EPOCHS_FILE})
            hashes[folder.name] = hashlib.sha256(b"".join(p.read_bytes() for p in files)).hexdigest()
    return hashes


@pytest.mark.campaign
def test_kills_at_random_moments(
    tmp_path: Path,
    sshd: str,
    campaign_count: Callable[[int, int], int],
    record_property: Callable[[str, object], None],
) -> None:
    kills = campaign_count(3, 20)
    rng = random.Random(5)
    stages, kept, runs = [], 0, 0
    with local_bench(tmp_path, sshd, {"alpha": "monsoon-lvpm"}) as bench:
        repetitions = campaign_count(1, 2)
        bench.write_plan({**FAST, "repetitions": f"count = {repetitions}"}, LOADS)
        resume: list[str] = []
        before: dict[str, str] = {}
        root = tmp_path / "runs"
        while len(stages) < kills:
            process = start(bench, root, *resume)
            time.sleep(rng.uniform(0.5, 8.0))
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
            state = RunStore(root).list()[-1] if RunStore(root).list() else None
            if state is None:
                stages.append("before the run began")
                continue
            if state.state == "complete":
                resume, before, runs = [], {}, runs + 1
                continue
            stages.append(last_stage(state.path))
            now = finished(state.path)
            assert before.items() <= now.items()  # what was finished is there, byte for byte
            kept += len(before)
            resume, before = ["--resume", str(state.path)], now
        process = start(bench, root, *resume)
        out, err = process.communicate(timeout=170)
        assert process.returncode == 0, out + err
        run = Path(json.loads(out)["run"])
    assert before.items() <= finished(run).items()
    assert len(finished(run)) == len(LOADS) * repetitions
    for name in finished(run):
        assert verify_capture(open_capture(run / "jobs" / name)) == []
    once = [r["job"] for r in read_journal(run / "journal.jsonl") if r["event"] == "finished"]
    assert len(once) == len(set(once))  # nothing that was finished is done again
    for attempt in (run / "failed").glob("*/attempt.json"):
        read_record(attempt, AttemptRecord)
    assert list(run.rglob(".*.tmp")) == []
    record_property("kills", len(stages))
    record_property("killed_in", {stage: stages.count(stage) for stage in sorted(set(stages))})
    record_property("finished_jobs_checked_after_a_kill", kept)


def last_stage(run: Path) -> str:
    journal = run / "journal.jsonl"
    records = list(read_journal(journal)) if journal.exists() else []
    return next((str(r["stage"]) for r in reversed(records) if r["event"] == "stage"), "before the first job")
