"""Faults on demand: what an emulated instrument does wrong, and when."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from joulefleet.errors import ConfigError


class FaultKind(StrEnum):
    """What can go wrong. ``amount`` means packets, samples, bytes or seconds, as each line says."""

    BAD_CHECKSUM = "bad_checksum"  # amount: packets sent with a wrong checksum or CRC
    TRUNCATED_FRAME = "truncated_frame"  # amount: packets cut in half
    LOST_PACKETS = "lost_packets"  # amount: packets that never leave the instrument
    STALL = "stall"  # amount: seconds without a byte while the instrument keeps sampling
    DISCONNECT = "disconnect"  # the port goes away
    OVER_CURRENT = "over_current"  # amount: packets with the over-current flag (HVPM); ends an LVPM's stream
    DROP_COUNTER_WRAP = "drop_counter_wrap"  # amount: samples reported as dropped (HVPM, u16)
    RECALIBRATE = "recalibrate"  # calibration values change in the middle of the stream
    CHIP_RESET = "chip_reset"  # INA219 loses its calibration register


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        kind: What happens.
        at_s: When, in seconds after sampling started.
        amount: How much; see `FaultKind`.
    """

    kind: FaultKind
    at_s: float
    amount: float = 1.0


def parse_fault(text: str) -> Fault:
    """``lost_packets@2.5`` or ``lost_packets@2.5:4``."""
    match = re.fullmatch(r"([a-z_]+)@([0-9.]+)(?::([0-9.]+))?", text)
    if match is None or match[1] not in list(FaultKind):
        raise ConfigError(
            f"fault {text!r}: not KIND@SECONDS[:AMOUNT]",
            hint=f"kinds: {', '.join(k.value for k in FaultKind)}",
        )
    return Fault(FaultKind(match[1]), float(match[2]), float(match[3] or 1.0))


def parse_faults(what: str, texts: Iterable[str], possible: Collection[FaultKind]) -> tuple[Fault, ...]:
    """The faults of one instrument.

    Raises:
        ConfigError: It cannot have one of them.
    """
    faults = tuple(parse_fault(text) for text in texts)
    for fault in faults:
        if fault.kind not in possible:
            raise ConfigError(
                f"{what} has no fault {fault.kind.value!r}", hint=f"it has: {', '.join(sorted(possible))}"
            )
    return faults


class FaultPlan:
    """Hands each fault out once, when its time has come, and counts the packets that still get one."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._todo = sorted(faults, key=lambda fault: fault.at_s)
        self._packets: Counter[FaultKind] = Counter()

    def due(self, elapsed_s: float) -> list[Fault]:
        """The faults whose time has come since the last call."""
        n = sum(fault.at_s <= elapsed_s for fault in self._todo)
        due, self._todo = self._todo[:n], self._todo[n:]
        return due

    def damage(self, kind: FaultKind, packets: int) -> None:
        """So many more of the next packets get this fault."""
        self._packets[kind] += packets

    def hits(self, kind: FaultKind) -> bool:
        """Whether the next packet gets this fault; it is counted off."""
        hit = self._packets[kind] > 0
        self._packets[kind] -= hit
        return hit
