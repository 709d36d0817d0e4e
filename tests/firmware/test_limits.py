"""``meter output --set``: both limits as asked, raised and lowered; a fault never leaves a higher one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from power.emulated.options import EmulatorOptions
from power.emulated.service import in_thread
from tests.firmware.bridge import HvpmOnUsb, LvpmOnPty
from tests.firmware.images import HVPM
from tests.firmware.limit_faults import FAULTS, SETS, check_fault, check_limits
from tests.firmware.monsoon import Hvpm, Lvpm

KINDS = ("monsoon-lvpm", "monsoon-hvpm")
DIRECTIONS = [(2.0, 4.0), (4.0, 2.0)]
STEPS = [(kind, step) for kind in KINDS for step in range(1, SETS[kind] + 1)]


@contextlib.contextmanager
def firmware(images: Path, kind: str, version: int = 32) -> Iterator[str]:
    if kind == "monsoon-lvpm":
        with LvpmOnPty(Lvpm(images)) as serial:
            yield serial.path
    else:
        with HvpmOnUsb(Hvpm(images, HVPM[version])) as usb:
            yield usb.address


@pytest.fixture(params=KINDS)
def emulated(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    with in_thread(request.param, EmulatorOptions()) as unit:
        yield request.param, unit.address


def test_both_limits_arrive_at_an_emulator(emulated: tuple[str, str]) -> None:
    check_limits(*emulated, (3.0, 1.0, 4.5, 2.0))


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("limits_a", DIRECTIONS)
@pytest.mark.parametrize(("kind", "step"), STEPS)
def test_a_fault_at_any_step_leaves_an_emulator_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    kind: str,
    step: int,
    limits_a: tuple[float, float],
    fault: str,
) -> None:
    with in_thread(kind, EmulatorOptions()) as unit:
        check_fault(monkeypatch, capfd, kind, unit.address, limits_a, step, fault)


@pytest.mark.parametrize(("kind", "version"), [("monsoon-lvpm", 20), *(("monsoon-hvpm", v) for v in HVPM)])
def test_both_limits_arrive_at_the_firmware(images: Path, kind: str, version: int) -> None:
    with firmware(images, kind, version) as port:
        check_limits(kind, port, (3.0, 1.0, 4.5, 2.0))


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("kind", "step"), STEPS)
def test_a_fault_at_any_step_leaves_the_firmware_as_it_was(
    images: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    kind: str,
    step: int,
    fault: str,
) -> None:
    with firmware(images, kind) as port:
        for limits_a in DIRECTIONS:
            check_fault(monkeypatch, capfd, kind, port, limits_a, step, fault)
