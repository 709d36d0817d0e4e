"""Class 8, the other end: a poor terminal, no home, few files, a kill. No result is lost over it."""

import fcntl
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.results.stored_run import StoredRun
from joulefleet.files import cache_folder, new_folder, scratch_folder, write_atomic
from joulefleet.runstore import RunStore
from tests.harness.stored_bench import stored_bench


def joulefleet(*arguments: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "harness", *arguments], capture_output=True, timeout=120, **options
    )  # type: ignore[call-overload,no-any-return]


@pytest.fixture
def odd_run(tmp_path: Path) -> Path:
    """A run whose error an ASCII terminal cannot show."""
    with RunStore(tmp_path / "runs").create("x", kind="bench") as run:
        run.leave_open("45 °C, größer als 40 °C — ✗")
    return run.path


@pytest.mark.parametrize(
    "environment",
    [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}],
)
def test_an_ascii_terminal_shows_escapes(odd_run: Path, environment: dict[str, str]) -> None:
    done = joulefleet("runs", "show", str(odd_run), env={**os.environ, **environment})
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"45 \xb0C" in done.stdout


def test_a_reader_that_goes_away_costs_nothing(odd_run: Path) -> None:
    command = [sys.executable, "-m", "harness", "runs", "show", str(odd_run)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) in (0, 1)
    assert b"Traceback" not in said
    assert b"Exception ignored" not in said


@pytest.mark.parametrize("closed", [">&- 2>&- <&-", ">&-", "2>&- >/dev/null"])
def test_closed_streams_cost_nothing_and_an_answer_that_nobody_gets_is_a_failure(
    closed: str, tmp_path: Path
) -> None:
    """As of `ls >&-`."""
    run = stored_bench(tmp_path / "runs")
    script = f"exec {sys.executable} -m harness report {run} {closed}"
    done = subprocess.run(["sh", "-c", script], timeout=120, stderr=subprocess.PIPE)
    assert done.returncode == ("&-" in closed.partition("2")[0])
    assert (b"cannot print the answer: bad file descriptor" in done.stderr) == (closed == ">&-")
    assert (run / "report.html").stat().st_size > 10_000


def test_a_file_does_not_become_the_output_that_was_closed() -> None:
    """The lowest free number is that of the next file; what a library of C prints would go into it."""
    code = (
        "import os, sys\nfrom harness.cli.terminal import survive_any_terminal\nsurvive_any_terminal()\n"
        "handle = os.open('/dev/zero', os.O_RDONLY)\nsys.exit(handle < 3)"
    )
    script = f'exec {sys.executable} -c "{code}" >&- 2>&- <&-'
    assert subprocess.run(["sh", "-c", script], timeout=60).returncode == 0


@pytest.mark.parametrize("words", [["runs", "show"], ["runs", "show", "--json"], ["--help"]])
def test_output_that_has_no_room_is_named(odd_run: Path, words: list[str]) -> None:
    of_it = [] if "--help" in words else [str(odd_run)]
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "harness", *words, *of_it]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=120)
    assert done.returncode == 1
    assert b"cannot print the answer: no space left" in done.stderr
    assert b"unexpected" not in done.stderr


@pytest.mark.parametrize("home", [None, "/proc/nowhere"])
def test_without_a_home_a_report_is_made(tmp_path: Path, home: str | None) -> None:
    run = stored_bench(tmp_path / "runs")
    env = {k: v for k, v in os.environ.items() if k not in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")}
    env |= {} if home is None else {"HOME": home}
    done = joulefleet("report", str(run), env=env)
    assert done.returncode == 0, done.stderr


def test_a_cache_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/proc/nowhere")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = cache_folder()
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o077 == 0
    folder.rmdir()
    folder.symlink_to(tmp_path)  # somebody else was there first
    with pytest.raises(Exception, match="not a folder of this user"):
        cache_folder()


def few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


def test_a_page_of_many_captures_holds_no_file_open(tmp_path: Path) -> None:
    stored = StoredRun(stored_bench(tmp_path))
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert all(sum(len(block) for block in job.capture.recording.blocks()) for job in stored.captures)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.campaign
def test_few_open_files_are_enough(tmp_path: Path) -> None:
    """In the campaign for more captures than there may be open files."""
    run = stored_bench(tmp_path / "runs")
    one = next(path for path in (run / "jobs").iterdir() if (path / "capture.json").exists())
    for i in range(80 if os.environ.get("JOULEFLEET_CAMPAIGN") == "full" else 1):
        shutil.copytree(one, run / "jobs" / f"0{100 + i}_{one.name[5:]}")
    done = joulefleet("report", str(run), preexec_fn=few_files)
    assert done.returncode == 0, done.stderr


# Folders that killed processes left


def left_by_a_killed(place: Path, code: str) -> None:
    """Run a writer in a process of its own and kill it in the middle."""
    process = subprocess.Popen([sys.executable, "-c", code, str(place)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"writing\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()


FOLDER = """
import sys, time, pathlib
from joulefleet.files import new_folder
with new_folder(pathlib.Path(sys.argv[1]) / "out") as folder:
    (folder / "big").write_bytes(bytes(1000))
    print("writing", flush=True)
    time.sleep(60)
"""
FILE = """
import os, sys, time, pathlib
from joulefleet import files
def stop(*_, **__):
    print("writing", flush=True)
    time.sleep(60)
files.publish = stop
files.write_atomic(pathlib.Path(sys.argv[1]) / "profile.json", b"x")
"""


def test_the_next_start_clears_what_a_killed_one_left(tmp_path: Path) -> None:
    left_by_a_killed(tmp_path, FOLDER)
    assert [path.name[:5] for path in tmp_path.iterdir()] == [".out."]
    with new_folder(tmp_path / "another"):
        assert len(list(tmp_path.iterdir())) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["another"]


def test_files_that_a_killed_one_left_are_cleared_too(tmp_path: Path) -> None:
    left_by_a_killed(tmp_path, FILE)
    assert len(list(tmp_path.iterdir())) == 1
    write_atomic(tmp_path / "profile.json", b"y")
    assert [path.name for path in tmp_path.iterdir()] == ["profile.json"]


def test_nothing_of_a_living_process_or_of_others_is_cleared(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", FOLDER, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    (tmp_path / ".mine.tmp").mkdir()
    (tmp_path / ".mine.12345678.tmp").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".x.joulefleet.tmp").symlink_to(tmp_path / "elsewhere")
    before = sorted(path.name for path in tmp_path.iterdir())
    with new_folder(tmp_path / "another"):
        pass
    after = sorted(path.name for path in tmp_path.iterdir())
    process.kill()
    process.wait()
    process.stdout.close()
    assert after == sorted([*before, "another"])


def test_whoever_clears_leftovers_takes_none_that_is_just_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)

    def make_many() -> None:
        for i in range(40):
            with scratch_folder() as folder:
                write_atomic(folder / "file", b"whole")
                write_atomic(tmp_path / "shared", str(i).encode(), replace=True)

    with ThreadPoolExecutor(6) as pool:
        for made in [pool.submit(make_many) for _ in range(6)]:
            made.result()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shared"]


def test_scratch_folders_go_and_are_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with scratch_folder() as first:
        assert first.stat().st_mode & 0o077 == 0
        with scratch_folder() as second:
            assert first.exists()
            assert second != first
    assert list(tmp_path.iterdir()) == []


def test_a_leftover_that_is_locked_stays(tmp_path: Path) -> None:
    busy = tmp_path / ".out.0a0b0c0d.joulefleet.tmp"
    busy.mkdir()
    handle = os.open(busy, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with new_folder(tmp_path / "out"):
        pass
    assert busy.exists()
    os.close(handle)
    time.sleep(0)
    with new_folder(tmp_path / "out2"):
        pass
    assert not busy.exists()
