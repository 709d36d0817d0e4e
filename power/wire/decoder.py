"""What every wire decoder looks like to the capture pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from power.model import Finding


@dataclass(frozen=True, slots=True)
class Decoded:
    """Contiguous samples on the instrument's own clock; fields as in `power.model.SampleBlock`."""

    first_index: int
    dropped_before: int | None
    ticks: NDArray[np.int64]
    current_a: NDArray[np.floating[Any]]
    voltage_v: NDArray[np.floating[Any]]


class Decoder(Protocol):
    """Turns an instrument's bytes into samples. Never raises on bad bytes: it resynchronises and says so."""

    def feed(self, data: bytes, arrival_ns: int) -> list[Decoded]:
        """Decode more bytes, the last of which had arrived at host time ``arrival_ns``.

        Bytes of an unfinished frame are kept for the next call. Feeding the same bytes in other
        portions gives the same samples.
        """

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was wrong with the bytes so far, merged by code."""
