"""A way through CSV makes no claim stronger."""

import json
from pathlib import Path

import pytest

from harness.cli import run
from traces.importer import import_traces
from traces.readers.base import ReaderOptions
from traces.storage.trace_set import ORIGIN_FILE, TraceSet
from traces.synth.model import load_model
from traces.synth.write import synthesise


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """Generated people as CSV, written by the command."""
    synthesise(load_model("default"), tmp_path / "people", users=2, days=1, seed=1)
    assert run(["traces", "export", str(tmp_path / "people"), "--out", str(tmp_path / "csv")]) == 0
    return tmp_path / "csv"


@pytest.mark.parametrize("part", ["", "spans.csv"])
def test_generated_people_stay_emulated(exported: Path, part: str, tmp_path: Path) -> None:
    assert run(["traces", "import", "csv", str(exported / part), "--out", str(tmp_path / "again")]) == 0
    before, after = (TraceSet(tmp_path / name).record.provenance for name in ("people", "again"))
    assert before.origin == after.origin == "emulated"
    assert after.basis.startswith(before.basis)
    assert after.basis.endswith(f"csv: {(exported / part).name}")
    assert after.sources == before.sources


def test_tables_without_their_origin_are_a_foreign_file(exported: Path, tmp_path: Path) -> None:
    (exported / ORIGIN_FILE).unlink()
    found = import_traces("csv", exported, tmp_path / "again", ReaderOptions())
    assert found.record.provenance.origin == "imported"


def test_a_claim_is_never_stronger_than_imported(exported: Path, tmp_path: Path) -> None:
    told = json.loads((exported / ORIGIN_FILE).read_text())
    source = {"id": "somebody", "sha256": "0" * 64}
    told["provenance"] = {
        "origin": "measured",
        "instrument": {"kind": "monsoon-hvpm", "emulated": False},
        "sources": [source],
    }
    (exported / ORIGIN_FILE).write_text(json.dumps(told))
    found = import_traces("csv", exported, tmp_path / "again", ReaderOptions())
    assert found.record.provenance.origin == "imported"
