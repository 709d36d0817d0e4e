"""What a device is and how it is, asked over its transport outside the measurement."""

from __future__ import annotations

import math
from dataclasses import dataclass

from device_agents.transport import Transport

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
            temperatures_c += _number(value, 1e-3)
        elif key == "battery_percent":
            levels += _number(value, 1e-2)
        elif key and value:
            facts.setdefault(key, value[:100])
    return DeviceState(facts, max(temperatures_c, default=None), min(levels, default=None))


def _number(text: str, unit: float) -> list[float]:
    """The number in a text, if it is one."""
    try:
        number = float(text)
    except ValueError:
        return []
    return [number * unit] if math.isfinite(number) else []
