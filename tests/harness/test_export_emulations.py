"""Emulations as tables for spreadsheets and notebooks."""

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from harness.cli import run as joulefleet
from harness.results.stored_run import StoredRun
from joulefleet.runstore import RunStore, read_table

TABLES = ("rounds", "clients", "devices")


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("emulations")
    arguments = ["emulate", "quick", "--selector", "fedavg,fedrank", "--seeds", "0-1", "--root", str(root)]
    assert joulefleet(arguments) == 0
    return next(path for path in root.iterdir() if path.is_dir())


def test_parquet_has_every_round_and_participant_of_all_methods(emulated: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert joulefleet(["export", str(emulated), "--format", "parquet", "--out", str(out)]) == 0
    tables = {file.name for file in out.iterdir() if not file.name.startswith("page_")}
    assert tables == {f"{name}.parquet" for name in TABLES}
    for name in TABLES:
        joined = pq.read_table(out / f"{name}.parquet")
        frame = joined.to_pandas()
        assert json.loads(joined.schema.metadata[b"joulefleet"])["origin"] == "emulated"
        for method in ("fedavg", "fedrank"):
            for seed in (0, 1):
                own = read_table(emulated / f"{method}_s{seed}", name).to_pandas()
                found = frame[(frame.selector == method) & (frame.seed == seed)].reset_index(drop=True)
                assert set(found.emulation) == {f"{method}_s{seed}"}
                assert found[own.columns].equals(own)
    rounds = pq.read_table(out / "rounds.parquet").to_pandas()
    told = rounds.groupby("selector")["selector_td_loss"].count()
    assert told["fedavg"] == 0, "it has no such loss"
    assert told["fedrank"] > 0


def test_csv_is_capped_and_says_so(
    emulated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = ["export", str(emulated), "--format", "csv", "--out", str(out), "--max-rows", "7", "--json"]
    assert joulefleet(command) == 0
    written = {file["file"]: file for file in json.loads(capsys.readouterr().out)["files"]}
    tables = {name for name in written if not name.startswith("page_")}
    assert tables == {f"{name}.capped.csv" for name in TABLES}
    with (out / "rounds.capped.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 7
    whole = read_table(emulated / "fedavg_s0", "rounds").to_pylist()
    assert float(rows[1]["energy_j_honest"]) == whole[1]["energy_j_honest"]
    total = sum(len(read_table(folder, "rounds")) for folder in emulated.glob("*_s*"))
    assert written["rounds.capped.csv"]["rows_total"] == total


def test_what_cannot_be_written_is_refused(
    emulated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "junit.xml"
    assert joulefleet(["export", str(emulated), "--format", "junit", "--out", str(out)]) == 6
    assert "--format csv or parquet writes every round" in capsys.readouterr().err
    assert not out.exists()
    with RunStore(tmp_path).create("other", kind="else", fingerprint="0" * 64) as run:
        empty = run.path
    for form in ("csv", "parquet"):
        assert joulefleet(["export", str(empty), "--format", form, "--out", str(tmp_path / form)]) == 6
        assert "nothing to write" in capsys.readouterr().err
        assert not (tmp_path / form).exists()
    assert StoredRun(empty).origin is None
