import math

import pytest

from joulefleet.errors import MeterDisconnected, MeterError, UnsafeOutput
from power.meters.monsoon_hvpm import MonsoonHvpm
from power.meters.monsoon_lvpm import MonsoonLvpm
from power.meters.replay import ReplayMeter
from power.meters.safety import (
    CurrentLimits,
    OutputControl,
    OutputSetting,
    confirmed_voltage,
    require_safe_current_limit,
    require_safe_voltage,
    switch_output_on,
)
from tests.power.synthetic import config


@pytest.mark.parametrize("voltage_v", [4.31, 60.0, math.inf, math.nan])
def test_a_voltage_above_the_limit_is_refused(voltage_v: float) -> None:
    with pytest.raises(UnsafeOutput, match=r"above voltage_max_v 4\.3") as caught:
        require_safe_voltage(config(), voltage_v)
    assert "before you raise" in caught.value.hint


RANGE_A = (0.008, 2.5)


@pytest.mark.parametrize("limit_a", [3.01, math.inf, math.nan])
def test_a_current_limit_above_the_device_is_refused(limit_a: float) -> None:
    with pytest.raises(UnsafeOutput, match="above current_limit_a 3"):
        require_safe_current_limit(config(), limit_a, RANGE_A)


@pytest.mark.parametrize("limit_a", [-1.0, 0.0, math.nextafter(0.008, 0), math.nextafter(2.5, 3), 3.0])
def test_a_current_limit_that_the_instrument_has_not_is_refused(limit_a: float) -> None:
    with pytest.raises(UnsafeOutput, match=r"can be set to, 0\.008 to 2\.5 A; the output was left as it was"):
        require_safe_current_limit(config(), limit_a, RANGE_A)


def test_the_limits_themselves_are_allowed() -> None:
    require_safe_voltage(config(), 4.3)
    require_safe_current_limit(config(), 3.0, (0.008, 3.0))
    require_safe_current_limit(config(), 0.008, (0.008, 3.0))
    with pytest.raises(UnsafeOutput):
        require_safe_voltage(config(), math.nextafter(4.3, 5))
    with pytest.raises(UnsafeOutput):
        require_safe_current_limit(config(), math.nextafter(3.0, 4), (0.008, 8.0))


def test_who_has_an_output() -> None:
    assert issubclass(MonsoonLvpm, OutputControl)
    assert issubclass(MonsoonHvpm, OutputControl)
    assert not issubclass(ReplayMeter, OutputControl)


class Supply:
    """An output that keeps what it is told, but for what a test says; and what was asked of it."""

    def __init__(self, *, keeps: CurrentLimits | None = None, top_a: float = 8.0) -> None:
        self.keeps = keeps
        self.top_a = top_a
        self.asked: list[tuple[object, ...]] = []

    def output_setting(self) -> OutputSetting:
        return OutputSetting(4.0, CurrentLimits(3.0, 3.0))

    def current_limit_range_a(self) -> tuple[float, float]:
        return 0.008, self.top_a

    def set_current_limits(self, *, run_time_a: float, power_up_a: float) -> CurrentLimits:
        self.asked.append(("limits", run_time_a, power_up_a))
        return self.keeps or CurrentLimits(run_time_a, power_up_a)

    def set_voltage(self, voltage_v: float) -> float:
        self.asked.append(("voltage", voltage_v))
        return voltage_v

    def switch_output_off(self) -> None:
        self.asked.append(("off",))


def test_the_current_limit_comes_before_the_voltage() -> None:
    supply = Supply()
    setting = switch_output_on(supply, config(), 4.1)
    assert supply.asked == [("limits", 3.0, 3.0), ("voltage", 4.1)]
    assert (setting.voltage_v, setting.limits) == (4.1, CurrentLimits(3.0, 3.0))


def test_an_instrument_that_cuts_earlier_is_set_to_what_it_can() -> None:
    supply = Supply(top_a=2.0)
    switch_output_on(supply, config(), 4.1)
    assert supply.asked[0] == ("limits", 2.0, 2.0)


@pytest.mark.parametrize(
    "keeps", [CurrentLimits(4.6, 3.0), CurrentLimits(3.0, 4.6), CurrentLimits(math.nan, 3.0)]
)
def test_no_voltage_where_the_current_limit_is_not_kept(keeps: CurrentLimits) -> None:
    supply = Supply(keeps=keeps)
    with pytest.raises(UnsafeOutput, match=r"limit stays at .* the output was left as it was"):
        switch_output_on(supply, config(), 4.1)
    assert supply.asked == [("limits", 3.0, 3.0)]


def test_nothing_is_sent_for_a_voltage_that_is_refused() -> None:
    supply = Supply()
    with pytest.raises(UnsafeOutput, match="voltage_max_v"):
        switch_output_on(supply, config(), 4.31)
    assert supply.asked == []


def confirm(found_v: float | MeterError, off: list[str]) -> float:
    def change() -> float:
        if isinstance(found_v, MeterError):
            raise found_v
        return found_v

    return confirmed_voltage(config(), 4.2, step_v=0.01, change=change, switch_off=lambda: off.append("off"))


def test_a_voltage_one_step_off_is_rounding() -> None:
    off: list[str] = []
    assert confirm(4.21, off) == 4.21
    assert off == []


def test_another_voltage_is_named_and_left() -> None:
    off: list[str] = []
    with pytest.raises(MeterError, match=r"the output may be on at 3\.700 V") as caught:
        confirm(3.7, off)
    assert off == []
    assert "--off" in caught.value.hint


def test_a_voltage_above_the_limit_is_switched_off() -> None:
    off: list[str] = []
    with pytest.raises(
        UnsafeOutput, match=r"reads 4\.310 V .* above voltage_max_v 4\.3; it was switched off"
    ):
        confirm(4.31, off)
    assert off == ["off"]


def test_an_instrument_that_does_not_answer_may_have_its_output_on() -> None:
    with pytest.raises(MeterError, match=r"went away; the output may be on at 4\.200 V"):
        confirm(MeterDisconnected("it went away"), [])


def test_an_output_above_the_limit_that_cannot_be_switched_off() -> None:
    def fail() -> None:
        raise MeterDisconnected("it went away")

    with pytest.raises(UnsafeOutput, match=r"the output may be on at 5\.000 V") as caught:
        confirmed_voltage(config(), 4.2, step_v=0.01, change=lambda: 5.0, switch_off=fail)
    assert "disconnect" in caught.value.hint
