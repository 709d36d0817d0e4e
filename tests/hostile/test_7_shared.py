"""Class 7: what a configuration tells about a lab stays with its owner, and out of copies for others."""

import json
import os
import stat
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness import cli
from harness.inventory import load_inventory
from harness.results.stored_run import StoredRun
from joulefleet.errors import StorageError
from tests.harness.stored_bench import stored_bench

SECRETS = [
    *("bench-host.example", "phone.example", "secret-user", "10.20.30.40", "/home/secretive"),
    *("s3cret_key", "gate.example", "SHA256:" + "A" * 43),
]


def private_run(root: Path) -> Path:
    """A run whose every kind of file names what nobody else should know."""
    run = stored_bench(root)
    inventory = run / "config" / "devices.toml"
    text = inventory.read_text().replace(
        'user = "secret-user"',
        'user = "secret-user"\nkey = "/home/secretive/.ssh/s3cret_key"\n'
        'jump = {host = "gate.example", user = "secret-user"}\n# call 10.20.30.40 if it hangs',
    )
    inventory.write_text(text)
    said = f"secret-user@bench-host.example ({SECRETS[3]}) via gate.example, {SECRETS[7]}, "
    said += f"{SECRETS[4]}/.ssh/s3cret_key"
    (run / "run.log").write_text(f"2026 INFO connected to {said}\n")
    (run / "jobs" / "agent.log").write_text(said)
    record = json.loads((run / "run.json").read_text())
    record |= {"error": said, "command": ["joulefleet", "bench", "run", f"/home/secretive/{said}"]}
    record["host"] |= {"note": said}
    (run / "run.json").write_text(json.dumps(record))
    with (run / "journal.jsonl").open("a") as file:
        file.write(json.dumps({"utc": "2026-01-01T00:00:00+00:00", "event": "note", "note": said}) + "\n")
    pq.write_table(pa.table({"note": [said, None, "fine"], "x": [1, 2, 3]}), run / "notes.parquet")
    (run / "devices.known_hosts").write_text(said)
    (run / "report.html").write_text(f"<p>{said}</p>")
    return run


def all_text(folder: Path) -> str:
    parts = []
    for path in folder.rglob("*"):
        if path.suffix == ".parquet":
            parts.append(str(pq.read_table(path).to_pylist()))
        elif path.is_file():
            parts.append(path.read_bytes().decode("utf-8", "replace"))
        parts.append(path.name)
    return "\n".join(parts)


def test_nothing_private_is_in_a_shared_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = private_run(tmp_path / "runs")
    before = all_text(run)
    out = tmp_path / "out"
    assert cli.run(["export", str(run), "--share", str(out)]) == 0
    said = capsys.readouterr().out
    text = all_text(out)
    assert [secret for secret in SECRETS if secret in text] == []
    assert all(secret in before for secret in SECRETS)
    assert all_text(run) == before  # the original stays
    for what in ("host", "config/devices.toml", "run.log", "devices.known_hosts", "kept:"):
        assert what in said
    # It still opens, with all of its numbers.
    devices = load_inventory(out / "config" / "devices.toml").devices
    assert list(devices) == ["board", "phone"]
    assert devices["board"].meter is not None
    assert len(StoredRun(out).captures) == len(StoredRun(run).captures) == 3
    assert [job.changed for job in StoredRun(out).captures] == [()] * 3
    assert pq.read_table(out / "notes.parquet")["x"].to_pylist() == [1, 2, 3]


def test_an_inventory_that_cannot_be_read_is_not_given_away(tmp_path: Path) -> None:
    run = private_run(tmp_path / "runs")
    (run / "config" / "devices-2.toml").write_text("host = [")
    assert cli.run(["export", str(run), "--share", str(tmp_path / "out")]) == 6
    assert not (tmp_path / "out").exists()


def test_sharing_over_something_is_refused(tmp_path: Path) -> None:
    run = private_run(tmp_path / "runs")
    (tmp_path / "out").mkdir()
    from harness.export.share import share_run

    with pytest.raises(StorageError, match="exists"):
        share_run(run, tmp_path / "out")


def test_the_configuration_of_a_run_is_for_its_owner(tmp_path: Path) -> None:
    run = stored_bench(tmp_path)
    for path in (run / "config").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    from harness.rounds.session import _keep_inventory

    _keep_inventory(run / "config", "[devices.other]\nhost = 'x'\n")
    assert stat.S_IMODE((run / "config" / "devices-2.toml").stat().st_mode) == 0o600


def test_a_log_that_is_no_utf8_is_searched_all_the_same(tmp_path: Path) -> None:
    """One byte, as of a letter that a full disk cut in two, and the file was copied as it was."""
    run = private_run(tmp_path / "runs")
    for name in ("run.log", "jobs/agent.log", "report.html"):
        (run / name).write_bytes(b"\xff\xc3" + (run / name).read_bytes() + b"\xc3")
    assert cli.run(["export", str(run), "--share", str(tmp_path / "out")]) == 0
    text = all_text(tmp_path / "out")
    assert [secret for secret in SECRETS if secret in text] == []
    assert (tmp_path / "out" / "run.log").read_bytes()[:2] == b"\xff\xc3"


def test_a_log_of_terabytes_is_not_shared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = stored_bench(tmp_path / "runs")
    (run / "run.log").touch()
    os.truncate(run / "run.log", 1 << 40)
    assert cli.run(["export", str(run), "--share", str(tmp_path / "out")]) == 1
    assert "run.log: more than 256 MB" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
