"""Plans with sessions run for real: when the next may begin, who waits, and what a capture says."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from harness.bench.journal import JobHistory
from harness.bench.matrix import BenchJob, expand
from harness.bench.plan import Plan
from harness.bench_run.run import Pace, read_bench_files, run_bench
from harness.bench_run.sessions import sessions_to_do, waits_for
from harness.cli import run as joulefleet
from harness.evidence.capture import open_capture
from harness.inventory import load_inventory
from harness.results.overview import overview
from joulefleet.config import parse_toml
from joulefleet.runstore import RunStore, read_journal
from tests.conftest import REPOSITORY
from tests.harness.local_bench import FAST, LocalBench, Watch, local_bench

# Meters are recorded in real time: such tests run one after the other, not against each other.
pytestmark = pytest.mark.xdist_group("bench")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, sshd: str) -> Iterator[LocalBench]:
    folder = tmp_path_factory.mktemp("sessions")
    with local_bench(folder, sshd, {"alpha": "ina219"}) as running:
        yield running


@pytest.fixture
def ask(capfd: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run the command line in this process and give what ``--json`` says."""

    def run(*arguments: str, code: int = 0) -> Any:
        capfd.readouterr()
        returned = joulefleet([*arguments, "--json"])
        out, err = capfd.readouterr()
        assert returned == code, out + err
        return json.loads(out)

    return run


def plan_with(bench: LocalBench, repetitions: str) -> Path:
    return bench.write_plan({**FAST, "repetitions": repetitions})


def session_events(run: Path) -> list[dict[str, Any]]:
    return [r for r in read_journal(run / "journal.jsonl") if r["event"] in ("session", "waiting")]


def sessions_of(run: Path) -> list[tuple[str, int]]:
    captures = [open_capture(folder) for folder in sorted((run / "jobs").iterdir())]
    return [(c.folder.name[-7:], c.record.session.number) for c in captures if c.record.session is not None]


def test_a_run_ends_after_a_session_and_says_when_the_next_may_begin(
    bench: LocalBench, ask: Callable[..., Any]
) -> None:
    plan = plan_with(bench, 'count = 1\nsessions = 2\napart = "3 h"')
    command = ["bench", "run", str(plan), "--inventory", str(bench.inventory)]
    root = bench.folder / "stops"
    said = ask(*command, "--root", str(root), "--now")  # of which a new run has no need
    run = Path(said["run"])
    assert (said["left"], said["next_session"]["session"]) == (1, 2)
    wait_s = (datetime.fromisoformat(said["next_session"]["from_utc"]) - datetime.now(UTC)).total_seconds()
    assert 3 * 3600 - 60 < wait_s < 3 * 3600
    assert RunStore(root).list()[0].state == "interrupted"
    assert overview(run).waits_for.startswith("session 2 of 2 from 20")
    assert not (run / "profiles").exists()

    journal = (run / "journal.jsonl").read_text()
    refused = ask(*command, "--resume", str(run), code=3)
    assert "too early for session 2 of 2 from" in refused["error"]["message"]
    assert "--now" in refused["error"]["hint"]
    assert (run / "journal.jsonl").read_text() == journal, "a refused session leaves no trace"

    stop = threading.Event()
    pace = Pace(wait=True, announce=lambda *_: threading.Timer(0.3, stop.set).start())
    began_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_bench(read_bench_files(plan, bench.inventory), root, resume=run, pace=pace, stop=stop)
    assert time.monotonic() - began_s < 10, "who waits can be stopped"
    assert (run / "journal.jsonl").read_text() == journal

    done = ask(*command, "--resume", str(run), "--now")
    assert (done["left"], done["next_session"], len(done["profiles"])) == (0, None, 1)
    assert sessions_of(run) == [("s1_rep1", 1), ("s2_rep1", 2)]
    first, waited, second = session_events(run)
    assert (first["session"], waited["event"], second["session"]) == (1, "waiting", 2)
    assert first["closer_than_asked_s"] is None
    assert 3 * 3600 - 120 < second["closer_than_asked_s"] < 3 * 3600
    notes = ask("profile", "show", done["profiles"][0])["notes"]
    assert any("two sessions of a run were 0 min apart, 3.0 h were asked for" in note for note in notes)
    assert any(note.startswith("rests on 1 session:") for note in notes)


def test_a_run_can_wait_for_its_sessions(bench: LocalBench) -> None:
    plan = plan_with(bench, 'count = 1\nsessions = 2\napart = "2 s"')
    files = read_bench_files(plan, bench.inventory)
    announced: list[tuple[int, bool]] = []
    pace = Pace(wait=True, announce=lambda coming, run: announced.append((coming.number, run.is_dir())))
    done = run_bench(files, bench.folder / "waits", pace=pace)
    assert (len(done.outcomes.finished), done.left, done.coming) == (2, 0, None)
    assert announced == [(2, True)]
    captures = [open_capture(folder) for folder in done.outcomes.finished.values()]
    first, second = (capture.recording.record.started_utc for capture in captures)
    assert (second - first).total_seconds() > 2
    ((stored,),) = (done.built.profiles,)
    epoch = stored.profile.epoch.duration_s
    assert (stored.profile.sessions, epoch.n, epoch.sessions, epoch.session_sd_from) == (2, 2, 2, None)


def test_a_session_that_was_stopped_goes_on_and_does_not_put_off_the_next(bench: LocalBench) -> None:
    """Stopped half-way on one day, taken up on the next: first what is missing, then the second session."""
    plan = plan_with(bench, 'count = 2\nsessions = 2\napart = "12 h"')
    files = read_bench_files(plan, bench.inventory)
    root = bench.folder / "goes-on"
    stop = threading.Event()
    watch = Watch()
    watch.on_finished = lambda _: stop.set()
    with pytest.raises(KeyboardInterrupt):
        run_bench(files, root, stop=stop, view=watch)
    (run,) = RunStore(root).list()
    assert sessions_of(run.path) == [("s1_rep1", 1)]
    journal = run.path / "journal.jsonl"
    earlier = [
        {**r, "utc": (datetime.fromisoformat(r["utc"]) - timedelta(days=1)).isoformat()}
        for r in read_journal(journal)
    ]
    journal.write_text("".join(f"{json.dumps(record)}\n" for record in earlier))
    done = run_bench(files, root, resume=run.path)
    assert (done.left, done.coming) == (0, None)
    assert sessions_of(run.path) == [("s1_rep1", 1), ("s1_rep2", 1), ("s2_rep1", 2), ("s2_rep2", 2)]
    assert [e.get("session") for e in session_events(run.path)] == [1, 1, 2]


# What the journal says, without a bench.

TEXT = (
    'models = ["softmax"]\nbackends = ["numpy"]\ndevices = ["pi"]\n[repetitions]\ncount = 2\nsessions = 3\n'
)
Planned = tuple[Plan, tuple[BenchJob, ...]]


@pytest.fixture
def planned() -> Planned:
    plan = parse_toml(TEXT, Plan, name="plan.toml")
    return plan, expand(plan, load_inventory(REPOSITORY / "examples" / "devices.toml"))


def histories(
    jobs: tuple[BenchJob, ...], hours_ago: dict[int, float], **states: str
) -> dict[str, JobHistory]:
    """Jobs by number, each over so many hours ago: finished, unless ``states`` says otherwise."""
    now = datetime.now(UTC)
    return {
        jobs[n - 1].name: JobHistory(
            state=states.get(f"job{n}", "finished"),
            attempt=1,
            since_utc=(now - timedelta(hours=hours)).isoformat(),
        )
        for n, hours in hours_ago.items()
    }


@pytest.mark.parametrize(
    ("number", "hours_ago", "waits_h"),
    [
        (1, {}, None),  # the first waits for nothing
        (2, {1: 5, 2: 4}, 8),  # twelve hours after the last job
        (2, {1: 14, 2: 13}, None),
        (2, {1: 5, 2: 4, 3: 1}, None),  # it was interrupted: it goes on
        (3, {1: 30, 2: 29, 3: 3, 4: 2}, 10),
        (3, {}, None),  # only the third was asked for
    ],
)
def test_a_session_waits_for_the_one_before(
    planned: Planned,
    number: int,
    hours_ago: dict[int, float],
    waits_h: float | None,
) -> None:
    plan, jobs = planned
    coming = waits_for(number, jobs, histories(jobs, hours_ago), plan.repetitions)
    assert (None if coming is None else round(coming.early_s / 3600, 2)) == waits_h
    if coming is not None:
        assert (coming.number, coming.planned) == (number, 3)


def test_a_session_is_over_when_nothing_in_it_is_needed(planned: Planned) -> None:
    _, jobs = planned
    seen = histories(jobs, {1: 20, 2: 20, 3: 1, 4: 1}, job2="not_needed", job4="failed")
    found = sessions_to_do(jobs, seen, {jobs[0].name, jobs[2].name})
    assert {number: len(left) for number, left in found.items()} == {2: 2, 3: 2}
