"""Energy with an error bar: one 95 % interval, with the parts it is made of.

The energy is taken to have small independent errors, one per part below. Each part is a standard
uncertainty and the degrees of freedom behind it, which give its own 95 % half width by Student's t; the half
widths are added in squares (the root-sum-square interval of ASME PTC 19.1). Adding standard uncertainties
and one t with Welch and Satterthwaite's degrees of freedom, as the GUM does, would let a well known error
make the interval of a few repeats narrower: it lowers the t more than it adds.

``instrument``
    Gain and offset errors of the instrument, constant over a recording, separate for each range and for
    voltage. Data-sheet limits are taken as 95 % limits of a normal distribution (that is how
    `power.model.RangeAccuracy` defines them), so the standard uncertainty is the limit over 1.96. With a
    calibration they are what it leaves (`power.correction`), correlations included. Being constant they do
    not average out over repeats. In a net energy, an offset that acts on idle and on the
    work alike cancels. The step of the readings counts too: a load that stays between two steps is read
    wrong by the same part of a step in every sample, anywhere up to half of it (a uniform distribution).
    Noise of more than a step would average this out, but nothing shows that there is enough of it, so it
    never does here. Idle lies elsewhere between its steps than the work: the two errors do not cancel.
``clock``
    The place of the windows on the sample clock is known to ``sync_uncertainty_s``, one error for all
    windows of a recording. The energy is recomputed with the windows moved by that much both ways; the root
    mean square change is the standard uncertainty. For work between idle it is |P_in - P_out| times the
    uncertainty.
``extent``
    Time beside a window that may belong to it (`MeasuredWindow.beside_s`): the window may be longer by any
    part of it, a uniform distribution whose far end is taken on both sides. In a net energy, what it draws
    beyond idle. It has a sign, so it stays in between recordings too.
``noise``
    White noise and the sampling of jumps (see `power.energy.measurement`); slow noise of the instrument as
    far as idle intervals show it (see `power.energy.baseline`). Without them, it is left to the offset
    limit. In a net energy it is part of the baseline, because only its difference to idle matters.
``loss``
    Straight lines across gaps, tried out where nothing was lost.
``baseline``
    Only in a net energy: the mean idle power is not exactly known, and it may not have drifted evenly.
``repeats``
    The mean of n repetitions. Windows of one recording are the repetitions if there is only one; with
    several, their means are, because windows of a recording resemble each other. What differs from one
    repetition to the next (noise and loss within a recording, clock and baseline between recordings) is
    already in their scatter and is not counted twice. The clock stays in between recordings too, because a
    misplaced window around isolated work never gains energy: the error has a sign.

With a single window the interval is about that window only. How much another run would differ cannot be
known from one, and the result says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from pydantic import Field

from joulefleet.config import ClosedModel
from joulefleet.errors import DataQualityError
from joulefleet.interval import NORMAL_95, Interval, student_factor
from power.energy.baseline import Baseline
from power.energy.measurement import MeasuredWindow
from power.energy.noise import Variance, total
from power.energy.windows import WindowEnergy
from power.model import Accuracy

METHOD = "95 % half widths of the parts, by Student's t, added in squares"


class UncertaintyPart(ClosedModel):
    """One part of an uncertainty.

    Attributes:
        standard_j: Standard uncertainty, joules.
        dof: Degrees of freedom behind it; None for a limit taken from a statement.
    """

    standard_j: float = Field(ge=0)
    dof: float | None = Field(default=None, gt=0)

    @property
    def half_width_j(self) -> float:
        """Half of the 95 % interval that this part alone would make."""
        return student_factor(self.dof) * self.standard_j


class EnergyBudget(ClosedModel):
    """An energy with its 95 % interval and the parts that make it up: an uncertainty budget.

    Attributes:
        value_j: Best estimate.
        half_width_j: The interval is ``value_j`` plus or minus this.
        parts: What it is made of.
        n: Windows behind the value.
        recordings: Recordings that they come from.
        sd_j: Standard deviation between repetitions; None with fewer than two.
        covers: What the interval is about.
        method: How the parts were combined.
        notes: What a reader should know.
    """

    value_j: float
    half_width_j: float = Field(ge=0)
    parts: dict[str, UncertaintyPart]
    n: int = Field(ge=1)
    recordings: int = Field(ge=1)
    sd_j: float | None = Field(default=None, ge=0)
    covers: Literal["this window", "the mean of repeated windows"]
    method: str = METHOD
    notes: tuple[str, ...] = ()

    @property
    def interval(self) -> Interval:
        """The energy and its interval alone, joules."""
        return Interval.around(self.value_j, self.half_width_j)

    def without(self, part: str) -> Self:
        """The same interval with one part left out: what that part is worth."""
        rest = {name: value for name, value in self.parts.items() if name != part}
        return self.model_copy(update={"parts": rest, "half_width_j": combined_half_width_j(rest)})


@dataclass(frozen=True, slots=True)
class MeasuredRecording:
    """Windows of the same work in one recording, with one clock fit: one repetition.

    Attributes:
        windows: In the order of time.
        accuracy: What the instrument's maker, or a calibration, states.
        baseline: Idle power around the work; needed for a net energy.
        notes: What a reader should know about its readings.
    """

    windows: tuple[MeasuredWindow, ...]
    accuracy: Accuracy
    baseline: Baseline | None = None
    notes: tuple[str, ...] = ()


def gross_energy(recordings: Sequence[MeasuredRecording]) -> EnergyBudget:
    """Energy drawn in a window, or on average in repeated windows, whatever the device used it for.

    Raises:
        DataQualityError: A window is invalid, or there is none.
    """
    return _interval(recordings, net=False)


def net_energy(recordings: Sequence[MeasuredRecording]) -> EnergyBudget:
    """Gross energy minus idle power times duration.

    Raises:
        DataQualityError: A window is invalid, there is none, or a recording has no baseline.
    """
    for recording in recordings:
        if recording.baseline is None:
            raise DataQualityError(
                "net energy needs idle power", hint="record idle before and after the work"
            )
    return _interval(recordings, net=True)


def unit_half_width_j(recordings: Sequence[MeasuredRecording], *, net: bool) -> float:
    """Gain and offset errors alone: what all readings of one unit share, so that ratios do not have it.

    Not its steps: another load lies elsewhere between two of them.
    """
    views = [_View(recording, net=net) for recording in recordings if recording.windows]
    return NORMAL_95 * _instrument_j(views, steps=False)


def combined_half_width_j(parts: Mapping[str, UncertaintyPart]) -> float:
    """Half width of the 95 % interval that several parts make."""
    return math.hypot(*(part.half_width_j for part in parts.values()))


def _interval(recordings: Sequence[MeasuredRecording], *, net: bool) -> EnergyBudget:
    views = [_View(recording, net=net) for recording in recordings if recording.windows]
    n = sum(len(view.windows) for view in views)
    if not n:
        raise DataQualityError("no window to compute an energy from")
    single = views[0] if len(views) == 1 else None
    repetitions = single.values_j if single is not None else np.array([v.values_j.mean() for v in views])
    parts = {
        "instrument": UncertaintyPart(standard_j=_instrument_j(views)),
        "clock": UncertaintyPart(standard_j=float(np.mean([view.clock_j for view in views]))),
    }
    extent_j = float(np.mean([view.extent_j for view in views]))
    if extent_j:
        parts["extent"] = UncertaintyPart(standard_j=extent_j)
    if single is not None:  # between recordings these parts are in the scatter already
        parts |= single.parts_within(net=net)
    sd_j = None
    if len(repetitions) > 1:
        sd_j = float(repetitions.std(ddof=1))
        count = len(repetitions)
        parts["repeats"] = UncertaintyPart(standard_j=sd_j / math.sqrt(count), dof=float(count - 1))
    return EnergyBudget(
        value_j=float(repetitions.mean()),
        half_width_j=combined_half_width_j(parts),
        parts=parts,
        n=n,
        recordings=len(views),
        sd_j=sd_j,
        covers="this window" if n == 1 else "the mean of repeated windows",
        notes=_notes(views, repetitions, n=n, net=net),
    )


def _instrument_j(views: Sequence[_View], *, steps: bool = True) -> float:
    """Standard uncertainty from gain, offset and rounding errors that are the same in all windows.

    Recordings with the same accuracy statement are taken to share one instrument.
    """
    variance = 0.0
    for accuracy in dict.fromkeys(view.accuracy for view in views):  # in order: a set's varies by process
        sensitivity = sum(view.sensitivity for view in views if view.accuracy == accuracy) / len(views)
        factors = error_factors(accuracy)
        if not steps:
            factors = factors[:, : accuracy.scale_factors().shape[1]]
        variance += float(np.sum((sensitivity @ factors / NORMAL_95) ** 2))
    return math.sqrt(variance)


_STEP_LIMIT = NORMAL_95 / math.sqrt(12)
"""Of one step: the standard deviation of a uniform distribution over it, as a 95 % limit of a normal one."""


def error_factors(accuracy: Accuracy) -> np.ndarray:
    """How independent errors (columns) move what `error_sensitivities` lists (rows), 95 % limits.

    An unknown step counts as none.
    """
    scale = accuracy.scale_factors()
    steps = [*(part.step_a or 0.0 for part in accuracy.current), accuracy.voltage_step_v or 0.0]
    rounding = np.diag([_STEP_LIMIT * step for step in (*steps, *steps)])
    none = np.zeros((len(scale), len(rounding)))
    return np.block([[scale, none], [np.zeros((len(rounding), scale.shape[1])), rounding]])


def error_sensitivities(energy: WindowEnergy, *, idle: bool = False) -> np.ndarray:
    """How much the energy changes per unit of each error.

    In order: gain by range, offset by range, gain and offset of voltage; rounding by range and of voltage,
    first while working, then while idle.
    """
    total = [energy.energy_j or 0.0, energy.charge_c or 0.0]
    rounding = [*energy.range_volt_s, energy.charge_c or 0.0]
    nothing = [0.0] * len(rounding)
    by_load = (*nothing, *rounding) if idle else (*rounding, *nothing)
    return np.array([*energy.range_energy_j, *energy.range_volt_s, *total, *by_load])


class _View:
    """A recording as gross or net energies."""

    def __init__(self, recording: MeasuredRecording, *, net: bool) -> None:
        for window in recording.windows:
            if not window.energy.valid:
                raise DataQualityError(
                    f"window {window.energy.label!r}: {'; '.join(window.energy.problems)}",
                    hint="leave it out, or repeat the measurement",
                )
        self.windows = recording.windows
        self.accuracy = recording.accuracy
        self.notes = recording.notes
        self.baseline = recording.baseline
        self.duration_s = float(np.mean([e.energy.duration_s for e in self.windows]))
        sensitivities = np.array([error_sensitivities(e.energy) for e in self.windows])
        values = np.array([e.energy.energy_j or 0.0 for e in self.windows])
        if net and self.baseline is not None:
            idle = [idle_energy(self.baseline, e.energy) for e in self.windows]
            values = values - [power_j for power_j, _ in idle]
            sensitivities = sensitivities - [sensitivity for _, sensitivity in idle]
        beside = [e.beside_j for e in self.windows]
        if net and self.baseline is not None:
            beside = [e.beside_j - self.baseline.power_at(e.energy.end_ns) * e.beside_s for e in self.windows]
        self.extent_j = abs(float(np.mean(beside))) / math.sqrt(3.0)
        self.values_j = values
        self.sensitivity = sensitivities.mean(axis=0)

    @property
    def clock_j(self) -> float:
        """Standard uncertainty of the mean energy from one time error common to all windows."""
        earlier = float(np.mean([e.earlier_j for e in self.windows]))
        later = float(np.mean([e.later_j for e in self.windows]))
        return math.sqrt((earlier**2 + later**2) / 2)

    def parts_within(self, *, net: bool) -> dict[str, UncertaintyPart]:
        """What is known about the recording beyond the scatter of its windows."""
        windows = [e.energy for e in self.windows]
        noise = []
        parts = {}
        if len(self.windows) == 1:
            noise.append(Variance((self.windows[0].noise_j / self.duration_s) ** 2))
            parts["loss"] = UncertaintyPart(standard_j=self.windows[0].loss_j)
        if self.baseline is not None and net:
            parts["baseline"] = self._part(self.baseline.idle_variance(windows))
        elif self.baseline is not None:
            noise.append(self.baseline.slow_noise_of(windows))
        parts["noise"] = self._part(total(noise))
        return parts

    def _part(self, power: Variance) -> UncertaintyPart:
        return UncertaintyPart(standard_j=self.duration_s * math.sqrt(power.w2), dof=power.dof)


def idle_energy(baseline: Baseline, energy: WindowEnergy) -> tuple[float, np.ndarray]:
    """Idle energy over a window and its sensitivity to the instrument's errors."""
    weights = baseline.weights_at((energy.start_ns + energy.end_ns) // 2)
    scales = [
        weight * energy.duration_s / interval.energy.duration_s
        for weight, interval in zip(weights, baseline.intervals, strict=True)
    ]
    parts = [
        (scale * (interval.energy.energy_j or 0.0), scale * error_sensitivities(interval.energy, idle=True))
        for scale, interval in zip(scales, baseline.intervals, strict=True)
    ]
    return math.fsum(energy_j for energy_j, _ in parts), np.sum([s for _, s in parts], axis=0)


def _notes(views: Sequence[_View], repetitions: np.ndarray, *, n: int, net: bool) -> tuple[str, ...]:
    notes = [f"instrument: {source}" for source in dict.fromkeys(view.accuracy.source for view in views)]
    notes += [note for view in views for note in view.notes]
    if not all(view.accuracy.steps_known for view in views):
        notes.append("instrument: the step of its readings is not on record, so it is not in the interval")
    if n == 1:
        notes.append("one window: how much another run would differ is not known")
    if any(view.baseline is None for view in views):
        notes.append("no idle interval: slow noise is left to the instrument's offset limit")
    elif net and any(view.baseline is not None and view.baseline.after is None for view in views):
        notes.append("no idle interval after the work: a drift of idle power cannot be seen")
    if len(views) == 1 and _resemble_neighbours(repetitions):
        notes.append("neighbouring windows resemble each other: repeat in separate recordings")
    notes += [note for view in views for e in view.windows for note in e.energy.notes]
    return tuple(dict.fromkeys(notes))


def _resemble_neighbours(values: np.ndarray) -> bool:
    """Whether the first autocorrelation is above what independent values show in 97.5 % of cases.

    Of fewer than eight values it never is: seven reach 0.71 at most, and 0.74 are needed.
    """
    off = values - values.mean()
    if not off.any():
        return False
    return float(off[1:] @ off[:-1] / (off @ off)) > NORMAL_95 / math.sqrt(len(values))
