"""What a comparison of predicted and measured rounds is made of: stretches of work, errors, their spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from joulefleet.provenance import Origin
from power.profile import EnergyKind

PHASES = ("download", "probe", "train", "upload")
DEVICE, ROUND = "device", "round"
"""Beside the phases: a participant's phases together; R_T and R_E of the round under honest accounting."""

IDLE_BELOW = 0.10
STEAL_ABOVE = 0.02
"""A stretch counts as contended if the host's processors were idle for less, or stolen for more, of it. A
choice, not a measurement: with less than a tenth idle, somebody is likely to have waited for one."""


@dataclass(frozen=True, slots=True)
class ComparedWork:
    """One stretch of work as it was measured and as it is predicted.

    Attributes:
        what: A phase, `DEVICE` or `ROUND`.
        device: Empty for a round.
        load: Background load beside it, 0 to 1; the highest among the participants of a round.
        changed: Whether it was under a load or on a link that was set for this round.
        idle: Share of the host's processor time that was idle; None if it was not read.
        steal: Share that a hypervisor took; likewise.
        contended: Whether the host was too busy, by `IDLE_BELOW` and `STEAL_ABOVE`; likewise.
        measured_cpu_s: Processor time of a device's epochs; None for anything else, and if it did not tell.
        predicted_cpu_s: As its profile has it for as many samples; None if that does not say.
    """

    round: int
    what: str
    device: str
    measured_s: float
    predicted_s: float
    measured_j: float
    predicted_j: float
    load: float
    changed: bool
    idle: float | None
    steal: float | None
    contended: bool | None
    measured_cpu_s: float | None = None
    predicted_cpu_s: float | None = None

    def row(self) -> dict[str, Any]:
        """As plain data, with the errors."""
        errors = {"error_s": self.error_s, "error_j": self.error_j, "error_cpu_s": self.error_cpu_s}
        return {**asdict(self), **errors}

    @property
    def error_s(self) -> float:
        """Predicted against measured, as a share of what was measured."""
        return _relative(self.predicted_s, self.measured_s)

    @property
    def error_j(self) -> float:
        """Likewise."""
        return _relative(self.predicted_j, self.measured_j)

    @property
    def error_cpu_s(self) -> float:
        """Likewise; beside an error of time it tells more work per epoch from less of a processor."""
        return _relative(self.predicted_cpu_s, self.measured_cpu_s)


@dataclass(frozen=True, slots=True)
class Distribution:
    """Relative errors of some stretches of work.

    Attributes:
        n: How many.
        median: Of the absolute errors.
        p95: Their 95th percentile.
        bias: Median of the errors with their sign; positive where too much was predicted.
    """

    n: int
    median: float
    p95: float
    bias: float

    @classmethod
    def of(cls, errors: Sequence[float]) -> Distribution | None:
        """None if there is nothing to tell."""
        known = np.array([error for error in errors if np.isfinite(error)])
        if not len(known):
            return None
        median, p95 = np.quantile(np.abs(known), [0.5, 0.95])
        return cls(len(known), float(median), float(p95), float(np.median(known)))


@dataclass(frozen=True, slots=True)
class PredictionFidelity:
    """How well a run was predicted.

    Attributes:
        origin: Of what was measured.
        predicted_origin: Of the predictions.
        energy: Which energy is compared.
        compared: Every stretch of work.
        left_out: Parts that failed, so there is nothing to compare.
        notes: What a reader of the numbers should know.
    """

    run: Path
    origin: Origin
    predicted_origin: Origin
    energy: EnergyKind
    compared: tuple[ComparedWork, ...]
    left_out: tuple[str, ...]
    notes: tuple[str, ...]

    def select(
        self,
        what: str,
        *,
        device: str | None = None,
        contended: bool | None = None,
        changed: bool | None = None,
    ) -> list[ComparedWork]:
        """Some of the stretches."""
        return [
            one
            for one in self.compared
            if one.what == what
            and device in (None, one.device)
            and contended in (None, one.contended)
            and changed in (None, one.changed)
        ]


def _relative(predicted: float | None, measured: float | None) -> float:
    if predicted is None or measured is None or measured <= 0:
        return float("nan")
    return (predicted - measured) / measured
