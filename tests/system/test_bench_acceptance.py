"""The bench as a whole: unattended, through a cut device, an unplugged meter and a stop, to true numbers."""

import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness.bench_run.run import BenchFiles, read_bench_files, run_bench
from harness.evidence.capture import Capture, open_capture, verify_capture
from harness.profiles.build import build_profile
from harness.profiles.cells import by_cell
from joulefleet.runstore import RunStore
from tests.conftest import FULL_COUNTS
from tests.harness.local_bench import FAST, LocalBench, Watch, local_bench
from tests.system.bench_truth import Truth, knowing_half_width_j, true_epoch_j

# Meters are recorded in real time: such tests run one after the other, not against each other.
pytestmark = pytest.mark.xdist_group("bench")

# An HVPM keeps few samples back: with other tests on the same cores, its reader comes too late.
REDUCED = {"alpha": "monsoon-lvpm", "beta": "ina219"}
FULL = {"alpha": "monsoon-lvpm", "beta": "monsoon-hvpm", "gamma": "ina219", "delta": "monsoon-lvpm"}
LOADS = [
    'name = "none"\ncpu_share = 0',
    'name = "game"\ncores = 1\ncpu_share = 0.6',
    'name = "video"\ncores = 1\ncpu_share = 0.3',
]


@pytest.mark.campaign
@pytest.mark.timeout(7200)
def test_a_plan_runs_unattended_and_states_the_truth(
    tmp_path: Path,
    sshd: str,
    campaign_count: Callable[[int, int], int],
    record_property: Callable[[str, object], None],
) -> None:
    models = ["mnist-lenet5", "shakespeare-lstm"][: campaign_count(1, 2)]
    backends = ["onnxruntime", "torch"][: campaign_count(1, 2)]  # the demo's test has both in CI
    loads, repetitions = LOADS[: campaign_count(2, 3)], campaign_count(2, 3)
    with local_bench(tmp_path, sshd, FULL if FULL_COUNTS else REDUCED) as bench:
        sections = {
            **FAST,
            "timing": "idle_s = 0.7\nsettle_s = 0\nload_only_s = 0.7\ndecision_wait_s = 0.2\n"
            "deadline_s = 120",
            "repetitions": f"count = {repetitions}",
        }
        files = read_bench_files(
            bench.write_plan(
                sections, loads, models=models, backends=backends,
                samples=campaign_count(160, 320), local_epochs=3, threads=1, parallel=campaign_count(2, 1),
            ),
            bench.inventory,
        )  # fmt: skip
        cells = len(bench.meters) * len(models) * len(backends) * len(loads)
        assert len(files.jobs) == cells * repetitions
        run = run_with_troubles(bench, tmp_path / "runs", files)
        captures = [open_capture(folder) for folder in sorted((run / "jobs").iterdir())]
        assert len(captures) == len(files.jobs)
        assert all(verify_capture(capture) == [] for capture in captures)
        truths = {name: Truth.read(bench.truth(name)) for name in bench.meters}
    inside, ratios = judge(captures, truths)
    record_property("cells", len(inside))
    record_property("truth_inside", sum(inside))
    record_property("median_half_width_over_knowing", float(np.median(ratios)))
    assert len(inside) == cells
    assert sum(inside) >= 0.9 * cells
    assert np.median(ratios) <= 1.5


def run_with_troubles(bench: LocalBench, root: Path, files: BenchFiles) -> Path:
    """One device is cut, one meter unplugged, then the run is stopped; resumed, it comes to its end."""

    def unplug() -> None:
        bench.unplug("beta")
        bench.plug("beta")

    stop = threading.Event()
    watch = Watch(alpha_round=lambda: bench.cut("alpha"), beta_idle_before=unplug)
    watch.on_finished = lambda number: stop.set() if number == 2 else None
    with pytest.raises(KeyboardInterrupt):
        run_bench(files, root, stop=stop, view=watch, cache=bench.folder / "graphs")
    (run,) = RunStore(root).list()
    assert run.state == "interrupted"
    reasons = {p.name for p in (run.path / "failed").iterdir()}
    assert any("_alpha_" in name for name in reasons)
    assert any("_beta_" in name for name in reasons)
    run_bench(files, root, resume=run.path, cache=bench.folder / "graphs")
    (run,) = RunStore(root).list()
    assert run.state == "complete"
    return run.path


def judge(captures: list[Capture], truths: dict[str, Truth]) -> tuple[list[bool], list[float]]:
    """For each cell, whether the truth is inside the interval, and how wide that is for someone who knows."""
    true_j: defaultdict[tuple[str, str, str, str], list[float]] = defaultdict(list)
    for capture in captures:
        record = capture.record
        key = (record.device.name, record.workload, record.backend, record.background.name)
        true_j[key].append(true_epoch_j(capture, truths[record.device.name]))
    inside, ratios = [], []
    for profile in (build_profile(found) for found in by_cell(captures).values()):
        stated_j = {"none": profile.epoch.gross_j}
        stated_j |= {level.name: level.epoch.gross_j for level in profile.load_levels}
        for load, stated in stated_j.items():
            means_j = true_j[profile.device, profile.task, profile.backend, load]
            assert stated.half_width_95 is not None
            inside.append(abs(stated.mean - float(np.mean(means_j))) <= stated.half_width_95)
            ratios.append(stated.half_width_95 / knowing_half_width_j(means_j))
    return inside, ratios
