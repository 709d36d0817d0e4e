"""``joulefleet experiment`` as it is typed."""

import json
import shutil
from pathlib import Path

import pytest

from harness.cli import run
from tests.emulator.small_experiment import played, small_plan


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return played(tmp_path_factory.mktemp("experiments"), small_plan())


def test_the_listing_says_how_large_and_how_long(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["experiment", "list"]) == 0
    out = capsys.readouterr().out
    assert "table1" in out
    assert "135 runs on 3 scenarios, 384,300 client-epochs, about " in out
    assert "time not measured" in out  # no GPU was there to measure the paper's scale on
    assert "processor time per training sample" in out


def test_an_experiment_from_one_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["--preset", "smoke", "--seeds", "0", "--variant", "candidates-8", "--root", str(tmp_path)]
    assert run(["experiment", "run", "probing", *chosen, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    path = Path(data["path"])
    assert data["runs"] == 3
    assert "one seed only" in data["warnings"][0]
    for name in ("report.html", "table.md", "table.csv", "curves.csv"):
        assert (path / name).stat().st_size > 500
    assert "too small to conclude anything from" in (path / "table.md").read_text()
    # Complete: nothing to continue, and it says so.
    assert run(["experiment", "run", "probing", *chosen, "--resume"]) == 1
    assert "is complete, nothing to resume" in capsys.readouterr().err


def test_a_dry_run_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(
            ["experiment", "run", "toa-eoa", "--preset", "laptop", "--dry-run", "--root", str(tmp_path / "e")]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert "unlike the paper: 100 samples a device instead of 500, 20 rounds instead of 50" in out
    assert "21 runs on 1 scenario," in out
    assert not (tmp_path / "e").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["tabel1"], 3, "no experiment called 'tabel1'"),
        (["table1", "--preset", "huge"], 2, "'huge' is not one of"),
        (["table1", "--variant", "nowhere"], 3, "has no variant 'nowhere'"),
        (["table1", "--seeds", "x"], 2, "no list of seeds"),
        (["table1", "--resume"], 1, "no unfinished run of table1"),
    ],
)
def test_wrong_words_are_refused_before_anything_runs(
    arguments: list[str], code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["experiment", "run", *arguments, "--root", str(tmp_path / "e")]) == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "e").exists()


def test_tables_can_be_shown_again(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["experiment", "table", str(finished), "--format", "markdown"]) == 0
    assert capsys.readouterr().out == (finished / "table.md").read_text() + "\n"
    assert run(["report", str(finished)]) == 0
    assert "report.html" in capsys.readouterr().out


def test_a_part_of_an_experiment_is_shown_on_request_only(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copytree(finished, tmp_path / "part"))
    for name in ("report.html", "table.md"):
        (copy / name).unlink(missing_ok=True)
    shutil.rmtree(copy / "plain" / "oort_s1")
    assert run(["experiment", "table", str(copy)]) == 6
    assert "plain/oort_s1" in capsys.readouterr().err
    assert not (copy / "table.md").exists()
    assert not (copy / "report.html").exists()
    assert run(["report", str(copy)]) == 6
    assert run(["report", str(copy), "--partial"]) == 0
    assert "this is a part of the experiment" in (copy / "report.html").read_text()
    capsys.readouterr()
    assert run(["experiment", "table", str(copy), "--partial"]) == 0
    assert "this is a part of the experiment" in capsys.readouterr().out
    assert "this is a part of the experiment" in (copy / "report.html").read_text()
    assert run(["experiment", "table", str(copy), "--partial", "--format", "csv"]) == 0
    assert "this is a part of the experiment" in capsys.readouterr().err


def test_a_run_that_cannot_be_reused_leaves_nothing_behind(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    donor = Path(shutil.copytree(finished, tmp_path / "donor"))
    record = json.loads((donor / "run.json").read_text())
    record["host"]["version"] = "0.0.0"
    (donor / "run.json").write_text(json.dumps(record))
    arguments = ["experiment", "run", "probing", "--reuse", str(donor), "--root", str(tmp_path / "e")]
    assert run(arguments) == 3
    assert "was made by other software" in capsys.readouterr().err
    assert not (tmp_path / "e").exists()
