"""Two profiles of the same work side by side: what changed, by how much, and whether that can be told.

The interval of a ratio is made on the logarithmic scale from the intervals of both sides, added in squares
(MOVER, Zou and Donner 2008). What one unit of an instrument reads wrong it reads wrong on both sides, so
with the same unit, firmware and calibration its gain and offset count with their difference only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from joulefleet.interval import NORMAL_95, Interval, Scale, student_factor
from joulefleet.rounding import signed
from power import DeviceProfile
from power.profile import SESSIONS_FOR_SPREAD, Quantity

MOST_REPETITIONS = 10_000
"""Beyond this, more repetitions are no advice."""

WORK = ("samples", "batch_size", "threads", "local_epochs", "synthetic_data", "warmup_epochs")
"""Fields of a profile that say what was done. Where they differ, costs do too."""


@dataclass(frozen=True, slots=True)
class Side:
    """One quantity on one side, relative to its mean: the half widths that make up its interval.

    Attributes:
        unit: Gain and offset of the instrument.
        repeated: What more repetitions, or sessions from the third on, make smaller.
        fixed: The rest.
    """

    quantity: Quantity
    unit: float
    repeated: float
    fixed: float

    @classmethod
    def of(cls, quantity: Quantity, between_sessions: float = 0.0) -> Side | None:
        """None where no interval of repetitions is known, or it reaches down to zero: then so may a ratio."""
        mean, half = quantity.mean, quantity.half_width_95
        if mean <= (half or 0.0):
            return None
        if quantity.factor_95 is not None:
            return cls(quantity, 0.0, 0.0, math.log(quantity.factor_95))
        if half is None or (quantity.sd is None and quantity.session_sd_from != "measured"):
            return None  # an interval of one window: how much another would differ is not in it
        unit = min(quantity.instrument_half_width_95 or 0.0, half)
        repeated = min(_repeated(quantity, *_repetitions(quantity)), math.sqrt(half**2 - unit**2))
        fixed = math.sqrt(max(0.0, half**2 - unit**2 - repeated**2)) / mean
        if quantity.session_sd is None:
            fixed = math.hypot(fixed, NORMAL_95 * between_sessions / math.sqrt(quantity.sessions or 1))
        return cls(quantity, unit / mean, repeated / mean, fixed)

    def with_repetitions(self, count: int) -> float:
        """Relative half width of the scatter after so many repetitions, or sessions from the third on."""
        sessions = self.quantity.sessions or 1
        dof = count - 1 if sessions >= SESSIONS_FOR_SPREAD else count - sessions
        return _repeated(self.quantity, count, dof) / self.quantity.mean


def _repetitions(quantity: Quantity) -> tuple[int, int]:
    """What is repeated, how often, and its degrees of freedom: sessions from the third on."""
    sessions = quantity.sessions or 1
    if sessions >= SESSIONS_FOR_SPREAD:
        return sessions, sessions - 1
    return quantity.n, quantity.n - sessions


def _repeated(quantity: Quantity, count: int, dof: int) -> float:
    """Half of Student's interval of the mean of so many repetitions or sessions."""
    if dof < 1:
        return 0.0
    variance = (quantity.sd or 0.0) ** 2
    sessions = quantity.sessions or 1
    if sessions >= SESSIONS_FOR_SPREAD:
        variance = (quantity.session_sd or 0.0) ** 2 + variance * sessions / max(1, quantity.n)
    return student_factor(dof) * math.sqrt(variance / count)


def _percent(ratio: float) -> str:
    return signed(round((ratio - 1) * 100, 6) + 0.0)  # what is left of rounding is no change


@dataclass(frozen=True, slots=True)
class QuantityChange:
    """One quantity before and after.

    Attributes:
        place: Such as ``epoch.gross_j``.
        same_unit: Whether one instrument, with the same firmware and calibration, measured both.
        between_sessions: Stated spread between sessions, relative, where too few were measured.
    """

    place: str
    before: Quantity
    after: Quantity
    same_unit: bool = False
    between_sessions: float = 0.0

    @property
    def sides(self) -> tuple[Side, Side] | None:
        """Both with their half widths; None where a ratio has no interval."""
        before, after = (Side.of(q, self.between_sessions) for q in (self.before, self.after))
        return None if before is None or after is None else (before, after)

    def percent_text(self) -> str:
        """``+20 % [+17, +23]``; without brackets where the interval is not known."""
        if math.isnan(self.ratio.mean):
            return "-"
        mean = f"{_percent(self.ratio.mean)} %"
        return f"{mean} {self.interval_text()}" if self.ratio.known else mean

    def interval_text(self) -> str:
        """``[+17, +23]``, in percent."""
        return f"[{_percent(self.ratio.low)}, {_percent(self.ratio.high)}]"

    @property
    def ratio(self) -> Interval:
        """After over before; NaN where a mean is not positive, as a net energy may be."""
        if self.before.mean <= 0 or self.after.mean <= 0:
            return Interval(math.nan)
        mean = self.after.mean / self.before.mean
        sides = self.sides
        if sides is None:
            return Interval(mean)
        return Interval.around(mean, mean * _width(*sides, same_unit=self.same_unit), Scale.LOG)

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out that nothing changed."""
        return self.ratio.known and not self.ratio.low <= 1 <= self.ratio.high

    @property
    def sessions_unknown(self) -> bool:
        """Whether the spread between sessions is missing in the interval."""
        return not self.between_sessions and any(q.session_sd is None for q in (self.before, self.after))

    def exceeds(self, max_increase: float) -> bool | None:
        """Whether the increase is surely beyond the limit, or surely not; None if that cannot be told."""
        ratio, limit = self.ratio, 1 + max_increase
        if ratio.known and ratio.low > limit:
            return True
        return False if ratio.known and ratio.high <= limit else None

    def repetitions_needed(self, max_increase: float) -> int | None:
        """How many repetitions of the later run (sessions, from the third on) would tell, if means stay.

        Returns:
            None if no number would, or if the scatter is not known.
        """
        sides = self.sides
        if sides is None or (not self.after.sd and not self.after.session_sd):
            return None
        before, after = sides
        margin = abs(math.log(self.ratio.mean / (1 + max_increase)))
        rest = _width(before, replace(after, repeated=0.0), same_unit=self.same_unit)
        if rest >= margin:
            return None
        room = math.sqrt(margin**2 - rest**2)
        first = _repetitions(self.after)[0] + 1
        counts = range(first, MOST_REPETITIONS + 1)
        return next((count for count in counts if after.with_repetitions(count) <= room), None)


def _width(before: Side, after: Side, *, same_unit: bool) -> float:
    """Half width of the logarithm of the ratio."""
    unit = abs(after.unit - before.unit) if same_unit else math.hypot(after.unit, before.unit)
    return math.hypot(unit, before.repeated, before.fixed, after.repeated, after.fixed)


@dataclass(frozen=True, slots=True)
class Difference:
    """Two profiles of one device and one task.

    Attributes:
        before: The earlier profile.
        after: The later one.
        changes: Quantities that both have, in the order of the profile.
        other_work: What was not done alike: then costs differ for that reason.
        other_conditions: What else differs: instrument, calibration, temperature.
    """

    before: DeviceProfile
    after: DeviceProfile
    changes: tuple[QuantityChange, ...]
    other_work: tuple[str, ...] = ()
    other_conditions: tuple[str, ...] = ()

    def change(self, place: str) -> QuantityChange | None:
        """The change of one quantity; None where a side does not have it."""
        return next((change for change in self.changes if change.place == place), None)


def compare_profiles(
    before: DeviceProfile, after: DeviceProfile, *, between_sessions: float = 0.0
) -> Difference:
    """What changed from one profile to another of the same device and task."""
    same_unit = _same_unit(before, after)
    earlier = before.quantities()
    changes = tuple(
        QuantityChange(place, earlier[place], quantity, same_unit, between_sessions)
        for place, quantity in after.quantities().items()
        if place in earlier
    )
    work = tuple(_differing({name: (getattr(before, name), getattr(after, name)) for name in WORK}))
    return Difference(before, after, changes, work, tuple(_differing(_conditions(before, after))))


def pair_profiles(
    before: Iterable[DeviceProfile], after: Iterable[DeviceProfile]
) -> tuple[list[tuple[DeviceProfile, DeviceProfile]], list[DeviceProfile], list[DeviceProfile]]:
    """Profiles with the same label, then those that only one side has. Of several with one label the last."""
    earlier = {profile.label: profile for profile in before}
    later = {profile.label: profile for profile in after}
    both = [(earlier[label], later[label]) for label in later if label in earlier]
    return (
        both,
        [profile for label, profile in earlier.items() if label not in later],
        [profile for label, profile in later.items() if label not in earlier],
    )


def _same_unit(before: DeviceProfile, after: DeviceProfile) -> bool:
    one, two = before.provenance, after.provenance
    known = one.instrument is not None and one.instrument.serial != ""
    return known and one.instrument == two.instrument and one.calibration_sha256 == two.calibration_sha256


def _conditions(before: DeviceProfile, after: DeviceProfile) -> dict[str, Sequence[object]]:
    sides = (before, after)
    found: dict[str, Sequence[object]] = {
        "instrument": [_instrument(profile) for profile in sides],
        "calibration": [_short(profile.provenance.calibration_sha256) for profile in sides],
        "origin": [profile.origin.value for profile in sides],
        "sessions": [profile.sessions for profile in sides],
        "throttled epochs": [p.thermal.epochs_throttled if p.thermal else None for p in sides],
        "highest temperature (°C)": [p.thermal.temperature_max_c if p.thermal else None for p in sides],
    }
    return found


def _instrument(profile: DeviceProfile) -> str:
    found = profile.provenance.instrument
    if found is None:
        return "unknown"
    return " ".join(part for part in (found.kind, found.serial, found.firmware) if part)


def _short(digest: str | None) -> str:
    return "none" if digest is None else digest[:12]


def _differing(sides: dict[str, Sequence[object]]) -> Iterable[str]:
    for name, (one, two) in sides.items():
        if one != two:
            yield f"{name.replace('_', ' ')}: {_said(one)}, now {_said(two)}"


def _said(value: object) -> str:
    return "not known" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
