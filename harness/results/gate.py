"""A gate for build servers: does a run need more than a profile allows, beyond what its intervals explain?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from harness.profiles.difference import Difference, QuantityChange, Side, compare_profiles, pair_profiles
from joulefleet.errors import ConfigError, DataQualityError
from joulefleet.provenance import Origin
from power import DeviceProfile
from power.profile import SESSIONS_FOR_SPREAD

PLACES = ("probe.gross_j", "epoch.gross_j")
"""What is checked unless somebody asks for something else: the energy of the first and of a later epoch."""


class Outcome(StrEnum):
    """What became of one check."""

    PASSED = "passed"
    FAILED = "failed"
    CANNOT_TELL = "cannot tell"
    NOT_MEASURED = "not measured"


OUTCOMES = {False: Outcome.PASSED, True: Outcome.FAILED, None: Outcome.CANNOT_TELL}


@dataclass(frozen=True, slots=True)
class GateCheck:
    """One quantity of one device and task against its limit.

    Attributes:
        label: Of the profile.
        place: The quantity, such as ``epoch.gross_j``.
        change: Before and after; None where it was not measured.
        reason: For people: why it could not be told, and what would help.
    """

    label: str
    place: str
    outcome: Outcome
    change: QuantityChange | None = None
    reason: str = ""


def check_profiles(
    found: Sequence[DeviceProfile],
    against: Sequence[DeviceProfile],
    max_increase: float,
    *,
    places: Sequence[str] = PLACES,
    between_sessions: float = 0.0,
) -> list[GateCheck]:
    """Hold each profile against the one of the same device and task.

    Args:
        found: Of the run.
        against: What it is held against. One that the run did not measure is "not measured", not passed.
        max_increase: Relative, 0.05 for 5 %.
        places: Quantities, as `DeviceProfile.quantities` names them.
        between_sessions: Stated spread between sessions, relative, where fewer than three were measured.

    Raises:
        ConfigError: No profile has such a quantity, or the work is not the same.
        DataQualityError: No profile of the run has a counterpart.
    """
    pairs, missing, _ = pair_profiles(against, found)
    if not pairs:
        wanted = ", ".join(sorted({profile.label for profile in against}))
        raise DataQualityError(f"the run has no profile of {wanted}", hint="was that device measured?")
    known = {place for profile in against for place in profile.quantities()}
    for place in places:
        if place not in known:
            raise ConfigError(f"no quantity {place!r}", hint=f"known are {', '.join(sorted(known))}")
    checks = []
    for pair in pairs:
        difference = compare_profiles(*pair, between_sessions=between_sessions)
        if difference.other_work:
            raise ConfigError(
                f"{pair[0].label}: not the same work ({'; '.join(difference.other_work)})",
                hint="measure with the plan that the profile was made with",
            )
        checks += [_check(difference, place, max_increase) for place in places]
    gone = "no profile of it in the run: its jobs failed, or were not asked for"
    checks += [
        GateCheck(p.label, place, Outcome.NOT_MEASURED, None, gone) for p in missing for place in places
    ]
    return checks


def _check(difference: Difference, place: str, max_increase: float) -> GateCheck:
    label, change = difference.after.label, difference.change(place)
    if change is None:
        return GateCheck(label, place, Outcome.NOT_MEASURED, None, "one of the profiles does not have it")
    if mixed := _emulated_beside_real(difference):
        return GateCheck(label, place, Outcome.CANNOT_TELL, change, mixed)
    outcome = OUTCOMES[change.exceeds(max_increase)]
    reason = _advice(change, max_increase) if outcome is Outcome.CANNOT_TELL else ""
    return GateCheck(label, place, outcome, change, reason)


def _emulated_beside_real(difference: Difference) -> str:
    """Why an emulated meter's numbers say nothing about a real one's, however narrow; empty otherwise."""
    before, after = (one.origin for one in (difference.before, difference.after))
    if (before is Origin.EMULATED) == (after is Origin.EMULATED):
        return ""
    return f"the profile is {before.value}, the run {after.value}: these are not the same thing"


def _advice(change: QuantityChange, max_increase: float) -> str:
    """Why it cannot be told, and how many repetitions would tell."""
    if change.sides is None:
        side = "profile" if Side.of(change.before) is None else "run"
        return f"the {side} has too few repetitions, or too wide an interval: repeat it more often"
    count = change.repetitions_needed(max_increase)
    what = "sessions" if (change.after.sessions or 1) >= SESSIONS_FOR_SPREAD else "repetitions"
    if count is not None:
        return f"about {count} {what} would tell, if the mean stays (now {_count(change, what)})"
    if change.same_unit:
        return f"no number of {what} would tell: what the limit is held against is not known well enough"
    return (
        f"no number of {what} would tell: measure both with one calibrated instrument, "
        "or the profile with more repetitions"
    )


def _count(change: QuantityChange, what: str) -> int | None:
    return change.after.sessions if what == "sessions" else change.after.n
