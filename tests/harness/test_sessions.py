"""Runs on the bench of every kind are opened, resumed, put aside and described in the same way."""

import logging
from pathlib import Path

import pytest

from harness.bench.job.failures import AttemptRecord
from harness.bench_run.run import read_bench_files as bench_files
from harness.federate.files import read_federate_files as federate_files
from harness.probing.run import read_probing_files as probing_files
from harness.rounds.session import RunFiles, RunOutputs, open_session
from joulefleet.errors import ConfigError, DeviceError
from joulefleet.records import read_record
from joulefleet.runstore import RunStore, read_journal
from tests.conftest import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
KINDS = ("bench", "probing", "federation")


def files_of(kind: str, folder: Path, inventory: str | None = None) -> RunFiles:
    """What a person wrote for a run of a kind; the inventory with this text."""
    devices = folder / "devices.toml"
    devices.write_text(inventory or (EXAMPLES / "devices.toml").read_text())
    if kind == "bench":
        return bench_files(EXAMPLES / "plan.toml", devices)
    if kind == "probing":
        return probing_files(EXAMPLES / "probing.toml", devices)
    settings = folder / "federate.toml"
    settings.write_text('backend = "torch"\ndevices = ["pi", "phone", "far", "left"]\n')
    return federate_files("quick", devices, settings, selector="fedrank")


def interrupted(files: RunFiles, root: Path) -> Path:
    """A run that was stopped before anything was measured."""
    with pytest.raises(KeyboardInterrupt), open_session(files, root) as session:
        raise KeyboardInterrupt
    return session.path


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_keeps_every_inventory_that_it_was_resumed_with(kind: str, tmp_path: Path) -> None:
    """A phone may come back at another address; what it was measured at is part of the evidence."""
    files = files_of(kind, tmp_path)
    path = interrupted(files, tmp_path / "runs")
    config = path / "config"
    first = (config / "devices.toml").read_text()
    moved = first.replace('host = "', 'host = "another-')
    assert moved != first
    for _ in range(2):  # the second time there is nothing new
        with (
            pytest.raises(KeyboardInterrupt),
            open_session(files_of(kind, tmp_path, moved), tmp_path, resume=path),
        ):
            raise KeyboardInterrupt
    assert (config / "devices.toml").read_text() == first
    assert (config / "devices-2.toml").read_text() == moved
    assert len(list(config.glob("devices*.toml"))) == 2
    (run,) = RunStore(path.parent).list()
    assert run.record is not None
    assert (run.record.kind, run.state) == (kind, "interrupted")


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_kill_has_left_is_put_aside_with_its_stage(kind: str, tmp_path: Path) -> None:
    files = files_of(kind, tmp_path)
    with open_session(files, tmp_path / "runs") as session:
        for name in ("0001_pi_job_rep1", "0002_phone_job_rep1"):
            (session.path / "jobs" / name).mkdir()
            session.bench.note("stage", name, attempt=1, stage="round")
        session.put_aside_unfinished({"0001_pi_job_rep1"})
    assert [p.name for p in (session.path / "jobs").iterdir()] == ["0001_pi_job_rep1"]
    (aside,) = (session.path / "failed").iterdir()
    record = read_record(aside / "attempt.json", AttemptRecord)
    assert (record.job, record.attempt, record.stage) == ("0002_phone_job_rep1", 1, "round")
    assert record.error_type == "Killed"
    events = [(r["event"], r.get("job")) for r in read_journal(session.path / "journal.jsonl")]
    assert events[-1] == ("killed", "0002_phone_job_rep1")


def test_a_run_is_not_resumed_with_another_plan(tmp_path: Path) -> None:
    path = interrupted(files_of("bench", tmp_path), tmp_path / "runs")
    with (
        pytest.raises(ConfigError, match="another configuration"),
        open_session(files_of("probing", tmp_path), tmp_path, resume=path),
    ):
        pass


def test_a_run_is_described_when_it_is_closed_also_if_it_failed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    described: list[tuple[Path, str]] = []

    def describe(path: Path) -> None:
        described.append((path, RunStore(path.parent).list()[0].state))
        raise ConfigError("no page for this")

    outputs = RunOutputs(of_run=describe)
    files = files_of("bench", tmp_path)
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(DeviceError, match="unplugged"),
        open_session(files, tmp_path / "runs", outputs=outputs) as session,
    ):
        raise DeviceError("unplugged")
    assert described == [(session.path, "failed")]
    assert "no page was made: no page for this" in caplog.text


def test_a_listener_that_cannot_hear_ends_nothing(tmp_path: Path) -> None:
    def gone(*_: object) -> None:
        raise BrokenPipeError

    with open_session(files_of("bench", tmp_path), tmp_path / "runs", listener=gone) as session:
        session.note("round", "0001")
    assert [r["event"] for r in read_journal(session.path / "journal.jsonl")] == ["round"]
