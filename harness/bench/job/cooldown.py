"""A device outside the measurement: what it is, how warm, and the times without work around a job."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from device_agents.transport import Transport
from harness.bench.job.hooks import Ending
from harness.bench.plan import Cooldown, JobTiming
from harness.evidence.capture import HostWindow
from joulefleet.errors import ConfigError, DeviceError
from power.energy import IDLE_PARTS

# $1 is the parent of /proc and /sys. Every line is a key, a tab and a value; what cannot be read is left out.
_ASK = r"""
show() { [ -r "$2" ] && value=$(head -c 100 "$2" 2>/dev/null | tr -d '\000\n\t') && [ -n "$value" ] &&
  printf '%s\t%s\n' "$1" "$value"; }
show governor "$1/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
show max_freq_khz "$1/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"
show product "$1/proc/device-tree/model"
show kernel "$1/proc/sys/kernel/osrelease"
command -v getprop >/dev/null 2>&1 && printf 'product\t%s\n' "$(getprop ro.product.model)"
for zone in "$1"/sys/class/thermal/thermal_zone*/temp; do show temperature_mc "$zone"; done
for supply in "$1"/sys/class/power_supply/*; do
  [ "$(cat "$supply/type" 2>/dev/null)" = Battery ] && show battery_percent "$supply/capacity"
done
true
"""

MAX_LINES = 200


@dataclass(frozen=True, slots=True)
class DeviceState:
    """What a device said.

    Attributes:
        facts: ``governor``, ``product``, ``kernel``, ``max_freq_khz`` as far as they can be read.
        temperature_c: Of the hottest sensor; None if there is none.
        battery_level: Of the emptiest battery, 0 to 1; None if there is none.
    """

    facts: dict[str, str]
    temperature_c: float | None
    battery_level: float | None


def ask_state(transport: Transport, root: str = "") -> DeviceState:
    """Ask a device for its facts, temperature and battery level.

    Args:
        transport: The way to it.
        root: Parent of ``/proc`` and ``/sys`` there.

    Raises:
        DeviceUnreachable: The link is down.
    """
    done = transport.run(["sh", "-c", _ASK, "sh", root])
    facts: dict[str, str] = {}
    temperatures_c: list[float] = []
    levels: list[float] = []
    for line in done.stdout.decode("utf-8", "replace").splitlines()[:MAX_LINES]:
        key, _, value = line.partition("\t")
        if key == "temperature_mc":
            temperatures_c += _finite(value, 1e-3)
        elif key == "battery_percent":
            levels += _finite(value, 1e-2)
        elif key and value:
            facts.setdefault(key, value[:100])
    return DeviceState(facts, max(temperatures_c, default=None), min(levels, default=None))


def _finite(text: str, unit: float) -> list[float]:
    """The number in a text, if it is one."""
    try:
        number = float(text)
    except ValueError:
        return []
    return [number * unit] if math.isfinite(number) else []


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
