"""Times without work: rest before a job, by time and by temperature, and the idle windows of its baseline."""

from __future__ import annotations

import time
from collections.abc import Callable

from device_agents.transport import Transport
from harness.bench.job.device_state import ask_state
from harness.bench.job.ending import Ending
from harness.bench.plan import Cooldown, JobTiming
from harness.evidence.capture import HostWindow
from joulefleet.errors import ConfigError, DeviceError
from power.energy import IDLE_PARTS

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


def leave_alone(seconds: float, ending: Ending) -> HostWindow:
    """Do nothing for a while."""
    start_ns = time.monotonic_ns()
    ending.sleep(seconds)
    return HostWindow(start_ns=start_ns, end_ns=time.monotonic_ns())


def require_enough_samples(timing: JobTiming, rate_hz: float, *, loaded: bool) -> None:
    """Whether a meter is fast enough for what becomes a baseline: two samples in each of its parts.

    Args:
        timing: Of the plan.
        rate_hz: Samples per second.
        loaded: Whether a background load runs beside the training, and alone before it.

    Raises:
        ConfigError: A window is too short, so that no attempt could ever succeed.
    """
    shortest_s = 2 * IDLE_PARTS / rate_hz
    windows_s = {"idle_s": timing.idle_s, "load_only_s": timing.load_only_s if loaded else 0.0}
    for name, seconds in windows_s.items():
        if 0 < seconds < shortest_s:
            raise ConfigError(
                f"timing.{name}: {seconds:g} s is too short for a baseline: "
                f"at {rate_hz:.3g} samples per second it takes at least {shortest_s:.3g} s",
                hint="make it longer, or have the meter average less",
            )
