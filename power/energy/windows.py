"""Windows of time, what they cost, and what may be wrong with that number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from joulefleet.config import ClosedModel
from power.model import ONE_LOST_PERIODS, Finding, InstrumentInfo, Loss, Severity
from power.recording.channels import CURRENT, POWER, RangeChannels

if TYPE_CHECKING:
    from numpy.typing import NDArray

REMARKED = ("pause", "late_data")
"""Findings that every window repeats which they touch: nothing arrived there for a while."""

LOSS_UNKNOWN = "the instrument cannot tell whether samples were lost"


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of host-monotonic time, nanoseconds. Windows may overlap and come in any order."""

    start_ns: int
    end_ns: int
    label: str = ""

    @property
    def duration_s(self) -> float:
        """Seconds from start to end."""
        return (self.end_ns - self.start_ns) * 1e-9

    def moved(self, by_ns: int) -> Window:
        """The same window, later by ``by_ns``."""
        return Window(self.start_ns + by_ns, self.end_ns + by_ns, self.label)


class GapPolicy(ClosedModel):
    """What to do about lost samples.

    Attributes:
        bridge_up_to_s: Gaps up to this long are bridged by a straight line. On a synthetic epoch that
            costs less than 0.06 % for gaps of 50 ms and 0.3 % for gaps of 0.5 s.
        max_lost_fraction: A window that lost more is invalid; 0.1 % is EnergyRunner's limit.
        max_lost_averages: The same for rows that are averages: software that leaves one out does not choose
            it by the load, and what it may hide is in the interval (ADR-0031).
    """

    bridge_up_to_s: float = Field(default=0.05, ge=0)
    max_lost_fraction: float = Field(default=0.001, ge=0, le=1)
    max_lost_averages: float = Field(default=0.02, ge=0, le=1)

    def longest_bridge_s(self, rate_hz: float) -> float:
        """The longest gap that is bridged at this sample rate; that of a single lost sample always is."""
        return max(self.bridge_up_to_s, ONE_LOST_PERIODS / rate_hz)

    def largest_loss(self, info: InstrumentInfo) -> float:
        """The share that a window may lose."""
        return max(self.max_lost_fraction, self.max_lost_averages if info.hold_ns else 0.0)


DEFAULT_POLICY = GapPolicy()


@dataclass(frozen=True, slots=True)
class WindowEnergy:
    """What one window cost.

    Attributes:
        energy_j: Energy drawn in the window; None where it cannot be known (``problems`` says why).
        charge_c: Charge, likewise.
        n_samples: Samples from the start up to, but not including, the end.
        lost_fraction: Share of the samples known to be lost; a lower bound unless ``loss_known``.
        bridged_s: How much of the window is a straight line across gaps.
        range_energy_j: Energy by measuring range of the instrument.
        range_volt_s: Voltage integrated over time by measuring range: what an offset current multiplies.
        problems: Why the window must not be used; empty if it may.
        notes: What a reader should know although the window is valid.
    """

    label: str
    start_ns: int
    end_ns: int
    energy_j: float | None
    charge_c: float | None
    n_samples: int
    lost_fraction: float
    loss_known: bool
    bridged_s: float
    range_energy_j: tuple[float, ...] = ()
    range_volt_s: tuple[float, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def valid(self) -> bool:
        """Whether the number may be used."""
        return not self.problems

    @property
    def duration_s(self) -> float:
        """Seconds from start to end."""
        return (self.end_ns - self.start_ns) * 1e-9

    @property
    def mean_power_w(self) -> float | None:
        """Energy over duration."""
        return None if self.energy_j is None else self.energy_j / self.duration_s


@dataclass(slots=True)
class WindowSums:
    """Sums for many windows at once, in the order of the windows.

    Attributes:
        integrals: Integral over seconds, one row per channel.
        first_index: Number of the first sample inside; meaningless without samples.
        last_index: The same for the last.
        broken: Whether a gap too long to bridge lies inside.
        unknown: Whether a place where losses are not known lies inside.
        span_ns: Time of the first and the last sample of the recording, if it has any.
    """

    integrals: NDArray[np.float64]
    n_samples: NDArray[np.int64]
    first_index: NDArray[np.int64]
    last_index: NDArray[np.int64]
    bridged_s: NDArray[np.float64]
    lost_s: NDArray[np.float64]
    broken: NDArray[np.bool_]
    unknown: NDArray[np.bool_]
    span_ns: tuple[int, int] | None = None

    @classmethod
    def zero(cls, n_channels: int, n_windows: int) -> WindowSums:
        """Nothing seen yet."""
        return cls(
            integrals=np.zeros((n_channels, n_windows)),
            n_samples=np.zeros(n_windows, np.int64),
            first_index=np.zeros(n_windows, np.int64),
            last_index=np.zeros(n_windows, np.int64),
            bridged_s=np.zeros(n_windows),
            lost_s=np.zeros(n_windows),
            broken=np.zeros(n_windows, np.bool_),
            unknown=np.zeros(n_windows, np.bool_),
        )

    def taken(self, order: NDArray[np.int64]) -> WindowSums:
        """The same with the windows in another order."""
        # All but the first field (one row per channel) and the last (of the whole recording).
        by_window = {f.name: getattr(self, f.name)[order] for f in fields(self)[1:-1]}
        return replace(self, integrals=self.integrals[:, order], **by_window)


def window_energies(
    windows: Sequence[Window],
    sums: WindowSums,
    info: InstrumentInfo,
    policy: GapPolicy,
    findings: tuple[Finding, ...],
) -> tuple[WindowEnergy, ...]:
    """Sums as results, each with its problems."""
    judge = _Judge(sums, policy, policy.longest_bridge_s(info.rate_hz), policy.largest_loss(info), findings)
    range_j, range_vs = RangeChannels.of(info.accuracy).by_range(sums.integrals)
    energy_j, charge_c = sums.integrals[[POWER, CURRENT]].tolist()
    loss_known = (~sums.unknown & (info.loss is Loss.COUNTED)).tolist()
    n_samples, bridged_s = sums.n_samples.tolist(), sums.bridged_s.tolist()
    found = []
    for i, window in enumerate(windows):
        unusable, doubtful = judge.problems(i, window)
        found.append(
            WindowEnergy(
                label=window.label,
                start_ns=window.start_ns,
                end_ns=window.end_ns,
                energy_j=None if unusable else energy_j[i],
                charge_c=None if unusable else charge_c[i],
                n_samples=n_samples[i],
                lost_fraction=judge.lost_fraction(i, window),
                loss_known=loss_known[i],
                bridged_s=bridged_s[i],
                range_energy_j=() if unusable else range_j[i],
                range_volt_s=() if unusable else range_vs[i],
                problems=(*unusable, *doubtful),
                notes=(*(() if loss_known[i] else (LOSS_UNKNOWN,)), *judge.remarks(i, window)),
            )
        )
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Judge:
    """Says what is wrong with a window."""

    sums: WindowSums
    policy: GapPolicy
    longest_bridge_s: float
    largest_loss: float
    findings: Sequence[Finding]

    def lost_fraction(self, i: int, window: Window) -> float:
        """Share of the window's time that lost samples stand for."""
        return float(self.sums.lost_s[i]) / window.duration_s if window.end_ns > window.start_ns else 0.0

    def problems(self, i: int, window: Window) -> tuple[list[str], list[str]]:
        """What makes the energy unknowable, and what makes it unfit for use."""
        unusable = self._outside(window)
        if not unusable and self.sums.broken[i]:
            unusable.append(f"a gap longer than {self.longest_bridge_s:g} s lies inside")
        if not unusable and not self.sums.n_samples[i]:
            unusable.append("no sample lies inside")
        doubtful = []
        lost = self.lost_fraction(i, window)
        if lost > self.largest_loss:
            doubtful.append(f"{lost:.3%} of the samples were lost, {self.largest_loss:.3%} are allowed")
        doubtful += self._said(i, lambda finding: finding.severity is Severity.ERROR)
        return unusable, doubtful

    def remarks(self, i: int, window: Window) -> list[str]:
        """What a reader should know although it spoils nothing."""
        said = self._said(i, lambda finding: finding.code in REMARKED)
        lost = self.lost_fraction(i, window)
        if self.policy.max_lost_fraction < lost <= self.largest_loss:
            said.append(f"{lost:.3%} of the rows are missing: the interval holds what they may hide")
        return said

    def _said(self, i: int, which: Callable[[Finding], bool]) -> list[str]:
        return [f"{f.code}: {f.message}" for f in self.findings if which(f) and self._touches(f, i)]

    def _outside(self, window: Window) -> list[str]:
        if window.end_ns <= window.start_ns:
            return ["the window does not end after it starts"]
        if self.sums.span_ns is None:
            return ["the recording holds no sample"]
        first_ns, last_ns = self.sums.span_ns
        found = []
        if window.start_ns < first_ns:
            found.append(f"starts {(first_ns - window.start_ns) * 1e-9:.6g} s before the first sample")
        if window.end_ns > last_ns:
            found.append(f"ends {(window.end_ns - last_ns) * 1e-9:.6g} s after the last sample")
        return found

    def _touches(self, finding: Finding, i: int) -> bool:
        """Whether a finding concerns the window; one without samples may lie next to it."""
        if not self.sums.n_samples[i]:
            return True
        return finding.touches(int(self.sums.first_index[i]), int(self.sums.last_index[i]))
