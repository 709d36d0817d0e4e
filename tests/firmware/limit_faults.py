"""``meter output --set`` with a fault at one of its steps, against the firmware or an emulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness.cli import run
from joulefleet.errors import MeterDisconnected, MeterSilent
from power.meter import MeterConfig, open_meter
from power.meters import OutputControl, OutputSetting
from power.meters.serial_port import SerialPort
from power.meters.usb.link import UsbLink

STEP_A = {"monsoon-lvpm": 8 / 1023, "monsoon-hvpm": 16 / 0xFFFF}
FAULTS = ("swallowed", "unanswered", "unplugged")
SETS = {"monsoon-lvpm": 4, "monsoon-hvpm": 2}
"""Commands that it takes to set both limits."""


def words(kind: str, port: str, limit_a: float) -> list[str]:
    limits = ["--voltage", "4", "--voltage-max", "4.2", "--current-limit", str(limit_a)]
    return ["--kind", kind, "--port", port, *limits]


def set_output(kind: str, port: str, limit_a: float) -> int:
    """The command, in this process."""
    return run(["meter", "output", *words(kind, port, limit_a), "--set", "4.0", "--yes"])


def setting(kind: str, port: str) -> OutputSetting:
    """What the instrument says of its output to a client that comes later."""
    values = {"voltage_v": 4.0, "voltage_max_v": 4.2, "current_limit_a": 8.0}
    config = MeterConfig.model_validate({"kind": kind, "port": port, **values})
    with open_meter(config, any_settings=True) as meter:
        assert isinstance(meter, OutputControl)
        return meter.output_setting()


def break_at(monkeypatch: pytest.MonkeyPatch, kind: str, step: int, fault: str) -> None:
    """Let the command that changes a limit for the ``step``-th time fail, or the cable be pulled with it."""
    seen, gone = [0], [False]

    def broken(send: Callable[..., None], is_limit: Callable[..., bool]) -> Callable[..., None]:
        def call(self: Any, *given: Any) -> None:
            if gone[0]:
                raise MeterDisconnected("it went away")
            seen[0] += is_limit(*given)
            if not is_limit(*given) or seen[0] != step:
                send(self, *given)
                return
            gone[0] = fault == "unplugged"
            if fault == "unanswered":
                send(self, *given)
            if fault != "swallowed" or kind == "monsoon-hvpm":
                raise MeterDisconnected("it went away") if gone[0] else MeterSilent("no answer")

        return call

    if kind == "monsoon-lvpm":
        write = broken(SerialPort.write, lambda data: data[1:2] == b"\x01" and data[2] in (8, 9, 10, 11))
        monkeypatch.setattr(SerialPort, "write", write)
    else:

        def is_limit(_: int, request: int, __: int, index: int, *___: bytes) -> bool:
            return request == 1 and index & 0xFF in (0x43, 0x44)

        control = broken(UsbLink.control_write, is_limit)
        monkeypatch.setattr(UsbLink, "control_write", control)


def check_fault(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    kind: str,
    port: str,
    limits_a: tuple[float, float],
    step: int,
    fault: str,
) -> None:
    """The old limits hold again, or are named; whatever happens, none is higher than the old and the new."""
    old_a, new_a = limits_a
    assert set_output(kind, port, old_a) == 0
    before = setting(kind, port)
    with monkeypatch.context() as patch:
        break_at(patch, kind, step, fault)
        capfd.readouterr()
        assert set_output(kind, port, new_a) == 5
        said = capfd.readouterr().err
    after = setting(kind, port)
    assert after.voltage_v == before.voltage_v
    old = f"{before.limits.run_time_a:.3f} A at run time and {before.limits.power_up_a:.3f} A at power-up"
    if fault == "unplugged":
        assert f"is not known, they were {old}" in " ".join(said.split())
        for limit_a in (after.limits.run_time_a, after.limits.power_up_a):
            assert limit_a <= max(old_a, new_a)
    else:
        assert f"the old current limits hold again: {old}" in " ".join(said.split())
        assert after.limits == before.limits


def check_limits(kind: str, port: str, limits_a: tuple[float, ...]) -> None:
    """Each limit in turn arrives as asked, at run time and at power-up."""
    for limit_a in limits_a:
        assert set_output(kind, port, limit_a) == 0
        found = setting(kind, port)
        assert found.on
        assert found.voltage_v == pytest.approx(4.0, abs=1e-3)
        for kept_a in (found.limits.run_time_a, found.limits.power_up_a):
            assert limit_a - STEP_A[kind] < kept_a <= limit_a
