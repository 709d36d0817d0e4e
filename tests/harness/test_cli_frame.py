"""The command line as a user meets it: real processes, real exit codes."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli import READY
from harness.cli.progress import progress
from joulefleet.runstore import RunStore


def joulefleet(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "harness", *arguments], capture_output=True, text=True, cwd=cwd
    )


def test_every_reserved_name_is_in_the_help() -> None:
    reserved = {
        *("doctor", "demo", "bench", "meter", "profile", "probing", "traces", "emulate"),
        *("policy", "compare", "report", "experiment", "runs", "export", "figures", "list", "lab"),
    }
    text = joulefleet("--help").stdout
    for name in reserved:
        assert f"\n  {name} " in text, name
    assert set(READY) == reserved


def test_a_misspelt_command_gets_a_suggestion() -> None:
    result = joulefleet("rums")
    assert result.returncode == 2
    assert "Did you mean 'runs'?" in result.stderr


def test_errors_are_a_sentence_and_what_to_try(tmp_path: Path) -> None:
    result = joulefleet("runs", "show", "nope", "--root", str(tmp_path))
    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        f"joulefleet: no run matches 'nope' in {tmp_path}",
        f"  try: `joulefleet runs list --root {tmp_path}` shows them",
    ]


def test_a_traceback_only_with_v(tmp_path: Path) -> None:
    assert "Traceback" in joulefleet("runs", "show", "nope", "--root", str(tmp_path), "-v").stderr


def test_errors_as_json(tmp_path: Path) -> None:
    result = joulefleet("runs", "show", "nope", "--root", str(tmp_path), "--json")
    error = json.loads(result.stdout)["error"]
    assert (error["type"], error["exit_code"], result.returncode) == ("StorageError", 1, 1)


def test_usage_errors_exit_with_2() -> None:
    result = joulefleet("runs", "list", "--nonsense")
    assert result.returncode == 2
    assert "joulefleet runs list --help" in result.stderr


def walk(command: object, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], object]]:
    if hasattr(command, "commands"):
        return [leaf for name, sub in command.commands.items() for leaf in walk(sub, (*path, name))]
    return [(path, command)]


def test_every_command_has_json_and_a_help_text() -> None:
    from harness.cli import cli

    leaves = [leaf for name in READY for leaf in walk(cli.get_command(None, name), (name,))]
    assert len(leaves) > 5
    for path, command in leaves:
        assert any("--json" in option.opts for option in command.params), path
        assert command.help, path


def test_runs_list_show_and_salvage(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    with store.create("alpha", kind="test"):
        pass
    killed = store.create("beta", kind="test")
    killed._lock.close()
    listed = json.loads(joulefleet("runs", "list", "--root", str(tmp_path), "--json").stdout)
    assert [(run["name"], run["state"]) for run in listed] == [("alpha", "complete"), ("beta", "killed")]
    assert "beta" in joulefleet("runs", "list", "--root", str(tmp_path)).stdout
    shown = json.loads(joulefleet("runs", "show", "alpha", "--root", str(tmp_path), "--json").stdout)
    assert shown["status"] == "complete"
    salvaged = json.loads(joulefleet("runs", "salvage", "--all", "--root", str(tmp_path), "--json").stdout)
    assert [Path(report["path"]).name.split("_")[1] for report in salvaged] == ["beta"]
    assert "nothing to salvage" in joulefleet("runs", "salvage", "--root", str(tmp_path)).stdout


def test_list_selectors_and_meters() -> None:
    assert "fedavg" in json.loads(joulefleet("list", "selectors", "--json").stdout)
    assert "monsoon-lvpm" in joulefleet("list", "meters").stdout


def test_version() -> None:
    import joulefleet as package

    assert package.__version__ in joulefleet("--version").stdout


def test_progress_that_cannot_be_printed_does_not_end_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError("its reader has gone")

    monkeypatch.setattr("sys.stderr", Gone())
    done = []
    with progress("work", 1) as advance:
        advance(1)
        done.append("work")
    assert done == ["work"]
