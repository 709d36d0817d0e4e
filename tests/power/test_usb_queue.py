"""Queued USB transfers: python-libusb1 itself over a stand-in for the C library whose time is exact."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY

IN_UNIT = 13
"""Observations that the unit keeps by itself (2.6 ms)."""

NOTHING_LEFT = [0, 0, 0]  # transfers under way, transfers allocated, handles and claims

Play = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the stand-in is compiled, once."""
    return tmp_path_factory.mktemp("libusb")


@pytest.fixture
def play(folder: Path, require_program: Callable[[str, str], str]) -> Play:
    """Run a scenario of `tests.power.libusb_stand_in.scenarios`; nothing is left behind by any."""
    require_program("gcc", "gcc")

    def run(name: str, *arguments: int) -> dict[str, Any]:
        module = "tests.power.libusb_stand_in.scenarios"
        command = [sys.executable, "-m", module, str(folder), name, *(str(a) for a in arguments)]
        done = subprocess.run(
            command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        result: dict[str, Any] = json.loads(done.stdout)
        assert (result.pop("left"), result.pop("threads")) == (NOTHING_LEFT, 0)
        return result

    return run


@pytest.mark.parametrize(("transfers", "late_ms"), [(1, 8), (16, 8), (32, 8), (32, 10), (128, 28), (128, 40)])
def test_a_late_program_loses_what_fits_neither_transfers_nor_unit(
    play: Play, transfers: int, late_ms: int
) -> None:
    made = 5 * late_ms  # one every 0.2 ms
    lost = max(0, made - transfers - IN_UNIT)
    result = play("late", transfers, late_ms * 1000)
    # The transfers hold the oldest; behind them it is the oldest that give way. One more comes afterwards.
    assert result["numbers"] == [*range(min(transfers, made)), *range(min(transfers, made) + lost, made + 1)]
    assert result["dropped"] == lost


@pytest.mark.parametrize(
    ("status", "error", "says"),
    [
        (1, "MeterDisconnected", "went away"),  # LIBUSB_TRANSFER_ERROR, as a cable that is being pulled
        (3, "MeterDisconnected", "went away"),  # _CANCELLED, and not by us
        (4, "MeterProtocolError", "it refused (stall)"),  # _STALL
        (5, "MeterDisconnected", "went away"),  # _NO_DEVICE
        (6, "MeterProtocolError", "it sent more than was asked for"),  # _OVERFLOW
    ],
)
@pytest.mark.parametrize("after", [0, 20])
def test_what_came_before_a_failure_is_delivered(
    play: Play, status: int, error: str, says: str, after: int
) -> None:
    result = play("failing", status, after)
    assert result["numbers"] == list(range(after))
    assert (result["error"], result["again"]) == (error, error)
    assert says in result["message"]


def test_the_order_is_that_of_submission(play: Play) -> None:
    assert play("swapped")["numbers"] == list(range(10))


def test_memory_is_bounded_when_nobody_reads(play: Play) -> None:
    """The unit drops, and counts what it drops; afterwards the stream goes on."""
    result = play("nobody_reads")
    assert result["waiting"] == 4096 + 128
    assert result["in_order"]
    assert result["seen"] + result["dropped"] == result["made"] == 20_010
    assert result["seen"] == 4096 + 128 + IN_UNIT + 10


def test_a_silent_unit_is_waited_for(play: Play) -> None:
    assert play("silent") == {"nothing": [], "under_way": 32, "then": [0]}


def test_an_interrupt_in_a_callback_reaches_the_reader(play: Play) -> None:
    assert play("interrupted") == {"numbers": [0, 1, 2], "raised": True}


def test_ctrl_c_at_any_moment_reaches_the_program_and_loses_no_transfer(play: Play) -> None:
    """An exception in a callback of python-libusb1 is lost, and closing then waits forever."""
    assert play("ctrl_c", 100) == {"pressed": 100, "raised": 100, "under_way": 128}


def test_ctrl_c_while_it_opens_or_closes_leaves_nothing_to_wait_for(play: Play) -> None:
    """python-libusb1 notes a transfer before it starts it, and closing waits for every note."""
    assert play("ctrl_c_at_the_ends", 150) == {"pressed": 150, "raised": 150}


def test_ctrl_c_is_tested_also_where_the_tests_were_told_to_ignore_it(tmp_path: Path) -> None:
    """As in a script's background: what is ignored is inherited, and nothing pressed would arrive."""
    name = test_ctrl_c_at_any_moment_reaches_the_program_and_loses_no_transfer.__name__
    options = ["-q", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "inner")]
    command = [sys.executable, "-m", "pytest", *options, f"{__file__}::{name}"]
    ended = subprocess.run(
        ["env", "--ignore-signal=INT", *command], cwd=REPOSITORY, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stdout


def test_packets_that_came_before_libusb_failed_are_delivered(play: Play) -> None:
    assert play("events_fail") == {"numbers": list(range(10)), "error": "MeterDisconnected"}


def test_a_second_client_may_look_but_not_take(play: Play) -> None:
    assert play("claimed") == {"error": "MeterBusy", "serials": [["20001", ""]]}
