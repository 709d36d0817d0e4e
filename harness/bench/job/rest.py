"""Rest before a job, by time and by temperature."""

from __future__ import annotations

import time
from collections.abc import Callable

from device_agents.transport import Transport
from harness.bench.job.device_state import ask_state
from harness.bench.job.ending import Ending
from harness.bench.plan import Cooldown
from joulefleet.errors import ConfigError, DeviceError

ASK_PERIOD_S = 5.0


def rest(cooldown: Cooldown, last_end_s: float | None, ending: Ending) -> None:
    """Wait until the device has been left alone for long enough; ``last_end_s`` is monotonic time."""
    if last_end_s is not None:
        ending.sleep(last_end_s + cooldown.seconds - time.monotonic())


def cool(
    cooldown: Cooldown,
    transport: Transport,
    ending: Ending,
    *,
    on_temperature: Callable[[float], None] = lambda _: None,
    root: str = "",
    period_s: float = ASK_PERIOD_S,
) -> None:
    """Wait until the device is cool enough.

    Raises:
        ConfigError: It has no sensor that can be read.
        DeviceError: It is still too warm when the time is up.
    """
    if cooldown.temperature_c is None:
        return
    deadline_s = time.monotonic() + cooldown.timeout_s
    while True:
        now_c = ask_state(transport, root).temperature_c
        if now_c is None:
            raise ConfigError(
                f"{transport.address}: shows no temperature to wait for",
                hint="use cooldown.seconds for this device",
            )
        on_temperature(now_c)
        if now_c <= cooldown.temperature_c:
            return
        if time.monotonic() >= deadline_s:
            raise DeviceError(
                f"{transport.address}: still {now_c:.1f} degrees Celsius after {cooldown.timeout_s:g} s, "
                f"above {cooldown.temperature_c:g}",
                hint="cool the room or the device, or raise cooldown.temperature_c",
            )
        ending.sleep(period_s)
