"""Bulk packets of a Monsoon on USB: where they begin, how to find them again, and the observations in them.

A packet is ``u16 LE dropped count | u8 flags | u8 n | n observations of 18 bytes``, n from 1 to 3, so a
plain concatenation of packets delimits itself. That concatenation is the ``raw.bin`` of a recording: the
driver cuts each USB read to ``4 + 18 n`` bytes (some stacks pad it to 64), adds nothing, and leaves out reads
that are no whole packet, because what follows would be taken for their rest.

Flags: bits 0-3 count packets, bit 4 over-current or thermal kill, bit 5 output on. There is no checksum;
USB's own CRC guards every packet. What can go wrong is whole packets, or a file that was cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Positions = NDArray[np.int64]
    from power.wire.hvpm_scaling import ChannelScale

HEADER_BYTES: Final = 4
OBSERVATION_BYTES: Final = 18
MAX_OBSERVATIONS: Final = 3

SEQUENCE_MASK: Final = 0x0F
OVER_CURRENT: Final = 0x10
OUTPUT_ON: Final = 0x20

SAMPLE_TYPE_MASK: Final = 0x30
"""Of an observation's last byte, the main gain. API.pdf has the two gain bytes in the wrong order."""
MEASUREMENT: Final = 0x00
ZERO_CALIBRATION: Final = 0x10
INVALID: Final = 0x20
REFERENCE_CALIBRATION: Final = 0x30

UNKNOWN: Final = -1
IMPOSSIBLE: Final = -2

CONFIRMING_PACKETS: Final = 4
"""How many packets in a row make us believe in the first. Each has a valid n (3 in 256), each after the first
the next number (1 in 16): random bytes pass once in 10^11 places."""

_WINDOW_BYTES: Final = 131_072
"""Bytes whose packets are found together: enough to make numpy's overhead vanish, little enough to waste when
the first of them turns out to be damaged."""

_SEARCH_PLACES: Final = 1024
"""Places searched at once after an error: a few packets, the usual cost of one, are much less."""

_RUN: Final = 32
"""Equal packets in a row that are worth cutting as one table."""


def packet_bytes(observations: int) -> int:
    """Size of a packet."""
    return HEADER_BYTES + OBSERVATION_BYTES * observations


def trim_packet(read: bytes) -> bytes:
    """One USB read without the padding behind its packet; ``b""`` if it holds no whole packet."""
    if len(read) < HEADER_BYTES or not 1 <= read[3] <= MAX_OBSERVATIONS:
        return b""
    size = packet_bytes(read[3])
    return read[:size] if len(read) >= size else b""


@dataclass(frozen=True, slots=True)
class Packets:
    """The headers of consecutive packets.

    Attributes:
        start: Position of each packet.
        sequence: Its 4-bit number.
        flags: Its flags.
        dropped: Its count of dropped samples, modulo 2^16.
        observations: How many it holds.
        end: Position behind the last one.
        following: Number of the header there, `UNKNOWN` before it has arrived, or `IMPOSSIBLE`.
    """

    start: Positions
    sequence: NDArray[np.int64]
    flags: Bytes
    dropped: NDArray[np.int64]
    observations: NDArray[np.int64]
    end: int
    following: int

    def __len__(self) -> int:
        return len(self.start)

    @property
    def first_observation(self) -> NDArray[np.int64]:
        """Number of each packet's first observation, counted from the first packet on."""
        return np.cumsum(self.observations) - self.observations

    def first(self, count: int) -> Packets:
        """The first ``count`` of them."""
        if count == len(self):
            return self
        return Packets(
            self.start[:count],
            self.sequence[:count],
            self.flags[:count],
            self.dropped[:count],
            self.observations[:count],
            int(self.start[count]),
            int(self.sequence[count]),
        )


def find_packets(data: Bytes, position: int) -> Packets:
    """The first whole packets from ``position`` on: at least one if there is any, mostly all."""
    starts, end = _equal_packets(data, position)
    if len(starts) < _RUN and len(data) - end >= packet_bytes(1):
        starts, end = _chained_packets(data, position)
    flags = data[starts + 2]
    return Packets(
        start=starts,
        sequence=(flags & SEQUENCE_MASK).astype(np.int64),
        flags=flags,
        dropped=data[starts].astype(np.int64) | data[starts + 1].astype(np.int64) << 8,
        observations=data[starts + 3].astype(np.int64),
        end=end,
        following=_following(data, end),
    )


def _following(data: Bytes, position: int) -> int:
    if len(data) - position < HEADER_BYTES:
        return UNKNOWN
    possible = 1 <= int(data[position + 3]) <= MAX_OBSERVATIONS
    return int(data[position + 2]) & SEQUENCE_MASK if possible else IMPOSSIBLE


def _equal_packets(data: Bytes, position: int) -> tuple[Positions, int]:
    """The packets from ``position`` on that hold as many observations as the first."""
    available = min(len(data) - position, _WINDOW_BYTES)
    if available < HEADER_BYTES or not 1 <= data[position + 3] <= MAX_OBSERVATIONS:
        return np.empty(0, np.int64), position
    size = packet_bytes(int(data[position + 3]))
    counts = data[position + 3 : position + available // size * size : size]
    other = np.flatnonzero(counts != data[position + 3])
    whole = int(other[0]) if len(other) else len(counts)
    return position + size * np.arange(whole, dtype=np.int64), position + size * whole


def _chained_packets(data: Bytes, position: int) -> tuple[Positions, int]:
    """The packets from ``position`` on, each beginning where the one before ends.

    Of all places that may be a header those are kept where another one ends and behind which the next number
    follows; the few that only look like packets are out then, and the rest must form one chain. The last one
    has nothing behind it yet and is found alone. Sizes are even, so places are counted in units of two bytes.
    """
    window = data[position : position + _WINDOW_BYTES]
    places = len(window) // 2
    counts, flags = window[3::2], window[2::2]
    start = np.flatnonzero(counts - np.uint8(1) < MAX_OBSERVATIONS)
    end = start + HEADER_BYTES // 2 + OBSERVATION_BYTES // 2 * counts[start].astype(np.int64)
    start, end = start[end <= places], end[end <= places]
    if not len(start) or start[0] != 0:
        return np.empty(0, np.int64), position
    first_end = int(end[0])
    is_start = np.zeros(places + 1, bool)
    is_start[start] = True
    start, end = start[is_start[end]], end[is_start[end]]
    follows = (flags[end] - flags[start]) & np.uint8(SEQUENCE_MASK) == 1
    start, end = start[follows], end[follows]
    is_end = np.zeros(places + 1, bool)
    is_end[end] = is_end[0] = True
    start, end = start[is_end[start]], end[is_end[start]]
    # Up to the first that does not begin where the one before ends; without any, the first packet alone.
    breaks = np.flatnonzero(np.append(0, end) != np.append(start, -1))
    if not breaks[0]:
        return np.array([position]), position + 2 * first_end
    return position + 2 * start[: breaks[0]], position + 2 * int(end[breaks[0] - 1])


def find_confirmed(data: Bytes, position: int) -> tuple[int, bool]:
    """The first place from ``position`` on where `CONFIRMING_PACKETS` plausible packets follow each other.

    Returns:
        The place, and True; or the first place that needs more bytes to be judged, and False.
    """
    last = len(data) - HEADER_BYTES
    for first in range(position, last + 1, _SEARCH_PLACES):
        counts = data[first + 3 : min(first + _SEARCH_PLACES, last + 1) + 3]
        for place in (np.flatnonzero(counts - np.uint8(1) < MAX_OBSERVATIONS) + first).tolist():
            confirmed = _is_confirmed(data, place)
            if confirmed is not False:
                return place, confirmed is True
    return max(position, last + 1), False


def _is_confirmed(data: Bytes, place: int) -> bool | None:
    """Whether packets follow each other from ``place`` on; None where bytes are missing to tell."""
    sequence = -1
    for _ in range(CONFIRMING_PACKETS):
        if place + HEADER_BYTES > len(data):
            return None
        count, number = int(data[place + 3]), int(data[place + 2]) & SEQUENCE_MASK
        if not 1 <= count <= MAX_OBSERVATIONS:
            return False
        if sequence >= 0 and number != (sequence + 1) & SEQUENCE_MASK:
            return False
        sequence = number
        place += packet_bytes(count)
    return True if place <= len(data) else None


_HEADER_WORDS: Final = HEADER_BYTES // 2
_OBSERVATION_WORDS: Final = OBSERVATION_BYTES // 2

_COLUMNS: Final = {"main": (0, 1, 6, 8), "usb": (2, 3, 7, 8), "aux": (4, 5, 6, 8)}
"""Big-endian words of an observation: coarse, fine, the channel's voltage, and the two gain bytes, the second
of which holds the sample type. The aux voltage takes the place of main's (see `Opcode.VOLTAGE_CHANNEL`)."""


@dataclass(frozen=True, slots=True)
class Observations:
    """All observations of some packets, of one channel.

    Attributes:
        kind: Sample type of each.
        coarse: Current in counts of the coarse range.
        fine: Current in counts of the fine range.
        voltage: Voltage in counts.
    """

    kind: NDArray[np.uint8]
    coarse: NDArray[np.float64]
    fine: NDArray[np.float64]
    voltage: NDArray[np.float64]


def cut_observations(data: NDArray[np.uint8], packets: Packets, scale: ChannelScale) -> Observations:
    """The observations of adjacent packets, in their order."""
    words = data[packets.start[0] : packets.end].view(">u2")
    count = int(packets.observations[0])
    if (packets.observations == count).all():
        table = words.reshape(len(packets), -1)[:, _HEADER_WORDS:].reshape(-1, count, _OBSERVATION_WORDS)
        columns = [table[:, :, i].reshape(-1) for i in _COLUMNS[scale.channel]]
    else:
        places = _places(packets)
        columns = [words[places + i] for i in _COLUMNS[scale.channel]]
    coarse, fine, voltage, gains = columns
    number = ">i2" if scale.signed else ">u2"
    return Observations(
        kind=(gains & np.uint16(SAMPLE_TYPE_MASK)).astype(np.uint8),
        coarse=coarse.view(number).astype(np.float64),
        fine=fine.view(number).astype(np.float64),
        voltage=voltage.astype(np.float64),
    )


def _places(packets: Packets) -> NDArray[np.int64]:
    """Where each observation begins, in words from the first packet on."""
    body = (packets.start - packets.start[0]) // 2 + _HEADER_WORDS
    places = np.repeat(body - _OBSERVATION_WORDS * packets.first_observation, packets.observations)
    places += _OBSERVATION_WORDS * np.arange(len(places))
    return places
