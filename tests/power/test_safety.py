import math

import pytest

from fedjoule.errors import UnsafeOutput
from power.meters.monsoon_hvpm import MonsoonHvpm
from power.meters.monsoon_lvpm import MonsoonLvpm
from power.meters.replay import ReplayMeter
from power.safety import OutputControl, require_safe_current_limit, require_safe_voltage
from tests.power.synthetic import config


@pytest.mark.parametrize("voltage_v", [4.31, 60.0, math.inf, math.nan])
def test_a_voltage_above_the_limit_is_refused(voltage_v: float) -> None:
    with pytest.raises(UnsafeOutput, match=r"above voltage_max_v 4\.3") as caught:
        require_safe_voltage(config(), voltage_v)
    assert "before you raise" in caught.value.hint


@pytest.mark.parametrize("limit_a", [3.01, math.inf, math.nan])
def test_a_current_limit_above_the_device_is_refused(limit_a: float) -> None:
    with pytest.raises(UnsafeOutput, match="above current_limit_a 3"):
        require_safe_current_limit(config(), limit_a)


def test_the_limits_themselves_are_allowed() -> None:
    require_safe_voltage(config(), 4.3)
    require_safe_current_limit(config(), 3.0)


def test_who_has_an_output() -> None:
    assert issubclass(MonsoonLvpm, OutputControl)
    assert issubclass(MonsoonHvpm, OutputControl)
    assert not issubclass(ReplayMeter, OutputControl)
