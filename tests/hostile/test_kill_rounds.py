"""kill -9 at random moments of rounds on the bench: a finished round stays as it is, the rest is played."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator.runs.checkpoint import load_checkpoint
from harness.evidence.capture import open_capture, verify_capture
from joulefleet.runstore import RunStore
from tests.campaign import Batches
from tests.conftest import FULL_COUNTS
from tests.harness.conftest import sshd
from tests.harness.local_bench import LocalBench, local_bench

__all__ = ["sshd"]
pytestmark = [pytest.mark.xdist_group("bench"), pytest.mark.campaign]

TIMING = """
[timing]
idle_s = 0.5
settle_s = 0
deadline_s = 60
[retry]
attempts = 12
wait_s = 0.1
"""
SCENARIO = """
name = "tiny"
[task]
name = "digits-mlp"
learning_rate = 0.02
batch_size = 4
[task.options]
samples_per_client = 300
[protocol]
rounds = 2
k = 1
candidates = "all"
local_epochs = 2
[selector]
name = "fedavg"
"""
PROBING = """
task = "softmax"
backend = "numpy"
local_epochs = 2
samples = 60_000
candidates = [2]
chosen = [1]
repetitions = 2
order = "listed"
"""
SYNC = "[sync]\norder = 4\nbit_ns = 20_000_000\n"
COMMANDS = {
    "federate": ["bench", "federate", "tiny.toml", "--settings", "federate.toml"],
    "probing": ["probing", "validate", "probing.toml"],
}
ROUNDS = {"federate": 3, "probing": 4}  # of a federation the registration, too


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, sshd: str) -> Iterator[LocalBench]:
    kinds = dict.fromkeys(("alpha", "beta"), "monsoon-lvpm")
    with local_bench(tmp_path_factory.mktemp("rounds"), sshd, kinds) as running:
        (running.folder / "tiny.toml").write_text(SCENARIO)
        (running.folder / "federate.toml").write_text(f"threads = 1\nsync_pattern = false\n{TIMING}")
        (running.folder / "probing.toml").write_text(PROBING + TIMING + SYNC)
        yield running


def start(bench: LocalBench, name: str, root: Path, resume: Path | None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "harness", *COMMANDS[name], "--inventory", str(bench.inventory)]
    command += ["--root", str(root), "--json"] + (["--resume", str(resume)] if resume else [])
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=bench.folder
    )


def finished(run: Path) -> dict[str, str]:
    """The rounds with a record, each with a hash over it and its captures.

    A federated round is finished with the checkpoint behind it: without, it is played again.
    """
    found = {}
    checkpoint = load_checkpoint(run) if (run / "checkpoint").exists() else None
    for path in sorted((run / "rounds").glob("*.json")):
        record = json.loads(path.read_text())
        if "parts" in record and record["number"] > (checkpoint["round"] if checkpoint else 0):
            continue
        files = [run / "jobs" / job / "capture.json" for job in jobs_of(record)]
        content = [path.read_bytes(), *(one.read_bytes() for one in files if one.exists())]
        found[path.name] = hashlib.sha256(b"".join(content)).hexdigest()
    return found


def jobs_of(record: dict[str, Any]) -> list[str]:
    return list(record.get("jobs") or [part["job"] for part in record["parts"] if part.get("job")])


@pytest.mark.skipif(not FULL_COUNTS, reason="minutes: see test_bench_kill for the short part")
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", COMMANDS)
def test_rounds_are_killed(
    name: str,
    bench: LocalBench,
    tmp_path: Path,
    campaign_count: Callable[[int, int], int],
    record_property: Callable[[str, object], None],
) -> None:
    batches = Batches(f"kill-{name}", campaign_count(1, 15))
    root, resume, before = tmp_path / "runs", None, {}
    for i in batches:
        process = start(bench, name, root, resume)
        time.sleep(random.Random(f"{name} {i}").uniform(1.0, 15.0))
        over = process.poll() is not None
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        runs = RunStore(root).list() if root.exists() else []
        batches.counts["kills"] += not over
        if not runs:
            continue
        now = finished(runs[-1].path)
        assert before.items() <= now.items(), "a finished round is gone or another"
        batches.counts["finished rounds seen after a kill"] += len(now)
        resume, before = runs[-1].path, now
        if runs[-1].state == "complete":
            whole(name, runs[-1].path)
            batches.counts["runs that came to their end"] += 1
            root, resume, before = tmp_path / f"runs-{i}", None, {}
    process = start(bench, name, root, resume)
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, out + err
    last = RunStore(root).list()[-1]
    assert before.items() <= finished(last.path).items()
    assert last.state == "complete"
    whole(name, last.path)
    for fact, value in batches.facts().items():
        record_property(fact, value)


def whole(name: str, run: Path) -> None:
    """All rounds, once; their captures are right; nothing is left over."""
    assert len(finished(run)) == ROUNDS[name]
    for record in (run / "rounds").glob("*.json"):
        for job in jobs_of(json.loads(record.read_text())):
            if (run / "jobs" / job / "capture.json").exists():
                assert verify_capture(open_capture(run / "jobs" / job)) == []
    assert list(run.rglob(".*.tmp")) == []
