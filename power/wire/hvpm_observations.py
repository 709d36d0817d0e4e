"""Cutting the 18-byte observations of a Monsoon on USB out of their packets, all at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from power.wire.hvpm_packets import HEADER_BYTES, OBSERVATION_BYTES, SAMPLE_TYPE_MASK, Packets

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from power.wire.hvpm_scaling import ChannelScale

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
