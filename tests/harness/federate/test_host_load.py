"""Processor time of the host, from the kernel's counters."""

import time
from pathlib import Path

import numpy as np
import pytest

from harness.rounds import host_load
from harness.rounds.host_load import HostLoad, HostLoadLog, HostReadings, _schema, read_ticks
from joulefleet.runstore import RunStore

LINE = "cpu  100 20 30 400 50 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n"


def test_the_first_line_is_read(tmp_path: Path) -> None:
    """All but guest time, which is in user and nice already."""
    (tmp_path / "stat").write_text(LINE)
    assert read_ticks(tmp_path / "stat") == (100 + 20 + 30 + 400 + 50 + 6 + 7 + 8, 450, 8)


def test_shares_are_between_the_readings_around_a_stretch() -> None:
    host = HostReadings(*(np.array(c) for c in (
        [0, 100, 200, 300], [0, 10, 30, 40], [0, 5, 6, 16], [0, 0, 5, 5],
    )))  # fmt: skip
    found = host.between(120, 180)
    assert found is not None
    assert (found.idle, found.steal) == (pytest.approx(1 / 20), pytest.approx(5 / 20))
    longer = host.between(100, 200)
    assert longer is not None
    assert longer.idle == pytest.approx(1 / 20)
    assert host.between(250, 301) is None, "it ends after the last reading"
    assert host.between(-1, 50) is None


def test_every_session_has_a_table_and_they_are_read_together(tmp_path: Path) -> None:
    with RunStore(tmp_path).create("load", kind="federation") as run:
        began_ns = time.monotonic_ns()
        for _ in range(2):
            with HostLoadLog(run, period_s=0.02):
                time.sleep(0.3)
        ended_ns = time.monotonic_ns()
    host = HostLoad.read(run.path)
    assert len(list(run.path.glob("host_load-*.parquet"))) == 2
    first, second = (one.t_ns for one in host.sessions)
    assert began_ns <= first[0] < first[-1] < second[0] < second[-1] <= ended_ns
    for t_ns in (first, second):
        found = host.between(int(t_ns[1]), int(t_ns[-2]))
        assert found is not None
        assert 0 <= found.idle <= 1
        assert 0 <= found.steal <= 1
    assert HostLoad.read(tmp_path).between(0, 1) is None


def test_a_host_that_does_not_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_load, "STAT", tmp_path / "absent")
    with RunStore(tmp_path).create("load", kind="federation") as run, HostLoadLog(run, period_s=0.02):
        time.sleep(0.1)
    assert HostLoad.read(run.path).between(0, time.monotonic_ns()) is None


def test_sessions_are_told_apart(tmp_path: Path) -> None:
    """There may be more than nine, and the host's clock begins anew when it is started."""
    with RunStore(tmp_path).create("load", kind="federation") as run:
        for session in range(1, 11):
            began_ns = 1000 * session if session < 10 else 0
            with run.table(f"host_load-{session}", _schema()) as table:
                times = [began_ns, began_ns + 100]
                table.append({"t_ns": times, "ticks": [0, 100], "idle": [0, 10 * session], "steal": [0, 0]})
    host = HostLoad.read(run.path)
    for session in range(1, 11):
        began_ns = 1000 * session if session < 10 else 0
        found = host.between(began_ns + 10, began_ns + 90)
        assert found is not None
        assert found.idle == pytest.approx(session / 10)
    assert host.between(1050, 2050) is None, "nobody looked between two sessions"
