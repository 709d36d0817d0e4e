"""The device's clocks: markers use the monotonic one; the others are recorded beside it.

A stepped wall clock does not touch the monotonic clock; how far it moved is reported all the same.
A suspended device shows as the boot-time clock running ahead of the monotonic one, a reboot as another id.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

_TRIES = 5


def snapshot() -> dict[str, Any]:
    """All clocks read as close together as possible, in nanoseconds; None for a clock that is not there."""
    return min((_read_once() for _ in range(_TRIES)), key=lambda pair: pair[0])[1]


def _read_once() -> tuple[int, dict[str, Any]]:
    before_ns = time.monotonic_ns()
    realtime_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
    boottime_ns = _boottime_ns()
    after_ns = time.monotonic_ns()
    clocks = {
        "monotonic_ns": (before_ns + after_ns) // 2,
        "realtime_ns": realtime_ns,
        "boottime_ns": boottime_ns,
    }
    return after_ns - before_ns, clocks


def _boottime_ns() -> int | None:
    try:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    except (AttributeError, OSError):  # Linux only
        return None


def changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What happened to the clocks between two snapshots.

    Returns:
        ``wall_step_ns``, how far the wall clock moved beyond the time that passed (slewing by a time service
        counts too), and ``suspended_ns``, how long the device slept; None where that cannot be told.
    """
    boot = before["boottime_ns"], after["boottime_ns"]
    monotonic_ns = after["monotonic_ns"] - before["monotonic_ns"]
    elapsed_ns = monotonic_ns if None in boot else boot[1] - boot[0]
    return {
        "wall_step_ns": after["realtime_ns"] - before["realtime_ns"] - elapsed_ns,
        "suspended_ns": None if None in boot else max(0, elapsed_ns - monotonic_ns),
    }


def boot_id(root: Path) -> str:
    """A name for this run of the kernel; empty where it cannot be read (not Linux, or forbidden)."""
    try:
        return (root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()[:64]
    except (OSError, ValueError):
        return ""


def same_boot(then: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether a record's ``boot_id`` and ``clock`` belong to the boot that ``now`` describes."""
    if then.get("boot_id") and now.get("boot_id"):
        return bool(then["boot_id"] == now["boot_id"])
    past, present = then["clock"]["boottime_ns"], now["clock"]["boottime_ns"]
    # Without ids: time since boot that went backwards proves a reboot; the converse is taken on trust.
    return past is None or present is None or present >= past
