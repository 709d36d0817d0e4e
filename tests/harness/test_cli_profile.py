import csv
import json
from pathlib import Path
from typing import Any

import pytest

from harness.cli import run
from harness.profiles.exchange import export_profiles
from joulefleet.runstore import RunStore
from power.reference import reference_fleet
from tests.harness.profile_captures import load, one_round, write


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """A run with two repetitions, with and without load, on an instrument that says it is real."""
    with RunStore(tmp_path / "runs").create("bench", kind="bench") as made:
        jobs = made.subfolder("jobs")
        for i in range(2):
            write(jobs / f"none-{i}", one_round([1.0, 0.9 + 0.01 * i]), emulated=False)
            beside = one_round([1.6, 1.5], train_w=5.0, load_w=2.5)
            write(jobs / f"load-{i}", beside, emulated=False, background=load(0.5))
        write(made.subfolder("failed") / "none-0-attempt1", one_round([9.0, 9.0]), emulated=False)
    return made.path


def call(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> Any:
    capsys.readouterr()
    assert run([*map(str, arguments), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def show(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    capsys.readouterr()
    assert run([*map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_build_show_list(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = ("--root", bench.parent)
    (built,) = call(capsys, "profile", "build", bench.name, *root)["profiles"]
    assert built["provenance"]["origin"] == "measured"
    assert len(built["provenance"]["sources"]) == 4, "failed attempts are not in it"
    assert built["load_curve"][1]["slowdown"] == pytest.approx(1.5 / 0.905)
    again = call(capsys, "profile", "build", bench.name, *root)
    assert again == {"profiles": [built], "problems": []}, "building again changes nothing"
    assert len(list((bench / "profiles").iterdir())) == 1
    text = show(capsys, "profile", "show", "board/lenet5", *root)
    for expected in ("[measured]", "probe epoch", "marginal J", "alone W", "captures: 4, by hash"):
        assert expected in text
    listed = call(capsys, "profile", "list", *root)
    assert listed[0]["origin"] == "measured"
    assert {row["origin"] for row in listed[1:]} == {"literature"}


CALIBRATION = """
date = 2026-10-01
certificate = "C-17"
k = 2
[current.only]
gain = 1.10
gain_uncertainty = 0.004
[voltage]
gain = 1.0
gain_uncertainty = 0.000001
"""


def test_profiles_are_built_again_with_another_calibration(
    bench: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A gain of 1.1 on every energy, its 0.2 % in every interval, on the same evidence."""
    root = ("--root", bench.parent)
    (plain,) = call(capsys, "profile", "build", bench.name, *root)["profiles"]
    file = tmp_path / "c.toml"
    file.write_text(CALIBRATION)
    (built,) = call(capsys, "profile", "build", bench.name, *root, "--calibration", file)["profiles"]
    assert built["provenance"]["sources"] == plain["provenance"]["sources"]
    assert plain["provenance"]["calibration_sha256"] is None
    assert len(built["provenance"]["calibration_sha256"]) == 64
    before, after = plain["epoch"]["gross_j"], built["epoch"]["gross_j"]
    assert after["mean"] == pytest.approx(1.1 * before["mean"], rel=1e-6)
    grown = after["half_width_95"] ** 2 - (1.1 * before["half_width_95"]) ** 2
    assert grown == pytest.approx((1.96 * 0.002 / 1.1 * after["mean"]) ** 2, rel=0.01)
    assert any("certificate C-17" in note for note in built["notes"])
    assert any("instrument: test" in note for note in plain["notes"]), "what the interval rests on"
    assert len(list((bench / "profiles").iterdir())) == 2, "nothing is overwritten"
    said = call(capsys, "profile", "build", bench.name, *root, "--calibration", file, "--device", "x", code=3)
    assert "no capture of a device 'x'" in said["error"]["message"]
    file.write_text(CALIBRATION.replace("only", "fine"))
    said = call(capsys, "profile", "build", bench.name, *root, "--calibration", file, code=3)
    assert "range 'fine', which it has not" in said["error"]["message"]


def test_a_cell_without_usable_epochs_leaves_the_others_be(
    bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hot = one_round([1.0, 1.0])
    write(bench / "jobs" / "hot", hot, backend="onnxruntime", throttled_epochs=(1, 2))
    built = call(capsys, "profile", "build", bench.name, "--root", bench.parent, code=6)
    assert [profile["backend"] for profile in built["profiles"]] == ["torch"]
    (problem,) = built["problems"]
    assert "board, mnist-lenet5 with onnxruntime: no usable" in problem
    assert "2 epochs were throttled" in problem


def test_a_changed_capture_is_refused_and_its_profile_no_longer_measured(
    bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = ("--root", bench.parent)
    call(capsys, "profile", "build", bench.name, *root)
    markers = bench / "jobs" / "none-0" / "markers.jsonl"
    markers.write_text(markers.read_text().replace('"epoch":2', '"epoch":3'))
    shown = call(capsys, "profile", "show", "board", *root)
    assert shown["provenance"]["origin"] == "imported"
    assert "captures not at hand: none-0" in shown["provenance"]["basis"]
    error = call(capsys, "profile", "build", bench.name, *root, code=6)["error"]
    assert "markers.jsonl changed" in error["message"]


def test_export_and_import(bench: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = ("--root", bench.parent)
    call(capsys, "profile", "build", bench.name, *root)
    out = tmp_path / "mine.json"
    call(capsys, "profile", "export", "board", "--out", out, *root)
    other = ("--root", tmp_path / "elsewhere")
    (imported,) = call(capsys, "profile", "import", out, *other)
    assert imported["provenance"]["origin"] == "imported"
    assert "imported from mine.json" in imported["provenance"]["basis"]
    assert call(capsys, "profile", "show", "board", *other)["epoch"] == imported["epoch"]
    error = call(capsys, "profile", "export", "board", "--out", out, *root, code=1)["error"]
    assert "not overwritten" in error["message"]


def test_an_emulated_profile_stays_emulated_wherever_it_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RunStore(tmp_path / "runs").create("bench", kind="bench") as made:
        write(made.subfolder("jobs") / "a", one_round([1.0, 1.0]), emulated=True)
    root = ("--root", tmp_path / "runs")
    (built,) = call(capsys, "profile", "build", made.path.name, *root)["profiles"]
    assert built["provenance"]["origin"] == "emulated"
    call(capsys, "profile", "export", "board", "--out", tmp_path / "x.json", *root)
    text = (tmp_path / "x.json").read_text().replace('"mean": 3.0', '"mean": 1.0')
    (tmp_path / "x.json").write_text(text)
    (imported,) = call(capsys, "profile", "import", tmp_path / "x.json", *root)
    assert imported["provenance"]["origin"] == "emulated"


def test_a_bad_file_is_named_and_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.json"
    good = reference_fleet("mnist-lenet5")[0].model_dump(mode="json")
    bad.write_text(json.dumps({**good, "bateries": 3}))
    root = tmp_path / "runs"
    error = call(capsys, "profile", "import", bad, "--root", root, code=3)["error"]
    assert "bad.json" in error["message"]
    assert "bateries: unknown key" in error["message"]
    assert "did you mean 'battery'?" in error["hint"]
    assert not root.exists() or not list(root.iterdir())


def test_the_reference_fleet_can_be_written_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "fleet.csv"
    call(capsys, "profile", "export", "--reference", "mnist-lenet5", "--out", table)
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert {row["origin"] for row in rows} == {"literature"}
    assert len({row["device"] for row in rows}) >= 30
    paths = call(capsys, "profile", "export", "--reference", "mnist-lenet5", "--out", tmp_path / "fleet")
    assert len(paths) == len(rows) / 5, "five phases each"
    assert call(capsys, "profile", "show", paths[0])["provenance"]["origin"] == "literature"


def test_scaling_is_stored_and_says_so(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = ("--root", bench.parent)
    call(capsys, "profile", "build", bench.name, *root)
    scaled = call(capsys, "profile", "scale", "board/lenet5", "--task", "cifar10-resnet18", *root)
    assert scaled["provenance"]["origin"] == "scaled"
    text = show(capsys, "profile", "show", "board/resnet18", *root)
    assert "[scaled]" in text
    assert "×÷" in text
    assert "error of time a factor" in text
    scores = ("--device", "phone", "--score", 50, "--own-score", 100)
    other = call(capsys, "profile", "scale", "board/lenet5", *scores, *root)
    assert other["device"] == "phone"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["profile", "show", "nothing-like-it"], 3, "no profile 'nothing-like-it'"),
        (["profile", "show", "lenet5"], 3, "fits 34 profiles"),
        (["profile", "scale", "Pixel 5/lenet5"], 2, "nothing to predict"),
        (["profile", "scale", "Pixel 5/lenet5", "--device", "x"], 2, "needs --score"),
        (["profile", "scale", "Pixel 5/lenet5", "--samples", "5", "--score", "1"], 2, "belong to --device"),
        (["profile", "list", "--task", "mnist"], 3, "no task 'mnist'"),
        (["profile", "export", "--out", "x.json"], 6, "no profiles in the runs"),
        (["profile", "build", "no-such-run"], None, "no-such-run"),
    ],
)
def test_what_cannot_be_done_says_why(
    arguments: list[str], code: int | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run([*arguments, "--root", str(tmp_path), "--json"])
    assert result == code if code is not None else result != 0
    assert message in json.loads(capsys.readouterr().out)["error"]["message"]


def test_a_device_called_like_a_formula_is_text_in_the_table(tmp_path: Path) -> None:
    profile = reference_fleet("mnist-lenet5")[0].model_copy(update={"device": "=HYPERLINK(1)"})
    export_profiles([profile], tmp_path / "fleet.csv")
    rows = list(csv.DictReader((tmp_path / "fleet.csv").read_text().splitlines()))
    assert {row["device"] for row in rows} == {"'=HYPERLINK(1)"}
