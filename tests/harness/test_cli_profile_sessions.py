"""`joulefleet profile` over several days and runs: what is built, stored, shown and exported."""

import csv
import json
import math
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from harness import open_run
from harness.cli import run as joulefleet
from joulefleet.runstore import RunStore
from tests.harness.profile_captures import one_round, write

MONDAY = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)


def evening(root: Path, day: int, seconds: list[float]) -> Path:
    """A run of one day, with an instrument that says it is real."""
    with RunStore(root).create("bench", kind="bench") as made:
        for i, s in enumerate(seconds):
            name = f"000{i + 1}_board_rep{i + 1}"
            write(
                made.subfolder("jobs") / name,
                one_round([s, s]),
                emulated=False,
                began_utc=MONDAY + timedelta(days=day, minutes=5 * i),
                capture_id=f"{made.record.run_id}/{name}",
                repetition=i + 1,
            )
    return made.path


@pytest.fixture
def week(tmp_path: Path) -> list[Path]:
    """Three runs: means of 1.0, 1.2 and 1.3 s."""
    days = ([0.98, 1.02], [1.2, 1.18, 1.22], [1.3])
    return [evening(tmp_path / "runs", day, seconds) for day, seconds in enumerate(days)]


def ask(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> Any:
    capsys.readouterr()
    assert joulefleet([*map(str, arguments), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_profile_of_several_runs_is_measured_and_goes_by_itself(
    week: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    root = week[0].parent
    (built,) = ask(capsys, "profile", "build", *(run.name for run in week), "--root", root)["profiles"]
    epoch = built["epoch"]["duration_s"]
    assert (built["sessions"], epoch["sessions"], epoch["n"], epoch["session_sd_from"]) == (
        3,
        3,
        6,
        "measured",
    )
    means_sd = math.sqrt(0.07 / 3)  # of 1.0, 1.2 and 1.3
    assert epoch["mean"] == pytest.approx(3.5 / 3, rel=1e-6)
    assert epoch["half_width_95"] == pytest.approx(4.30265273 * means_sd / math.sqrt(3), rel=1e-5)
    assert epoch["sd"] == pytest.approx(math.sqrt((2 * 0.02**2 + 2 * 0.02**2) / 3), rel=1e-5)
    assert not any((run / "profiles").exists() for run in week), "no run has a profile of another's captures"
    place = Path(built["place"])
    assert place.parent.parent.name.split("_")[1] == "profiles"
    assert len(built["provenance"]["sources"]) == 6
    assert ask(capsys, "profile", "show", place, "--root", root)["provenance"]["origin"] == "measured"
    shutil.move(week[1], root.parent / "elsewhere")
    shown = ask(capsys, "profile", "show", place, "--root", root)["provenance"]
    assert shown["origin"] == "imported"
    assert "captures not at hand" in shown["basis"]


def test_a_run_and_its_copy_do_not_count_twice(
    week: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = week[0].parent
    (once,) = ask(capsys, "profile", "build", week[1], week[1], "--root", root)["profiles"]
    assert once["epoch"]["duration_s"]["n"] == 3
    shutil.copytree(week[1], tmp_path / "copy")
    refused = ask(capsys, "profile", "build", week[1], tmp_path / "copy", "--root", root, code=6)
    assert "is in" in refused["error"]["message"]


def test_a_stated_spread_has_a_source(week: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    build = ("profile", "build", week[1], "--root", week[0].parent)
    (plain,) = ask(capsys, *build)["profiles"]
    (stated,) = ask(capsys, *build, "--between-sessions", "3%", "--source", "ten evenings")["profiles"]
    assert (week[1] / "profiles").is_dir()
    assert Path(stated["place"]).parent != Path(plain["place"]).parent
    assert stated["stated_spread"] == {"relative_sd": 0.03, "source": "ten evenings"}
    before, after = plain["epoch"]["duration_s"], stated["epoch"]["duration_s"]
    assert after["half_width_95"] == pytest.approx(
        math.hypot(before["half_width_95"], 1.959964 * 0.036), rel=1e-5
    )
    assert (before["session_sd"], after["session_sd"]) == (None, pytest.approx(0.036))
    same = ask(capsys, *build, "--between-sessions", "0.03", "--source", "ten evenings")["profiles"]
    assert same[0]["epoch"] == stated["epoch"]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--between-sessions", "3%"], 2),
        (["--source", "a paper"], 2),
        (["--between-sessions", "much", "--source", "x"], 2),
        (["--between-sessions", "300%", "--source", "x"], 3),
        (["--between-sessions", "0", "--source", "x"], 3),
        (["--between-sessions", "nan", "--source", "x"], 2),
    ],
)
def test_a_spread_that_cannot_be_is_refused(
    week: list[Path], capsys: pytest.CaptureFixture[str], options: list[str], code: int
) -> None:
    before = sorted(week[0].parent.rglob("*"))
    ask(capsys, "profile", "build", week[0], "--root", week[0].parent, *options, code=code)
    assert sorted(week[0].parent.rglob("*")) == before


def test_every_view_says_how_many_sessions_there_are(
    week: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = ("--root", week[0].parent)
    (built,) = ask(capsys, "profile", "build", week[1], *root)["profiles"]
    missing = "the spread between days is not in"
    capsys.readouterr()
    assert joulefleet(["profile", "build", str(week[1]), *map(str, root)]) == 0
    *_, starred, stored = capsys.readouterr().out.splitlines()
    assert starred.startswith("* fewer than three sessions")
    assert stored.startswith("stored in ")
    for command in (["show", built["place"]], ["list", "--no-reference"]):
        capsys.readouterr()
        assert joulefleet(["profile", *command, *map(str, root)]) == 0
        text = capsys.readouterr().out
        assert "1*" in text
        assert missing in text
        assert "\\n" not in text
    assert ask(capsys, "profile", "list", "--no-reference", *root)[0]["sessions"] == 1
    table = tmp_path / "p.csv"
    ask(capsys, "profile", "export", built["place"], "--out", table, *root)
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert {(row["sessions"], row["session_sd_from"], row["n"]) for row in rows} == {("1", "", "3")}
    frame = open_run(week[1]).profiles()
    assert set(frame["sessions"]) == {1}
    assert frame["session_sd_from"].isna().all()
    assert joulefleet(["report", str(week[1])]) == 0
    assert missing in (week[1] / "report.html").read_text()


def test_a_table_of_three_sessions_has_their_spread(
    week: list[Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    root = ("--root", week[0].parent)
    (built,) = ask(capsys, "profile", "build", *week, *root)["profiles"]
    table = tmp_path / "p.csv"
    ask(capsys, "profile", "export", built["place"], "--out", table, *root)
    epoch = next(row for row in csv.DictReader(table.read_text().splitlines()) if row["phase"] == "epoch")
    assert (epoch["n"], epoch["sessions"], epoch["session_sd_from"]) == ("6", "3", "measured")
    assert float(epoch["duration_session_sd_s"]) == built["epoch"]["duration_s"]["session_sd"]
    capsys.readouterr()
    assert joulefleet(["profile", "show", built["place"]]) == 0
    text = capsys.readouterr().out
    assert "sessions differ by 1" in text
    assert "(measured)" in text
    assert "not in" not in text


def test_a_profile_from_between_two_sessions_gives_way_to_that_of_all(
    week: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """A fleet takes the folder: both of them would be one device twice."""
    run = week[1]
    jobs = sorted((run / "jobs").iterdir())
    later = run.parent / "later"
    shutil.move(jobs[-1], later)
    (first,) = ask(capsys, "profile", "build", run, "--root", run.parent)["profiles"]
    shutil.move(later, jobs[-1])
    (second,) = ask(capsys, "profile", "build", run, "--root", run.parent)["profiles"]
    assert (first["epoch"]["duration_s"]["n"], second["epoch"]["duration_s"]["n"]) == (2, 3)
    assert [path.name for path in (run / "profiles").glob("*.json")] == [Path(second["place"]).name]
    assert (run / "profiles" / "earlier" / Path(first["place"]).name).is_file(), "nothing is lost"
    listed = ask(capsys, "profile", "list", "--no-reference", "--root", run.parent)
    assert [row["epoch_duration_s"]["n"] for row in listed] == [3]
