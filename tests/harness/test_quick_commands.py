"""Commands that only look must not load what computes: people type them again and again."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.results.overview import overview
from joulefleet.runstore import RunStore
from tests.conftest import REPOSITORY
from tests.harness.stored_bench import stored_bench

HEAVY = ("torch", "scipy", "pandas", "paramiko", "ray", "onnx", "emulator.round.engine", "emulator.runs")
SCRIPT = """
import json, sys
from harness.cli import run
code = run(sys.argv[1:])
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stored run whose journal lists its jobs, as runs do since they are written so."""
    path = stored_bench(tmp_path_factory.mktemp("runs"))
    names = [job.name for job in overview(path).jobs]
    journal = path / "journal.jsonl"
    first = json.dumps({"event": "session", "utc": "2026-01-01T00:00:00+00:00", "planned": names})
    journal.write_text(f"{first}\n{journal.read_text()}")
    return path


def loaded(*command: str) -> set[str]:
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT, *command], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )
    return set(json.loads(found.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    "command",
    [
        ("runs", "list"), ("profile", "list"), ("list", "meters"), ("list", "selectors"), ("list", "tasks"),
        ("list", "scenarios"), ("list", "data"), ("list", "partitions"), ("list", "commands"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_list_loads_nothing_that_computes(command: tuple[str, ...], tmp_path: Path) -> None:
    at = ("--root", str(tmp_path)) if command[0] != "list" else ()
    assert not loaded(*command, *at).intersection(HEAVY)


def test_the_state_of_a_run_needs_no_arrays(bench: Path) -> None:
    assert not loaded("bench", "status", str(bench)).intersection((*HEAVY, "numpy", "pyarrow", "rich"))


def test_a_journal_that_lists_no_jobs_is_read_with_the_plan(bench: Path, tmp_path: Path) -> None:
    old = stored_bench(tmp_path)
    assert [job.name for job in overview(old).jobs] == [job.name for job in overview(bench).jobs]
    assert overview(old).counts() == overview(bench).counts()


def test_the_jobs_of_a_journal_are_believed_but_for_one_without_a_capture(tmp_path: Path) -> None:
    utc = "2026-01-01T00:00:00+00:00"
    with RunStore(tmp_path).create("quick", kind="bench") as run, run.journal("journal") as journal:
        journal.append({"event": "session", "utc": utc, "planned": ["0001_a", "0002_a", "0003_a"]})
        for job in ("0001_a", "0003_a"):
            journal.append({"event": "finished", "utc": utc, "job": job})
        (run.subfolder("jobs/0001_a") / "capture.json").touch()
    assert overview(run.path).counts() == {"finished": 1, "pending": 1, "lost": 1}
