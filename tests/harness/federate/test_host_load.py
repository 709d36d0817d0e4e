"""Processor time of the host, from the kernel's counters."""

import time
from pathlib import Path

import numpy as np
import pytest

from fedjoule.runstore import RunStore
from harness.federate.host_load import HostLoad, HostLoadLog, read_ticks

LINE = "cpu  100 20 30 400 50 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n"


def test_the_first_line_is_read(tmp_path: Path) -> None:
    """All but guest time, which is in user and nice already."""
    (tmp_path / "stat").write_text(LINE)
    assert read_ticks(tmp_path / "stat") == (100 + 20 + 30 + 400 + 50 + 6 + 7 + 8, 450, 8)


def test_shares_are_between_the_readings_around_a_stretch() -> None:
    host = HostLoad(*(np.array(c) for c in (
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


def test_every_sitting_has_a_table_and_they_are_read_together(tmp_path: Path) -> None:
    with RunStore(tmp_path).create("load", kind="federation") as run:
        began_ns = time.monotonic_ns()
        for _ in range(2):
            with HostLoadLog(run, period_s=0.02):
                time.sleep(0.3)
        ended_ns = time.monotonic_ns()
    host = HostLoad.read(run.path)
    assert len(list(run.path.glob("host_load-*.parquet"))) == 2
    assert began_ns <= host.t_ns[0] < host.t_ns[-1] <= ended_ns
    found = host.between(int(host.t_ns[1]), int(host.t_ns[-2]))
    assert found is not None
    assert 0 <= found.idle <= 1
    assert 0 <= found.steal <= 1
    assert HostLoad.read(tmp_path).between(0, 1) is None
