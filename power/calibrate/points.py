"""Loads of which something is known, and what the meter read of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pydantic import Field, model_validator

from joulefleet.config import ClosedModel
from joulefleet.errors import DataQualityError, MeterError
from power.model import Severity
from power.recording.reader import Recording

if TYPE_CHECKING:
    from numpy.typing import NDArray

K = 2.0
"""Coverage factor of what is stated and of what is taken: about 95 %."""

PARTS = 32
"""A point's readings are averaged in so many parts; their scatter tells how well the mean is known."""

DEAD_V = 0.5


class ReferencePoint(ClosedModel):
    """What is known about one load.

    Attributes:
        ohms: A resistor of known value.
        tolerance: Relative limit of its error.
        amperes: Or: what a reference meter reads in series.
        amperes_uncertainty: Its expanded uncertainty (k = 2), amperes.
        volts: What a reference meter reads at the output.
        volts_uncertainty: Its expanded uncertainty (k = 2), volts.
        recording: Folder of the recording of this load; empty if it is to be recorded.
    """

    ohms: float | None = Field(default=None, gt=0, le=1e7)
    tolerance: float | None = Field(default=None, gt=0, le=0.2)
    amperes: float | None = Field(default=None, gt=0, le=100)
    amperes_uncertainty: float | None = Field(default=None, gt=0)
    volts: float | None = Field(default=None, gt=0, le=60)
    volts_uncertainty: float | None = Field(default=None, gt=0)
    recording: str = ""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        pairs = {"ohms": "tolerance", "amperes": "amperes_uncertainty", "volts": "volts_uncertainty"}
        for name, error in pairs.items():
            if (getattr(self, name) is None) != (getattr(self, error) is None):
                raise ValueError(f"{name} and {error} belong together")
        if self.ohms is not None and self.amperes is not None:
            raise ValueError("either ohms or amperes, not both")
        if self.ohms is None and self.amperes is None and self.volts is None:
            raise ValueError("no reference: give ohms, amperes or volts")
        return self


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """A load, and what the meter read: mean and standard uncertainty of the mean (Type A)."""

    reference: ReferencePoint
    current_a: float
    current_u_a: float
    voltage_v: float
    voltage_u_v: float
    n_samples: int


def measure_point(reference: ReferencePoint, recording: Recording) -> MeasuredPoint:
    """Average a recording of a steady load, as the instrument said it.

    Raises:
        MeterError: The output is off, or nothing like the stated load is connected.
        DataQualityError: The recording is too short, or has an error.
    """
    stored = recording.as_stored()
    errors = [f.message for f in recording.record.findings if f.severity is Severity.ERROR]
    if errors or recording.record.n_samples < 2 * PARTS:
        why = (
            errors[0] if errors else f"{recording.record.n_samples} samples, at least {2 * PARTS} are needed"
        )
        raise DataQualityError(f"{recording.folder}: {why}", hint="record the load again, for some seconds")
    blocks = list(stored.blocks())
    current_a, current_u_a = _mean(np.concatenate([b.current_a for b in blocks]))
    voltage_v, voltage_u_v = _mean(np.concatenate([b.voltage_v for b in blocks]))
    if voltage_v < DEAD_V:
        raise MeterError(
            f"{recording.folder}: the output is off ({voltage_v:.3f} V)",
            hint="nothing switches it on here: do so with `joulefleet meter output --set VOLTS --yes`",
        )
    expected_a = reference.amperes or (voltage_v / reference.ohms if reference.ohms else current_a)
    if not 0.5 <= current_a / expected_a <= 2:
        raise MeterError(
            f"{recording.folder}: {current_a:.4g} A at {voltage_v:.3f} V, but {expected_a:.4g} A should flow",
            hint="check what was stated (ohms, amperes), which load was connected, and the wiring",
        )
    return MeasuredPoint(
        reference, current_a, current_u_a, voltage_v, voltage_u_v, recording.record.n_samples
    )


def _mean(values: NDArray[np.floating[Any]]) -> tuple[float, float]:
    """Mean, and its standard uncertainty by the scatter of means of parts, which slow noise widens too."""
    parts = np.array([part.mean() for part in np.array_split(values.astype(np.float64), PARTS)])
    return float(parts.mean()), float(parts.std(ddof=1)) / math.sqrt(PARTS)
