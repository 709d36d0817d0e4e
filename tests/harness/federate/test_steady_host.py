"""Cores whose speed is watched, and devices dealt out to them."""

import time
from pathlib import Path

import pytest

from power.emulated.signals import read_speed
from tests.harness.federate.local_fleet import deal_cores
from tests.harness.federate.steady_host import steady_host


@pytest.mark.xdist_group("bench")  # a canary goes before others' work, meters' readers among it
def test_every_core_says_how_fast_it_is(tmp_path: Path) -> None:
    with steady_host(tmp_path) as files:
        before_ns = [file.stat().st_mtime_ns for file in files.values()]
        deadline_s = time.monotonic() + 30
        while any(f.stat().st_mtime_ns == t for f, t in zip(files.values(), before_ns, strict=True)):
            assert time.monotonic() < deadline_s, "a canary has fallen silent"
            time.sleep(0.1)
        for file in files.values():
            assert 0.2 < read_speed(file) < 5


def test_a_speed_that_nobody_tells_is_one(tmp_path: Path) -> None:
    assert read_speed(None) == read_speed(tmp_path / "absent") == 1
    (tmp_path / "torn").write_text("")
    assert read_speed(tmp_path / "torn") == 1


def test_cores_are_dealt_so_that_none_has_much_more() -> None:
    shares = {"alpha": 0.25, "beta": 0.2, "gamma": 0.15, "delta": 0.1}
    assert deal_cores(shares, [0, 1]) == {"alpha": 0, "beta": 1, "gamma": 1, "delta": 0}
    assert deal_cores(shares, []) == {}
