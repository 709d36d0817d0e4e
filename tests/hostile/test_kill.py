"""kill -9 at random moments: what was finished stays, half a result is none, going on gives the same."""

import itertools
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emulator.compare.load import find_emulations
from emulator.experiments import Preset, plan_experiment, runner
from harness.cli import run as joulefleet
from harness.lab.emulations import Emulations
from harness.profiles.library import run_profiles
from harness.results.emulations import emulation_tables
from joulefleet.runstore import RunStore
from tests.campaign import Batches
from tests.conftest import FULL_COUNTS
from tests.hostile.mortal import OPERATIONS, WRITING, Ended, Mortal
from tests.hostile.writing_commands import BENCH, COMMANDS, RECORDING, Results, Writing, emulations, keep

ROOTS = ("runs", "built", "emulated", "federated", "played")
Kept = tuple[Mortal, Path]
HALF = ("not at its end", "no emulation here", "none of these emulations is finished")
A_FEW = ("traces synth", "profile build", "export csv", "emulate")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    base = tmp_path_factory.mktemp("mortal")
    (base / "notes").mkdir()
    with Mortal(base / "notes") as mortal:
        (base / "kept").mkdir()
        yield mortal, base / "kept"


def arguments(words: list[str], place: Path) -> list[str]:
    roots = [place / name for name in ROOTS if (place / name).is_dir()]
    if not {BENCH, RECORDING} & set(words):
        return words
    (run,) = roots[0].iterdir()
    recordings = sorted(one.parent for one in run.rglob("recording.json"))
    known = {BENCH: str(run), RECORDING: str(recordings[0]) if recordings else ""}
    return [known.get(word, word) for word in words]


def call(mortal: Mortal, words: list[str], place: Path, **more: float) -> Ended:
    return mortal.run(arguments(words, place), place, **more)  # type: ignore[arg-type]


def untouched(place: Path, kept: Path, command: Writing) -> None:
    """What was there before, byte for byte."""
    for name in set(command.needs) - {"cut", "torn"}:  # those are to be mended
        for one in (kept / name).rglob("*"):
            if one.is_file() and one.name not in (".lock", "run.json"):
                assert (place / one.relative_to(kept)).read_bytes() == one.read_bytes(), one


def leftovers(place: Path) -> list[str]:
    """What is no result, nor evidence of a failed try. A second name of a file takes no room."""
    found = [one for one in place.rglob("*") if one.name != ".lock" and "failed" not in one.parts]
    hidden = [one for one in found if one.name.startswith(".") or one.name.endswith((".tmp", ".arrows"))]
    return sorted(one.name for one in hidden if one.is_dir() or one.stat().st_nlink == 1)


@pytest.mark.campaign
@pytest.mark.parametrize("name", COMMANDS if FULL_COUNTS else A_FEW)
def test_killed_at_random_moments(
    name: str,
    kept: Kept,
    tmp_path: Path,
    campaign_count: Callable[[int, int], int],
    record_property: Callable[[str, object], None],
) -> None:
    mortal, inputs = kept
    command = COMMANDS[name]
    command.prepare(tmp_path / "whole", inputs, mortal.run)
    uninterrupted = call(mortal, command.arguments.split(), tmp_path / "whole")
    assert uninterrupted.code == 0, uninterrupted.err
    whole = command.results(tmp_path / "whole")
    assert whole
    stays = leftovers(tmp_path / "whole")
    batches = Batches(f"kill-{name.replace(' ', '-')}", campaign_count(2, 10))
    for i in batches:
        rng = random.Random(f"{name} {i}")
        place = tmp_path / str(i)
        command.prepare(place, inputs, mortal.run)
        at_operation = i % 2 == 0 and uninterrupted.operations > 0  # a command that only reads has none
        before = rng.randint(1, uninterrupted.operations) if at_operation else 0
        after_s = 0.0 if at_operation else rng.uniform(0.0, uninterrupted.seconds)
        where = f"killed before operation {before} of {uninterrupted.operations}, or after {after_s:.3f} s"
        killed = call(mortal, command.arguments.split(), place, before=before, after_s=after_s)
        assert killed.code in (0, -9), killed.err
        found = command.results(place)
        assert found.items() <= whole.items(), f"half a result looks whole, {where}"
        untouched(place, inputs, command)
        half_is_named(mortal, command, place, found != whole)
        goes_on(mortal, command, place, found, whole, where)
        assert leftovers(place) == stays, where
        untouched(place, inputs, command)
        batches.counts["kills"] += killed.code == -9
        batches.counts["over before it was killed"] += killed.code == 0
        batches.counts["killed when something was finished"] += bool(found) and killed.code == -9
    for fact, value in batches.facts().items():
        record_property(fact, value)


def half_is_named(mortal: Mortal, command: Writing, place: Path, half: bool) -> None:
    """Nobody compares a part of a run without being told."""
    runs = RunStore(place / "runs").list() if command.results is emulations and half else []
    for run in runs:
        compared = mortal.run(["compare", str(run.path)], place)
        assert compared.code in (0, 6), compared.err
        told = " ".join((compared.out + compared.err).split())
        assert any(words in told for words in HALF), told


def goes_on(
    mortal: Mortal, command: Writing, place: Path, found: Results, whole: Results, where: str
) -> None:
    """The same command, or its resume, comes to the result of one that nobody killed."""
    again = call(mortal, command.again(place), place)
    if found != whole:
        assert again.code == 0, f"{where}: {again.err}"
    assert "Traceback" not in again.err
    assert command.results(place) == whole, where


class Snapshots:
    """Copies of a folder from before every operation on files: what a kill there would leave."""

    def __init__(self, watched: Path, copies: Path) -> None:
        self._watched, self._copies = watched, copies
        self._on = True
        self._files = itertools.count()
        sys.addaudithook(self._copy)

    def _copy(self, event: str, arguments: tuple[object, ...]) -> None:
        writes = event == "open" and isinstance(arguments[2], int) and bool(arguments[2] & WRITING)
        if self._on and (writes or event in OPERATIONS) and self._watched.exists():
            self._on = False  # a copy is made of operations too
            shutil.copytree(self._watched, self._copies / str(next(self._files)))
            self._on = True

    def end(self) -> list[Path]:
        self._on = False
        return sorted(self._copies.iterdir())


IMPORT = "profile import p.json --root made"
IN_ONE_GO = (IMPORT, "profile scale p.json --device tablet --score 2 --own-score 1 --root made")


@pytest.mark.parametrize("words", IN_ONE_GO, ids=lambda words: words.split()[1])
def test_a_run_made_in_one_go_is_there_whole_or_not_at_all(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at any moment; and the same command clears what that left."""
    place = tmp_path / "place"
    place.mkdir()
    assert joulefleet(["profile", "export", "11e58243", "--out", str(place / "p.json")]) == 0
    monkeypatch.chdir(place)
    snapshots = Snapshots(place, tmp_path / "killed")
    assert joulefleet(words.split()) == 0
    killed = snapshots.end()
    assert len(killed) > 5
    for root in killed:
        found = RunStore(root / "made").list()
        assert [run.state for run in found] in ([], ["complete"])
        assert [len(run_profiles(run.path)) for run in found] in ([], [1])
        monkeypatch.chdir(root)
        assert joulefleet(words.split()) == 0
        assert leftovers(root) == []
        assert [run.state for run in RunStore(root / "made").list()] == ["complete"] * (len(found) + 1)


def test_the_half_of_a_copy_is_no_result(kept: Kept, tmp_path: Path) -> None:
    """What a killed `export --share` or `--reuse` leaves has whole emulations in it, and a hidden name."""
    mortal, inputs = kept
    keep("emulated", inputs, mortal.run)
    (source,) = (inputs / "emulated").iterdir()
    run = tmp_path / source.name
    shutil.copytree(source, run)
    whole = Emulations().run(run)
    shutil.copytree(source, tmp_path / ".shared.0a1b2c3d.joulefleet.tmp")
    copied = next(run.rglob("emulation.json")).parent
    shutil.copytree(copied, copied.with_name(f".{copied.name}.0a1b2c3d.joulefleet.tmp"))
    assert find_emulations([tmp_path]) == find_emulations([run])
    assert len(find_emulations([tmp_path])) == whole["count"] == 4
    assert Emulations().run(run) == whole
    rows = [[table.rows for table in emulation_tables(one)] for one in (run, source)]
    assert rows[0] == rows[1]


def test_a_run_that_can_be_seen_can_be_resumed(tmp_path: Path) -> None:
    """Killed at any moment of its making: either nobody sees it, or it has all that its resume needs."""
    plan = plan_experiment("probing", Preset.SMOKE, seeds=(0,), only=("candidates-8",))
    snapshots = Snapshots(tmp_path / "runs", tmp_path / "killed")
    with runner.start(tmp_path / "runs", plan) as run:
        run.leave_open("killed")
    seen = [root for root in snapshots.end() if RunStore(root).list()]
    assert seen
    for root in seen:
        with runner.resume(root, plan) as again:
            assert runner.read_plan(again.path) == plan
            again.leave_open("killed once more")
