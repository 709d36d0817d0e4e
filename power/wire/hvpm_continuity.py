"""Whether packets of a Monsoon on USB continue each other, and how many samples are missing where not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from power.model import FindingLog, Severity
from power.wire.hvpm_control import SAMPLE_RATE_HZ
from power.wire.hvpm_packets import (
    HEADER_BYTES,
    IMPOSSIBLE,
    MAX_OBSERVATIONS,
    OBSERVATION_BYTES,
    SEQUENCE_MASK,
    UNKNOWN,
    Packets,
    packet_bytes,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

COUNTER_MODULUS: Final = 2**16
A_FALL: Final = COUNTER_MODULUS // 2
"""A count that rises by this much or more in one packet has rather fallen: it would be 6.5 s without data,
and a capture ends long before that (`power.meters.streaming.STALL_S`)."""

NO_COUNT_YET: Final = 0xFFFF
"""What units often report as dropped when they start (ACTS ``sampling/hvpm/transformers.py``)."""

SETTLING_OBSERVATIONS: Final = round(SAMPLE_RATE_HZ)
"""The first second, in which ACTS does not trust the counter. We only disregard what cannot be a count:
`NO_COUNT_YET`, and falls."""

_SEQUENCE_MODULUS: Final = SEQUENCE_MASK + 1


class Continuity:
    """Follows packet numbers and the drop counter from packet to packet.

    Args:
        findings: Takes what is noticed.
    """

    def __init__(self, findings: FindingLog) -> None:
        self._findings = findings
        self._observations = 0
        self._sequence = -1  # this and the next two: of the last packet
        self._dropped = 0
        self._packet_observations = 0

    def expected(self, packets: Packets) -> tuple[Packets, bool]:
        """The packets from the first on that continue what came before, and whether to wait for more bytes.

        A packet of another size than the one before is believed only when the header behind it continues:
        a wrong size would take what lies behind it for observations, even for calibration.
        """
        if not len(packets):
            return packets, packets.following != IMPOSSIBLE
        sequence = np.concatenate(([self._sequence], packets.sequence, [packets.following]))
        jumps = (sequence[1:] - sequence[:-1]) & SEQUENCE_MASK != 1
        jumps[-1] |= packets.following == IMPOSSIBLE
        jumps[-1] &= packets.following != UNKNOWN
        previous = np.concatenate(([self._packet_observations], packets.observations[:-1]))
        resized = packets.observations != previous
        strange = jumps[:-1] | (resized & jumps[1:]) | (self._rises(packets) >= A_FALL)
        if strange.any():
            return packets.first(int(np.argmax(strange))), False
        waits = bool(resized[-1]) and packets.following == UNKNOWN
        return packets.first(len(packets) - waits), waits

    def accept(self, packets: Packets) -> NDArray[np.int64]:
        """Go on behind expected packets; returns the samples that were dropped before each."""
        rises = self._rises(packets)
        self._sequence = int(packets.sequence[-1])
        self._dropped = int(packets.dropped[-1])
        self._packet_observations = int(packets.observations[-1])
        self._observations += int(packets.observations.sum())
        return rises

    def resume(self, packet: Packets, skipped_bytes: int, tick: int) -> int:
        """Make a packet the expected one that does not simply follow the one before.

        Args:
            packet: The packet, confirmed by others.
            skipped_bytes: Bytes before it that were left out.
            tick: Number of the next sample, for findings.

        Returns:
            How many samples are missing before it, as far as packet numbers and bytes tell.
        """
        sequence, dropped = int(packet.sequence[0]), int(packet.dropped[0])
        lost = 0
        if skipped_bytes:
            self._findings.add(
                "corrupt_bytes",
                Severity.ERROR,
                "bytes that cannot be packets were left out; the number of samples in them is estimated",
                index=tick,
                count=skipped_bytes,
            )
        if self._sequence < 0:
            self._dropped = dropped
        else:
            lost = self._missing((sequence - self._sequence - 1) & SEQUENCE_MASK, skipped_bytes, tick)
            if int(self._rises(packet)[0]) >= A_FALL:
                self._findings.add(
                    "drop_counter_fell",
                    Severity.ERROR,
                    "the unit's count of dropped samples fell: losses around there are not known",
                    index=tick,
                )
                self._dropped = dropped
        self._sequence = (sequence - 1) & SEQUENCE_MASK
        return lost

    def _missing(self, packets: int, skipped_bytes: int, tick: int) -> int:
        """Samples in packets that never came: the packets' number modulo 16, and the bytes in their place."""
        if not skipped_bytes:
            if packets:
                self._findings.add(
                    "lost_packets",
                    Severity.WARNING,
                    "packets did not arrive; each is taken to have held as many samples as the one before",
                    index=tick,
                    count=packets,
                )
            return packets * self._packet_observations
        cycles = round(
            (skipped_bytes / packet_bytes(self._packet_observations) - packets) / _SEQUENCE_MODULUS
        )
        packets += _SEQUENCE_MODULUS * max(0, cycles)
        lost, rest = divmod(skipped_bytes - HEADER_BYTES * packets, OBSERVATION_BYTES)
        if rest or not packets <= lost <= MAX_OBSERVATIONS * packets:
            return packets * self._packet_observations  # bytes are missing too, or were added
        return lost

    def _rises(self, packets: Packets) -> NDArray[np.int64]:
        """By how much the drop counter rose before each packet; see `A_FALL`."""
        previous = np.concatenate(([self._dropped], packets.dropped[:-1]))
        rises: NDArray[np.int64] = (packets.dropped - previous) % COUNTER_MODULUS
        if self._observations < SETTLING_OBSERVATIONS:
            settling = self._observations + packets.first_observation < SETTLING_OBSERVATIONS
            no_count = (packets.dropped == NO_COUNT_YET) | (previous == NO_COUNT_YET) | (rises >= A_FALL)
            rises[settling & no_count] = 0
        return rises
