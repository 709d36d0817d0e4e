"""Runs in other people's formats, read back as those people would."""

import csv
import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pyarrow.parquet as pq
import pytest

from harness.cli import run as joulefleet
from harness.export.junit import junit
from harness.export.perfetto import export_perfetto
from harness.results.stored_run import StoredRun
from joulefleet.runstore import RunStore
from tests.harness.profile_captures import RATE_HZ
from tests.harness.stored_bench import EPOCHS_S, TRAIN_W, capture_with_a_gap, stored_bench

# Meters are recorded in real time: such tests run one after the other, not against each other.
pytestmark = pytest.mark.xdist_group("bench")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stored_bench(tmp_path_factory.mktemp("runs"))


def call(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> Any:
    capsys.readouterr()
    assert joulefleet([*map(str, arguments), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_csv_has_every_table_and_sample(
    bench: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "csv"
    said = call(capsys, "export", bench, "--format", "csv", "--out", out)
    names = {"jobs", "epochs", "phases", "profiles", "findings", "markers", "power"}
    files = {path.name for path in out.iterdir() if not path.name.startswith("page_")}
    assert files == {"about.json", *(f"{name}.csv" for name in names)}
    epochs = rows_of(out / "epochs.csv")
    assert len(epochs) == 6
    assert float(epochs[0]["energy_j"]) == pytest.approx(TRAIN_W * EPOCHS_S[0], abs=0.003)
    power = rows_of(out / "power.csv")
    seconds = [2.0 + 0.1 + 0.4 + sum(EPOCHS_S) + 0.5 + 0.3 + 0.1 + 2.0] * 3
    seconds[0] += 1.0  # the load by itself
    assert len(power) == round(sum(seconds) * RATE_HZ)
    first = power[0]
    assert float(first["power_w"]) == pytest.approx(float(first["current_a"]) * float(first["voltage_v"]))
    assert all(file["rows"] == file["rows_total"] for file in said["files"])


def test_csv_that_is_capped_says_so_three_times(
    bench: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "csv"
    assert joulefleet(["export", str(bench), "--format", "csv", "--out", str(out), "--max-rows", "30"]) == 0
    text = capsys.readouterr().out
    kept = len(rows_of(out / "power.capped.csv"))  # of a stretch of constant power one sample is enough
    assert 6 < kept <= 30
    assert f"power.capped.csv: {kept} of 22,900 rows: of equal stretches only the samples of lowest" in text
    assert not (out / "power.csv").exists()
    assert len(rows_of(out / "markers.capped.csv")) == 30
    assert len(rows_of(out / "epochs.csv")) == 6
    about = json.loads((out / "about.json").read_text())
    (power,) = [file for file in about["files"] if file["file"] == "power.capped.csv"]
    assert (power["rows"], power["rows_total"]) == (kept, 22_900)
    assert "Parquet has all" in power["note"]
    assert about["origin"] == "emulated"


def test_no_cell_of_a_csv_is_a_formula(bench: Path, tmp_path: Path) -> None:
    out = tmp_path / "csv"
    assert joulefleet(["export", str(bench), "--format", "csv", "--out", str(out)]) == 0
    messages = [row["message"] for row in rows_of(out / "findings.csv")]
    assert any(message.startswith("'=HYPERLINK") for message in messages)
    for path in out.glob("*.csv"):
        for row in rows_of(path):
            for cell in row.values():
                if cell.startswith(("=", "+", "-", "@", "\t", "\r")):
                    float(cell)  # a negative number may be one


def test_parquet_has_every_table_and_sample(
    bench: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "parquet"
    said = call(capsys, "export", bench, "--format", "parquet", "--out", out)
    rows = {file["file"]: file["rows"] for file in said["files"]}
    assert {path.name: pq.ParquetFile(path).metadata.num_rows for path in out.iterdir()} == rows
    power = pq.read_table(out / "power.parquet")
    recordings = {job.job: job.capture.recording for job in StoredRun(bench).captures}
    assert rows["power.parquet"] == sum(r.record.n_samples for r in recordings.values())
    assert set(power["job"].unique().to_pylist()) == set(recordings)
    about = json.loads(power.schema.metadata[b"joulefleet"])
    assert about["origin"] == "emulated"
    epochs = pq.read_table(out / "epochs.parquet")
    assert str(epochs.schema.field("energy_j").type) == "double"
    assert pq.read_schema(out / "markers.parquet").field("t_ns").type == "int64"


def check_trace_event(event: dict[str, Any]) -> None:
    """What the Trace Event Format asks of the kinds of event that we write."""
    assert isinstance(event["pid"], int)
    assert isinstance(event["tid"], int)
    assert isinstance(event["name"], str)
    if event["ph"] == "M":
        assert event["name"] in {"process_name", "process_labels", "process_sort_index", "thread_name"}
        return
    assert event["ts"] >= 0
    if event["ph"] == "X":
        assert event["dur"] > 0
    elif event["ph"] == "C":
        assert all(isinstance(value, float) for value in event["args"].values())
    else:
        assert (event["ph"], event["s"]) == ("i", "t")


def test_perfetto_trace(bench: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "trace.json"
    said = call(capsys, "export", bench, "--format", "perfetto", "--out", out)
    trace = json.loads(out.read_text())
    events = trace["traceEvents"]
    assert said["files"] == [{"file": "trace.json", "rows": len(events), "what": "events"}]
    for event in events:
        check_trace_event(event)
    jobs = {e["args"]["name"]: e["pid"] for e in events if e["name"] == "process_name"}
    assert sorted(jobs) == sorted(job.job for job in StoredRun(bench).captures)
    slices = [e for e in events if e["ph"] == "X"]
    for pid in jobs.values():  # on a thread, one event ends before the next begins: they nest
        for tid in (1, 2):
            mine = sorted((e["ts"], e["dur"]) for e in slices if (e["pid"], e["tid"]) == (pid, tid))
            assert mine
            assert all(a[0] + a[1] <= b[0] + 1e-3 for a, b in pairwise(mine))
    probe = next(e for e in slices if e["name"] == "epoch 1")
    assert probe["dur"] == pytest.approx(EPOCHS_S[0] * 1e6)
    assert probe["args"]["energy_j"] == pytest.approx(TRAIN_W * EPOCHS_S[0], abs=0.003)
    inside = [
        e["args"]["W"]
        for e in events
        if e["ph"] == "C" and e["pid"] == probe["pid"] and 0 < e["ts"] - probe["ts"] < probe["dur"]
    ]
    assert len(inside) == EPOCHS_S[0] * RATE_HZ
    assert set(inside) == {TRAIN_W}


def test_perfetto_trace_is_capped(bench: Path, tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    export_perfetto(StoredRun(bench), out, max_counter_events=300)
    events = json.loads(out.read_text())["traceEvents"]
    power = [e["args"]["W"] for e in events if e["ph"] == "C"]
    assert len(power) <= 300
    assert max(power) == TRAIN_W


def test_perfetto_shows_gaps_and_phases_without_end(tmp_path: Path) -> None:
    with RunStore(tmp_path).create("gap", kind="bench") as run:
        capture_with_a_gap(run.path / "jobs" / "0001_board_x_rep1")
    export_perfetto(StoredRun(run.path), tmp_path / "trace.json")
    events = {e["name"]: e for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]}
    for event in events.values():
        check_trace_event(event)
    assert events["no samples"]["dur"] == pytest.approx(0.401e6)
    assert events["upload begins"]["ph"] == "i"
    assert events["upload begins"]["ts"] == pytest.approx(4.0e6)
    args = events["epoch 1"]["args"]
    assert "energy_j" not in args
    assert "a gap longer than" in args["problems"]


def test_junit_has_a_case_per_job_and_the_evidence(
    bench: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "junit.xml"
    call(capsys, "export", bench, "--format", "junit", "--out", out)
    suite = ET.fromstring(out.read_bytes()).find("testsuite")
    assert suite is not None
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "8", "failures": "1", "errors": "0", "skipped": "4"}
    cases = suite.findall("testcase")
    assert len(cases) == 8
    assert all(float(case.get("time", "")) >= 0 for case in cases)
    (failed,) = [case for case in cases if case.find("failure") is not None]
    assert failed.get("classname") == "phone"
    failure = failed.find("failure")
    assert failure is not None
    assert (failure.get("type"), failure.get("message")) == ("MeterDisconnected", "the meter is gone")
    text = failure.text or ""
    for expected in (
        "attempt 1, round:",
        "attempt 2, round:",
        "try: check the cable",
        f"kept in failed/{failed.get('name')}-attempt2",
        "joulefleet.errors.MeterDisconnected",
    ):
        assert expected in text
    outputs = [case.findtext("system-out") or "" for case in cases if case.find("system-out") is not None]
    assert len(outputs) == 3
    assert all("epoch 2: 0.9 s" in text for text in outputs)
    assert sum("attempt 1, round:" in text for text in outputs) == 1
    assert all(r"\x1b[31m" in text for text in outputs)  # an escape code has no place in XML


def test_a_finished_job_whose_evidence_is_lost_is_a_failure(tmp_path: Path) -> None:
    run = stored_bench(tmp_path)
    torn, changed = sorted((run / "jobs").glob("*_board_*"))
    (torn / "capture.json").write_text("{", encoding="utf-8")
    with (changed / "samples.arrows").open("r+b") as samples:
        samples.seek(-2000, os.SEEK_END)
        samples.write(b"x")
    suite = junit(StoredRun(run))
    assert suite.get("failures") == "3"
    messages = {
        case.get("name"): failure.get("message") or ""
        for case in suite.iter("testcase")
        for failure in case.findall("failure")
    }
    assert "not readable as JSON" in messages[torn.name]
    assert messages[changed.name] == "changed since the capture was made: samples.arrows"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--format", "csv", "--out", "there"], 1, "exists already"),
        (["--format", "parquet", "--out", "there"], 1, "exists already"),
        (["--format", "perfetto", "--out", "there/file"], 1, "exists already"),
        (["--format", "junit", "--out", "there/file"], 1, "exists already"),
        (["--format", "parquet", "--out", "new", "--max-rows", "10"], 2, "--max-rows is for --format csv"),
        (["--format", "xlsx", "--out", "new"], 2, "'xlsx' is not one of"),
    ],
)
def test_what_cannot_be_written_is_refused(
    bench: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("mine")
    monkeypatch.chdir(tmp_path)
    assert message in call(capsys, "export", bench, *arguments, code=code)["error"]["message"]
    assert (tmp_path / "there" / "file").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there"]


def test_a_run_without_captures_has_no_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RunStore(tmp_path).create("nothing", kind="bench") as run:
        pass
    error = call(capsys, "export", run.path, "--format", "perfetto", "--out", tmp_path / "t.json", code=6)[
        "error"
    ]
    assert "no finished capture" in error["message"]


def test_the_command_line_starts_without_pandas() -> None:
    code = "import sys, harness, harness.cli.export, harness.cli.export; print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
