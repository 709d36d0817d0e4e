"""A disk that fills up under every command that writes: it says so, nothing is half, nothing is lost."""

import os
import random
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.bench.job import failures
from harness.demo import run as demo
from joulefleet.errors import StorageFull
from joulefleet.files import new_file
from tests.campaign import Batches
from tests.conftest import FULL_COUNTS, missing
from tests.hostile.test_kill import Kept, call, kept, leftovers, untouched
from tests.hostile.writing_commands import COMMANDS

__all__ = ["kept"]  # a fixture

PAGE = 4096
A_FEW = ("traces flatten", "export parquet", "emulate")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "none", str(place)]
    if subprocess.run(mount, capture_output=True).returncode:
        missing("a small file system cannot be mounted here (needs root)")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path, leave: int) -> Path:
    """Take all room but this many bytes."""
    ballast = disk / "ballast"
    free = os.statvfs(disk).f_bavail * PAGE
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(PAGE, free - leave))
    return ballast


def test_a_library_that_hides_the_full_disk(small_disk: Callable[[], Path]) -> None:
    """As matplotlib's PDF does: what it does in its `finally` fails too, with words of its own."""
    place = small_disk()
    with pytest.raises(StorageFull, match="no space left"), new_file(place / "figure.pdf") as file:
        try:
            file.write(bytes(2 << 20))
        finally:
            vars(file)["pos"]
    assert list(place.iterdir()) == []
    with pytest.raises(KeyError), new_file(place / "figure.pdf") as file:
        vars(file)["pos"]


def full(*_: object, **__: object) -> None:
    raise StorageFull("samples.arrows: no space left", hint="resume it")


def test_the_demo_on_a_full_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It cannot be resumed, and waiting for a quieter machine does not help either."""
    monkeypatch.setattr(demo, "run_bench", full)
    with pytest.raises(StorageFull) as told:
        demo._measure(None, tmp_path, threading.Event(), None)  # type: ignore[arg-type]
    assert "free some space" in told.value.hint
    assert "resume" not in told.value.hint


def test_a_recording_that_no_disk_has_room_for_is_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "opening.json").touch()
    monkeypatch.setattr(failures, "salvage_recording", full)
    assert "no space left" in failures._salvage_problem(tmp_path)
    (line,) = caplog.records
    assert "no space left" in line.getMessage()
    assert not line.exc_info


@pytest.mark.campaign
@pytest.mark.parametrize("name", COMMANDS if FULL_COUNTS else A_FEW)
def test_a_disk_that_fills_up(
    name: str,
    kept: Kept,
    tmp_path: Path,
    disk: Path,
    campaign_count: Callable[[int, int], int],
    record_property: Callable[[str, object], None],
) -> None:
    mortal, inputs = kept
    command = COMMANDS[name]
    place = disk / "whole"
    command.prepare(place, inputs, mortal.run)
    used = os.statvfs(disk).f_bavail
    assert call(mortal, command.arguments.split(), place).code == 0
    needs = (used - os.statvfs(disk).f_bavail) * PAGE
    whole, stays = command.results(place), leftovers(place)
    batches = Batches(f"disk-{name.replace(' ', '-')}", campaign_count(1, 6))
    for i in batches:
        rng = random.Random(f"{name} {i}")
        place = disk / str(i)
        command.prepare(place, inputs, mortal.run)
        ballast = fill(disk, leave=rng.randrange(0, max(PAGE, needs), PAGE))
        full = call(mortal, command.arguments.split(), place)
        assert "Traceback" not in full.err
        assert "unexpected" not in full.err, full.err
        found = command.results(place)
        assert found.items() <= whole.items(), "half a result looks whole"
        if full.code:
            assert "no space left" in full.err, full.err
            batches.counts["refused"] += 1
        else:
            assert found == whole, "it says that all went well"
            batches.counts["had room enough"] += 1
        untouched(place, inputs, command)
        ballast.unlink()
        again = call(mortal, command.again(place), place)
        assert found == whole or again.code == 0, again.err
        assert command.results(place) == whole
        assert leftovers(place) == stays
        subprocess.run(["rm", "-rf", str(place)], check=True)
    for fact, value in batches.facts().items():
        record_property(fact, value)
