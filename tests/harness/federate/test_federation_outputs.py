"""What is made of a federated run: test results that can fail, and a page with its configuration."""

import shutil
from pathlib import Path

import pytest

from harness.bench.job.failures import FAILED, AttemptRecord, failed_record
from harness.bench.job.hooks import Stopped
from harness.export.junit import junit
from harness.report.bench.page import bench_page
from harness.results.stored_run import StoredRun
from harness.rounds.record import PartRecord
from joulefleet.records import write_record
from tests.harness.federate.stored_federation import StoredFederation
from tests.harness.profile_captures import one_round


def lost(number: int, device: str, failure: str = "training: no answer for 30 s") -> PartRecord:
    job = f"{number:04d}_{device}_federate_rep{number}"
    return PartRecord(device=device, client=1, job=job, epochs=3, chosen=False, failure=failure)


def put_aside(run: Path, record: AttemptRecord) -> None:
    folder = run / FAILED / f"{record.job}-attempt{record.attempt}"
    folder.mkdir(parents=True)
    write_record(folder / "attempt.json", record)


@pytest.fixture
def federation(tmp_path: Path) -> StoredFederation:
    """Alpha finishes both rounds, beta fails in the second."""
    run = StoredFederation(tmp_path)
    for number in (1, 2):
        alpha = run.part(number, "alpha", one_round([1.0, 1.0, 1.0]))
        beta = run.part(number, "beta", one_round([1.0, 1.0, 1.0])) if number == 1 else lost(2, "beta")
        run.add(number, [alpha, beta])
    return run


def outcomes(run: StoredFederation) -> dict[str, str]:
    suite = junit(StoredRun(run.path))
    cases = suite.findall("testsuite/testcase")
    found = {case.get("name", ""): "passed" for case in cases}
    for case in cases:
        for element in (*case.findall("failure"), *case.findall("skipped")):
            found[case.get("name", "")] = f"{element.tag}: {element.get('message')}"
    assert suite.get("tests") == str(len(cases))
    return found


def test_a_part_that_failed_is_a_failure(federation: StoredFederation) -> None:
    found = outcomes(federation)
    assert len(found) == 4
    assert found.pop("0002_beta_federate_rep2") == "failure: training: no answer for 30 s"
    assert set(found.values()) == {"passed"}
    html = bench_page(StoredRun(federation.path)).html()
    assert "Jobs: 1 failed, 3 finished" in html


def test_its_evidence_is_in_the_failure(federation: StoredFederation) -> None:
    error = TimeoutError("no answer")
    put_aside(federation.path, failed_record("0002_beta_federate_rep2", 1, "training", error))
    suite = junit(StoredRun(federation.path))
    (failure,) = suite.findall("testsuite/testcase/failure")
    assert failure.get("type") == "TimeoutError"
    assert "kept in failed/0002_beta_federate_rep2-attempt1" in (failure.text or "")


def test_a_lost_capture_is_a_failure_and_a_stopped_part_is_none(federation: StoredFederation) -> None:
    shutil.rmtree(federation.path / "jobs" / "0001_alpha_federate_rep1")
    stopped = failed_record("0003_alpha_federate_rep3", 1, "training", Stopped("the run was stopped"))
    put_aside(federation.path, stopped)
    found = outcomes(federation)
    assert found["0001_alpha_federate_rep1"] == "failure: its capture is missing"
    assert found["0003_alpha_federate_rep3"] == "skipped: not run yet"


def test_the_page_shows_scenario_and_settings(federation: StoredFederation) -> None:
    config = federation.path / "config"
    config.mkdir(exist_ok=True)
    (config / "scenario.toml").write_text('name = "loop"  # my scenario')
    (config / "federate.toml").write_text("quiet = true  # my settings")
    html = bench_page(StoredRun(federation.path)).html()
    assert "# my scenario" in html
    assert "# my settings" in html
