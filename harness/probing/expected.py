"""What the paper's formula says about the very rounds that were run, from the devices' profiles.

`harness.probing.predict` answers for rounds that are drawn; here candidates and chosen are those of the
bench, so that what differs from the measurement is the formula and the profiles, not luck. The interval
carries the profiles' errors: where 95 % of the worlds lie in which they are off by as much as they may be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from emulator import Accounting
from harness.evidence.capture import Capture
from harness.probing.formula import Saving, draw_worlds, mean_costs
from harness.probing.predict import WORLDS, CountedRounds, ExpectedCell, count_rounds
from harness.profiles.build import build_profile
from harness.profiles.fit import RoundWork, fitting_profile, reservations
from joulefleet.errors import ConfigError, DataQualityError
from joulefleet.provenance import Origin, weakest
from joulefleet.seeds import generator
from power import DeviceProfile
from power.profile import EnergyKind, PhaseCosts

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class RunRound:
    """Who took part in a round and who went on."""

    candidates: tuple[str, ...]
    chosen: tuple[str, ...]


class Expectation:
    """Profiles that rounds are predicted from.

    Args:
        profiles: One per device, all of the work that the rounds did.
        local_epochs: Of a round.
        energy: Kind of energy.
        seed: Of the profiles' errors that are drawn.

    Attributes:
        origin: What may be claimed of a prediction.
        notes: What the profiles lack.
        profiles: As they were given.
    """

    def __init__(
        self, profiles: Sequence[DeviceProfile], local_epochs: int, energy: EnergyKind, seed: int
    ) -> None:
        self.profiles = tuple(profiles)
        self._place = {profile.device: i for i, profile in enumerate(profiles)}
        self._local_epochs = local_epochs
        self._means, notes = mean_costs(profiles, energy)
        rng = generator(seed, "worlds")
        self._worlds = draw_worlds(profiles, self._means, energy, WORLDS, rng)
        self.origin = weakest([Origin.SCALED, *(profile.origin for profile in profiles)])
        self.notes = tuple(notes)

    def of(self, rounds: Sequence[RunRound]) -> ExpectedCell:
        """The mean over these rounds."""
        draws = CountedRounds(
            self._count(self._means, rounds), [self._count(costs, rounds) for costs in self._worlds]
        )
        savings = {accounting: Saving(*draws.saving(accounting)) for accounting in Accounting}
        return ExpectedCell(*draws.totals(), savings)

    def _count(self, costs: PhaseCosts, rounds: Sequence[RunRound]) -> NDArray[np.float64]:
        found = []
        for run_round in rounds:
            which = np.array([self._place[device] for device in run_round.candidates])
            chosen = np.array([device in run_round.chosen for device in run_round.candidates])
            found.append((costs.taken(which), chosen))
        return count_rounds(found, self._local_epochs)


def own_profiles(vanilla: Sequence[Capture], probing: Sequence[Capture]) -> list[DeviceProfile]:
    """A profile of every device from vanilla rounds; what waiting draws is seen in probing rounds only.

    Raises:
        DataQualityError: A device has no usable vanilla round.
    """
    profiles = []
    for device in sorted({capture.record.device.name for capture in (*vanilla, *probing)}):
        trained = [capture for capture in vanilla if capture.record.device.name == device]
        waited = [capture for capture in probing if capture.record.device.name == device]
        if not trained:
            raise DataQualityError(f"{device} has no finished vanilla round")
        profile = build_profile(trained)
        if waited:
            profile = profile.model_copy(
                update={"wait_power_w": build_profile([*trained, *waited]).wait_power_w}
            )
        profiles.append(profile)
    return profiles


def fitting_profiles(profiles: Sequence[DeviceProfile], captures: Sequence[Capture]) -> list[DeviceProfile]:
    """One profile of each device in the captures, of the same work.

    Raises:
        ConfigError: A device has none, several, or one of other work.
    """
    found: dict[str, DeviceProfile] = {}
    for capture in captures:
        work = RoundWork.of(capture)
        profile = fitting_profile(profiles, work)
        if profile.samples != work.samples:
            raise ConfigError(
                f"the profile of {profile.device} is of {profile.samples} samples, "
                f"the rounds of {work.samples}",
                hint="`joulefleet profile scale` predicts another number of samples",
            )
        found[profile.device] = profile
    return list(found.values())


def reserved(profiles: Sequence[DeviceProfile], captures: Sequence[Capture]) -> list[str]:
    """What a reader should know about the profiles that rounds are predicted from."""
    work = {capture.record.device.name: RoundWork.of(capture) for capture in captures}
    return [note for profile in profiles for note in reservations(profile, work[profile.device])]
