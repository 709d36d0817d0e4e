"""Whatever wrote a run: it opens the same way, and commands take it or say what it lacks."""

from pathlib import Path

import pytest

from emulator.experiments.runner import KIND as EXPERIMENT
from harness import StoredRun, open_run
from harness.cli import run as joulefleet
from joulefleet.errors import DataQualityError, StorageError
from joulefleet.runstore import RunStore
from tests.harness.federate.stored_federation import StoredFederation, stopped
from tests.harness.profile_captures import one_round
from tests.harness.stored_bench import stored_bench
from tests.harness.stored_probing import stored_probing


def federation(root: Path) -> Path:
    """One that was cut short before its first round was closed."""
    run = StoredFederation(root)
    run.add(1, [run.part(1, "a", one_round([1.0] * 3)), run.part(1, "b", stopped(1.0), chosen=False)])
    return run.path


def emulation(root: Path) -> Path:
    assert joulefleet(["emulate", "quick", "--selector", "fedavg", "--seeds", "0", "--root", str(root)]) == 0
    return next(path for path in root.iterdir() if path.is_dir())


MAKERS = {
    "bench": stored_bench,
    "probing": stored_probing,
    "federation": federation,
    "emulation": emulation,
}


@pytest.fixture(scope="module", params=list(MAKERS))
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    return open_run(MAKERS[request.param](tmp_path_factory.mktemp(request.param)))


def test_every_kind_opens_and_has_a_page(run: StoredRun) -> None:
    assert run.record.kind in MAKERS
    assert run.origin is not None
    assert joulefleet(["report", str(run.path)]) == 0
    assert (run.path / "report.html").is_file()


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_every_kind_is_exported(run: StoredRun, form: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert joulefleet(["export", str(run.path), "--format", form, "--out", str(out)]) == 0
    expected = {"rounds", "clients"} if run.record.kind == "emulation" else {"jobs", "epochs", "power"}
    assert expected <= {file.name.partition(".")[0] for file in out.iterdir()}


def test_what_a_kind_lacks_is_said_in_a_sentence(
    run: StoredRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = joulefleet(["export", str(run.path), "--format", "perfetto", "--out", str(tmp_path / "t.json")])
    assert code == (6 if run.record.kind == "emulation" else 0)
    assert code == 0 or "run of kind 'emulation' has no finished capture" in capsys.readouterr().err
    code = joulefleet(["compare", str(run.path)])
    assert code == (0 if run.record.kind == "emulation" else 6)
    assert code == 0 or "emulation" in capsys.readouterr().err


def test_rounds_where_there_are_some(run: StoredRun) -> None:
    if run.record.kind in ("emulation", "probing"):
        assert len(run.rounds()) > 0
    else:
        with pytest.raises(DataQualityError, match=f"kind '{run.record.kind}' has no table of rounds"):
            run.rounds()


def test_no_run_and_a_run_with_nothing(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="not a run"):
        open_run(tmp_path / "nowhere")
    with RunStore(tmp_path).create("empty", kind=EXPERIMENT) as run:
        pass
    assert open_run(run.path).origin is None
    with pytest.raises(DataQualityError, match="nothing to write"):
        open_run(run.path).check_has_tables()
