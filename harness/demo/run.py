"""The three acts in order, each a run of its own that the other commands can read, and one page of all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from emulator import RoundOutcome, Scenario
from emulator.experiments import (
    ExperimentPlan,
    ExperimentResults,
    PlanEntry,
    Preset,
    Variant,
    VariantPlan,
    make_plan,
)
from emulator.experiments import runner as experiment
from emulator.experiments.vanilla import AgainstVanilla, against_vanilla
from emulator.runs import FinishedRun, play
from emulator.scenario import FleetSection, ProtocolSection, TaskSection, TracesSection
from harness.bench_run.job_threads import Runner
from harness.bench_run.run import BenchFiles, View, run_bench
from harness.demo.local_bench import FULL, DemoSize, local_bench
from harness.demo.outcome import DemoResult
from harness.demo.page import demo_page
from harness.outputs import OUTPUTS, write_experiment
from harness.probing.predict import Prediction, predict_savings
from harness.profiles.library import Stored, build_run_profiles
from harness.results.stored_run import StoredRun
from harness.rounds.session import Session
from joulefleet.errors import DataQualityError, JoulefleetError, MissingExtra, StorageFull
from joulefleet.install_hint import install_hint
from joulefleet.runstore import Run, RunStore

METHODS = ("fedavg", "oort", "fedrank")
FLEET_DEVICES = 30
CHOSEN = 5
CANDIDATES = 15
LOCAL_EPOCHS = 5
SAMPLES = 40
"""Of each device. The training part of the digits has 1,258 samples, enough for 30 devices."""

SPEED_SPREAD = 0.4
"""Standard deviation of log speed among the invented devices: one in six takes 2/3 of its time or less."""


def replay_plan(profiles: Sequence[Path], size: DemoSize) -> ExperimentPlan:
    """LeNet-5, the model that act 1 measured, on the embedded digits; costs from exactly these profiles."""
    scenario = Scenario(
        name="demo-replay",
        fleet=FleetSection(
            devices=FLEET_DEVICES,
            profiles=tuple(str(path) for path in profiles),
            speed_spread=SPEED_SPREAD,
            traces=TracesSection(at_end="wrap", users=FLEET_DEVICES, days=3),
        ),
        task=TaskSection(
            name="mnist-lenet5",
            data="digits28",
            partition="dir_client",
            options={"alpha": 0.5, "samples_per_client": SAMPLES},
            # Small shards need more steps than the task's batches of 32 give them.
            batch_size=16,
            learning_rate=0.02,
        ),
        protocol=ProtocolSection(
            rounds=size.rounds, k=CHOSEN, candidates=CANDIDATES, local_epochs=LOCAL_EPOCHS
        ),
        checkpoint_every=0,
    )
    variant = Variant(
        name=scenario.name,
        title="LeNet-5 on the embedded digits; Dirichlet 0.5 per device (dir_client)",
        scenario=scenario,
        reductions=(_reduction(size),),
    )
    question = "FedRank against FedAvg and Oort on a fleet made of the profiles of act 1"
    return make_plan("demo-replay", Preset.SMOKE, question, [VariantPlan(variant, METHODS, size.seeds)])


def _reduction(size: DemoSize) -> str:
    return (
        f"1,797 digits enlarged to 28 x 28, {FLEET_DEVICES} devices of {SAMPLES} samples, {CHOSEN} of "
        f"{CANDIDATES} candidates, {size.rounds} rounds: shows how it works, too small to conclude anything "
        "from"
    )


PROBING_METHOD = "fedrank"
ACTS = ("bench", "replay", "probing")
BUSY = "if this machine was busy with other things, run the demo again when it is not"


class Advance(Protocol):
    """Tells how far an act is."""

    def __call__(self, done: float, note: str = "") -> None:
        """Set the amount done so far, with a short note."""


Show = Callable[[str, float | None], AbstractContextManager[Advance]]
Stopping = Callable[[], AbstractContextManager[threading.Event]]


def _silent(_what: str, _total: float | None) -> AbstractContextManager[Advance]:
    return nullcontext(lambda *_: None)


def run_demo(
    root: Path,
    seed: int = 0,
    *,
    size: DemoSize = FULL,
    show: Show = _silent,
    stopping: Stopping = lambda: nullcontext(threading.Event()),
) -> DemoResult:
    """Run the demo: three runs side by side under ``root``.

    Args:
        root: Folder of runs.
        seed: Of the bench.
        size: How much to do.
        show: Opens a display of progress.
        stopping: Opens an event that ends the bench cleanly when it is set, e.g. by a signal.

    Raises:
        JoulefleetError: An act failed; what was measured before is in the runs.
        KeyboardInterrupt: It was stopped.
    """
    lacking = [name for name in ("torch", "onnxruntime", "sklearn") if find_spec(name) is None]
    if lacking:
        raise MissingExtra(f"the demo trains, which needs {', '.join(lacking)}", hint=install_hint("train"))
    clock = _Clock()
    with RunStore(root).create("demo", kind="demo") as run:
        bench, profiles = _bench(run, root, size, seed, show, stopping)
        clock.lap(ACTS[0])
        replay, results = _replay(root, profiles, size, show)
        clock.lap(ACTS[1])
        result = DemoResult(
            run=run.path,
            bench=bench,
            replay=replay,
            profiles=profiles,
            results=results,
            predicted=_predicted(profiles, seed),
            replayed=replayed_savings(list(results.of(results.plan.variants[0])[PROBING_METHOD].values())),
            took_s=clock.laps_s,
        )
        clock.lap(ACTS[2])
        demo_page(result, StoredRun(bench), run.record).write(result.report)
    return result


class _Clock:
    def __init__(self) -> None:
        self.laps_s: dict[str, float] = {}
        self._last_s = time.monotonic()

    def lap(self, name: str) -> None:
        """An act is over."""
        now_s = time.monotonic()
        self.laps_s[name] = now_s - self._last_s
        self._last_s = now_s


def _bench(
    run: Run, root: Path, size: DemoSize, seed: int, show: Show, stopping: Stopping
) -> tuple[Path, tuple[Stored, ...]]:
    """Act 1: plug in, measure, build the profiles."""
    with (
        local_bench(run.subfolder("config"), run.subfolder("devices"), size, seed) as files,
        stopping() as stop,
        show("act 1, bench", len(files.jobs)) as advance,
    ):
        path = _measure(files, root, stop, _view(advance))
    built = build_run_profiles(path)
    if built.problems:
        raise DataQualityError(f"{path}: {'; '.join(built.problems)}", hint=BUSY)
    return path, built.profiles


def _measure(files: BenchFiles, root: Path, stop: threading.Event, view: View) -> Path:
    try:
        return run_bench(files, root, stop=stop, view=view, outputs=OUTPUTS).path
    except StorageFull as error:
        # Its own hint is to resume; but the emulated meters are gone when the demo is.
        error.hint = "free some space, then run the demo again, or give another --root"
        raise
    except JoulefleetError as error:
        error.hint = BUSY
        raise


def _view(advance: Advance) -> View:
    def view(session: Session, runner: Runner) -> AbstractContextManager[None]:
        def listener(event: str, job: str, facts: dict[str, object]) -> None:
            what = str(facts["stage"]) if event == "stage" else event
            advance(len(runner.outcomes.finished), f"{job} {what}".replace("_", " "))

        session.listener = listener
        return nullcontext()

    return view


def _replay(
    root: Path, profiles: tuple[Stored, ...], size: DemoSize, show: Show
) -> tuple[Path, ExperimentResults]:
    """Act 2: the profiles' files in a scenario, played with every method and seed."""
    plan = replay_plan([stored.path.resolve() for stored in profiles if stored.path], size)
    with (
        experiment.start(root, plan) as run,
        show("act 2, replay", size.rounds * len(plan.planned)) as advance,
    ):

        def on_round(planned: PlanEntry, outcome: RoundOutcome) -> None:
            before = plan.planned.index(planned) * size.rounds
            where = f"{planned.method} seed {planned.seed} round {outcome.round}"
            advance(before + outcome.round, f"{where}, accuracy {outcome.accuracy:.0%}")

        play(run, plan, on_round)
    return run.path, write_experiment(run.path)


def _predicted(profiles: tuple[Stored, ...], seed: int) -> Prediction:
    """Act 3, by the formula; each profile stands for as many devices as are drawn from it."""
    found = [one.profile for one in profiles]
    return predict_savings(found, candidates=(CANDIDATES,), chosen=(CHOSEN,), distinct=False, seed=seed)


def replayed_savings(runs: Sequence[FinishedRun]) -> AgainstVanilla:
    """Act 3, from the logs of a probing method, one run per seed.

    Raises:
        DataQualityError: There is no round to count.
    """
    found = against_vanilla(runs)
    if found is None:
        raise DataQualityError(
            "no emulated round in which every device finished or was told to stop",
            hint="a scenario without leaving devices has such rounds",
        )
    return found
