"""Parts of the demo that need no bench: the devices' interpreter, the meter's load, what act 3 counts."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from emulator.experiments.results import ExperimentResults, load_experiment
from emulator.round.outcome import Accounting
from emulator.runs.reading import FinishedRun
from harness.demo.local_bench import FULL, QUICK, local_bench
from harness.demo.outcome import activation
from harness.demo.run import METHODS, replay_plan, replayed_savings
from joulefleet.errors import ConfigError
from power.emulated.options import parse_signal
from tests.emulator.small_experiment import played, small_plan


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> ExperimentResults:
    return load_experiment(played(tmp_path_factory.mktemp("experiments"), small_plan()))


def probing_runs(results: ExperimentResults) -> list[FinishedRun]:
    return list(results.own(results.plan.variants[0])["fedrank"].values())


def test_what_rounds_save_is_what_their_log_says(results: ExperimentResults) -> None:
    """Counted again by hand: two local epochs, so training on is one epoch more."""
    runs = probing_runs(results)
    found = replayed_savings(runs)
    assert found.rounds == 8
    assert found.left_out == 0
    saved = []
    for run in runs:
        clients = run.clients
        went_on = clients[clients["chosen"]]
        later_j = went_on["train_j"].sum() / went_on["probe_j"].sum()
        stopped = clients[~clients["chosen"]]
        vanilla_j = clients[["download_j", "probe_j", "train_j", "upload_j"]].to_numpy().sum()
        vanilla_j += (stopped["probe_j"] * later_j).sum()
        saved.append(1 - run.rounds["energy_j_honest"].sum() / vanilla_j)
    honest = found.savings[Accounting.HONEST]
    assert honest.energy.mean == pytest.approx(np.mean(saved))
    assert honest.energy.values == pytest.approx(saved), "two seeds have no interval"
    # Three of six stop after the first of two epochs: about a quarter.
    assert 0.15 < honest.energy.mean < 0.35
    assert found.vanilla_s.mean > 0


def test_a_looser_accounting_never_saves_less(results: ExperimentResults) -> None:
    found = replayed_savings(probing_runs(results))
    energies = [found.savings[accounting].energy.mean for accounting in Accounting]
    times = [found.savings[accounting].time.mean for accounting in Accounting]
    assert energies == sorted(energies)
    # A download counts before the probe or with the training: between those two times there is no order.
    assert max(times) == times[-1]
    assert found.origin.value == "literature"  # the reference fleet's, not stronger


def test_one_seed_has_no_interval(results: ExperimentResults) -> None:
    found = replayed_savings(probing_runs(results)[:1])
    assert np.isnan(found.savings[Accounting.HONEST].time.low)


def test_a_device_is_one_processor_and_says_who_it_is(tmp_path: Path) -> None:
    config, state = tmp_path / "config", tmp_path / "a 'folder'"
    config.mkdir()
    state.mkdir()
    with local_bench(config, state, QUICK, seed=0) as files:
        assert {job.cell.backend for job in files.jobs} == {"torch", "onnxruntime"}
        assert len(files.jobs) == 4
        python = files.inventory.device("board-a").python
        code = "import os; print(os.getpid(), len(os.sched_getaffinity(0)))"
        out = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout
        pid, processors = out.split()
        assert (state / "board-a" / "pid").read_text().strip() == pid
        assert processors == "1"


def test_the_full_demo_measures_under_load_too(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "state").mkdir()
    with local_bench(tmp_path / "config", tmp_path / "state", FULL, seed=1) as files:
        assert [load.name for load in files.plan.loads] == ["none", "app"]
        assert files.plan.seed == 1
        assert files.plan.samples % 32 == 0  # one batch size, so one exported graph
    plan = replay_plan([Path("a.json"), Path("b.json")], FULL)
    assert plan.variants[0].scenario.fleet.profiles == ("a.json", "b.json")
    assert len(plan.planned) == len(METHODS) * len(FULL.seeds)


def test_how_a_terminal_comes_to_know_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make demo` calls it by its path; what the demo says to run next must work when it is pasted."""
    place = tmp_path / "clone" / ".venv" / "bin"
    place.mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(place.parent))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert activation() == ""  # no virtual environment
    (place / "activate").write_text(f"export PATH={place}:$PATH\n")
    (place / "joulefleet").write_text("#!/bin/sh\necho found\n")
    (place / "joulefleet").chmod(0o755)
    assert activation() == f". {place}/activate"
    monkeypatch.chdir(tmp_path / "clone")
    assert activation() == ". .venv/bin/activate"
    pasted = subprocess.run(["sh", "-c", f"{activation()}; joulefleet"], capture_output=True, text=True)
    assert pasted.stdout == "found\n"
    monkeypatch.setenv("PATH", f"{place}:/usr/bin:/bin")
    assert activation() == ""


def test_a_load_follows_whoever_wrote_its_number(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    load = parse_signal(f"process:pidfile={file},idle=1,dynamic=2,voltage=1")
    assert watts(load) == pytest.approx(1.0)  # nobody there
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            file.write_text(f"{busy.pid}\n")
            assert watts(load) > 1.01
            file.write_text(str(os.getppid()) + "x")  # no number
            watts(load)
            assert watts(load) == pytest.approx(1.0)
        finally:
            busy.kill()


def test_on_a_faster_machine_the_same_time_is_more_work(tmp_path: Path) -> None:
    (tmp_path / "speed").write_text("3.0\n")
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            plain = parse_signal(f"process:pid={busy.pid},idle=0,dynamic=1,voltage=1")
            scaled = parse_signal(
                f"process:pid={busy.pid},idle=0,dynamic=1,voltage=1,speedfile={tmp_path / 'speed'}"
            )
            t_ns = np.zeros(1, np.int64)
            ratios = []
            for _ in range(20):
                time.sleep(0.02)
                t_ns[0] = time.monotonic_ns()
                (plain_a, _), (scaled_a, _) = plain.sample(t_ns), scaled.sample(t_ns)
                ratios.append(float(scaled_a[0] / max(plain_a[0], 1e-3)))
        finally:
            busy.kill()
    assert np.median(ratios[1:]) == pytest.approx(3.0, rel=0.2)  # they look one after the other


def watts(load: object) -> float:
    """Mean power over half a second, at one volt."""
    seen = []
    for _ in range(50):
        time.sleep(0.01)
        current_a, _ = load.sample(np.array([time.monotonic_ns()]))  # type: ignore[attr-defined]
        seen.append(float(current_a[0]))
    return float(np.mean(seen[1:]))


@pytest.mark.parametrize("signal", ["process:idle=1", "process:pid=1,pidfile=/x"])
def test_a_process_load_needs_one_process(signal: str) -> None:
    with pytest.raises(ConfigError, match="needs pid= or pidfile="):
        parse_signal(signal)
