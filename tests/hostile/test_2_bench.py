"""Class 2 on the bench: lying agents behind a real SSH server, measured by an emulated instrument."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.bench.job import verify
from harness.bench.job.failures import AttemptRecord
from harness.bench_run.run import BenchResult, read_bench_files, run_bench
from harness.evidence.capture import open_capture
from joulefleet.errors import JoulefleetError
from joulefleet.records import read_record
from joulefleet.runstore import read_journal
from power import load_profile
from power.energy import DEFAULT_POLICY, EnergyIndex, Window
from power.recording import open_recording
from tests.conftest import REPOSITORY
from tests.harness.conftest import sshd
from tests.harness.local_bench import FAST, LocalBench, local_bench
from tests.hostile import liar

__all__ = ["sshd"]

# Meters are recorded in real time: such tests run one after the other, not against each other.
pytestmark = pytest.mark.xdist_group("bench")

ONCE = {**FAST, "repetitions": "count = 1", "retry": "attempts = 1\nwait_s = 0"}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, sshd: str) -> Iterator[LocalBench]:
    with local_bench(tmp_path_factory.mktemp("liars"), sshd, {"liar": "monsoon-lvpm"}) as running:
        yield running


@pytest.fixture
def run(bench: LocalBench, tmp_path: Path) -> Callable[..., BenchResult]:
    """Run a plan on the device with an agent that tells this lie."""

    def running(lie: str, **top: object) -> BenchResult:
        wrapper = tmp_path / "python"
        wrapper.write_text(
            f"#!/bin/sh\nexport PYTHONPATH='{REPOSITORY}' LIAR_TRUTH='{tmp_path}/truth.json'\n"
            f"exec '{sys.executable}' -m tests.hostile.liar '{lie}'\n"
        )
        wrapper.chmod(0o755)
        bench.write_inventory()
        honest = f'python = "{sys.executable}"'
        bench.inventory.write_text(bench.inventory.read_text().replace(honest, f'python = "{wrapper}"'))
        plan = bench.write_plan(ONCE, **{"local_epochs": 3, **top})
        return run_bench(read_bench_files(plan, bench.inventory), tmp_path / "runs", cache=tmp_path)

    return running


@pytest.mark.parametrize("lie", ["into idle", "another clock", "cut and upload"])
def test_a_lie_fails_the_job_and_the_evidence_is_kept(
    run: Callable[..., BenchResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    monkeypatch.setattr(verify, "MOST_LEFT_S", 0.05)  # these epochs are shorter than a disk may be slow
    with pytest.raises(JoulefleetError, match="the device contradicts"):
        run(lie, samples=100_000)
    (attempt,) = (tmp_path / "runs").glob("*/failed/*-attempt1")
    record = read_record(attempt / "attempt.json", AttemptRecord)
    assert (record.stage, record.error_type) == ("verify", "DataQualityError")
    assert "the device contradicts" in record.message
    assert open_recording(attempt).record.n_samples > 1000
    assert len(list(read_journal(attempt / "markers.jsonl"))) >= 14
    kinds = [row["kind"] for row in read_journal(attempt / "host_times.jsonl")]
    assert [kinds.count(kind) for kind in ("ping", "idle", "round")] == [40, 2, 1]
    assert not list((tmp_path / "runs").glob("*/profiles/*"))


def test_a_lie_inside_a_phase_is_said_and_the_interval_has_the_truth(
    run: Callable[..., BenchResult], tmp_path: Path
) -> None:
    done = run("a third less", samples=400_000)
    (folder,) = done.outcomes.finished.values()
    record = open_capture(folder).record
    (said,) = [finding for finding in record.findings if finding.code == "time_unaccounted"]
    assert "beside epoch 2 to 3" in said.message
    markers = json.loads((tmp_path / "truth.json").read_text())
    edges = [liar.edges(markers, "epoch", epoch) for epoch in (2, 3)]
    truth_s = sum(end["t_dev_ns"] - start["t_dev_ns"] for start, end in edges) * 1e-9 / 2
    to_host_ns = record.clock.to_host_ns
    true = [Window(to_host_ns(start["t_dev_ns"]), to_host_ns(end["t_dev_ns"])) for start, end in edges]
    energies = EnergyIndex(open_recording(folder), DEFAULT_POLICY).integrate(true)
    true_j = sum(energy.energy_j or 0.0 for energy in energies) / 2
    (profile,) = [load_profile(path) for path in (done.path / "profiles").glob("*.json")]
    epoch_s = profile.epoch.duration_s
    assert epoch_s.n == 2
    assert epoch_s.mean == pytest.approx(truth_s * 2 / 3, rel=0.02)
    assert epoch_s.half_width_95 is not None
    assert epoch_s.mean + epoch_s.half_width_95 > truth_s
    assert profile.epoch.gross_j.half_width_95 is not None
    assert true_j > 0
    assert profile.epoch.gross_j.mean + profile.epoch.gross_j.half_width_95 > true_j


def test_a_first_epoch_that_is_called_setup_is_said_and_its_time_found(
    run: Callable[..., BenchResult], tmp_path: Path
) -> None:
    done = run("called setup", samples=400_000)
    (folder,) = done.outcomes.finished.values()
    capture = open_capture(folder)
    assert "first_epoch_short" in [finding.code for finding in capture.record.findings]
    start, end = liar.edges(json.loads((tmp_path / "truth.json").read_text()), "epoch", 1)
    truth_s = (end["t_dev_ns"] - start["t_dev_ns"]) * 1e-9
    probe, later = capture.unaccounted()
    assert probe.trained_s == pytest.approx(truth_s / 5, rel=0.01)
    like_the_others_s = (later.trained_s + later.seconds) / 2
    assert probe.trained_s + probe.disguised_s > 0.8 * min(truth_s, like_the_others_s)
