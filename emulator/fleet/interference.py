"""How apps slow training: by the profile's own load curve, or as published for phones like it.

The published measurements (`power.reference.InterferenceFacts`) are of few phones and apps that differ a lot,
so the model keeps their spread. Each device is one of the measured phones with cores like its own, for good;
each use of an app is one of the measured apps of its class. Time and energy come from the same measurement.
While somebody uses the phone, or always, training is in Android's background group, on two little cores;
phones whose cores are all alike were measured as they are: for them the group is in the measurement.

All of it is a hash of (seed, device, begin of the use): nobody has to draw before anybody else.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from emulator.fleet.hashed import hashed, stream_key

if TYPE_CHECKING:  # a scenario names these models, and needs neither traces nor profiles for that
    from collections.abc import Sequence

    from emulator.fleet.conditions import Ids
    from power.profile import LoadCurves, ProfileCosts
    from power.reference import InterferenceFacts
    from traces.replay import Segments

Array = NDArray[np.float64]
Profiles = NDArray[np.integer]


class InterferenceModel(StrEnum):
    """How apps slow phones of which only published facts are known."""

    LITERATURE = "literature"
    """As measured on other phones."""
    FAIR_SHARE = "fair_share"
    """As a fair scheduler would share the cores: the load curve of the reference profiles."""


class BackgroundGroup(StrEnum):
    """When training is in Android's background group."""

    IN_USE = "in_use"
    """While somebody uses the phone."""
    ALWAYS = "always"
    """Also on an idle phone."""
    NEVER = "never"
    """It keeps the cores it has, as a service in the foreground may."""


class Slowing(Protocol):
    """Factors on time and marginal energy of computing, segment by segment."""

    def worst(self, profile: Profiles) -> Array:
        """The largest slowdown there is."""

    def factors(self, profile: Profiles, devices: Ids, found: Segments) -> tuple[Array, Array]:
        """Slowdown and energy factor of each segment, of which device and profile are given."""


class OwnCurves:
    """Every profile by its own load curve."""

    def __init__(self, curves: LoadCurves) -> None:
        self._curves = curves

    def worst(self, profile: Profiles) -> Array:
        """At any load."""
        return np.asarray(self._curves.slowdown.max(1)[profile])

    def factors(self, profile: Profiles, devices: Ids, found: Segments) -> tuple[Array, Array]:
        """At the recorded load."""
        return self._curves.at(profile, found.cpu)


class Published:
    """As published for profiles that say so; the others by their own load curve.

    Args:
        costs: The profiles.
        facts: The measurements.
        categories: Of the apps of the traces, by number.
        group: When training is in the background group.
        seed: Of the run.
    """

    def __init__(
        self,
        costs: ProfileCosts,
        facts: InterferenceFacts,
        categories: Sequence[str],
        group: BackgroundGroup,
        seed: int,
    ) -> None:
        self._own = OwnCurves(costs.curves)
        self._cores = costs.spreads.cores
        self._facts = facts
        self._group = group
        self._phone_key = stream_key(seed, "interference", "phone")
        self._app_key = stream_key(seed, "interference", "app")
        names = list(facts.classes)
        known = [names.index(facts.categories.get(name, facts.otherwise)) for name in categories]
        # Behind them -2 and -1: an app that is not known, and none although something runs.
        self._class_of_app = np.array([*known, *[names.index(facts.otherwise)] * 2], np.int64)

    @cached_property
    def _tables(self) -> tuple[Array, Array]:
        """Slowdown and energy factor by kind of cores, phone, class and app; repeated to fill the table."""
        from power.profile import CORES

        facts = self._facts
        phones = [[p for p in facts.phones if p.cores == cores and p.idle_w] for cores in CORES]
        width = np.lcm.reduce([len(some) for some in phones])
        depth = np.lcm.reduce([len(apps) for apps in facts.classes.values()])
        cells = [
            [
                [[some[i % len(some)].factors(apps[j % len(apps)]) for j in range(depth)] for apps in classes]
                for i in range(width)
            ]
            for some in phones
            for classes in [list(facts.classes.values())]
        ]
        table = np.array(cells, np.float64)
        return table[..., 0], table[..., 1]

    @cached_property
    def _background(self) -> tuple[Array, Array]:
        """Of the background group, by kind of cores."""
        from power.profile import CORES

        choice = self._facts.background
        big = np.array([cores == "big_little" for cores in CORES])
        return np.where(big, choice.slowdown, 1.0), np.where(big, choice.energy_factor, 1.0)

    def worst(self, profile: Profiles) -> Array:
        """Beside any app."""
        beside = self._tables[0].max(axis=(1, 2, 3))
        most = np.maximum(beside, 1.0) * (
            1.0 if self._group is BackgroundGroup.NEVER else self._background[0]
        )
        cores = self._cores[profile]
        return np.where(cores >= 0, most[cores], self._own.worst(profile))

    def factors(self, profile: Profiles, devices: Ids, found: Segments) -> tuple[Array, Array]:
        """Of the phone and the app that were drawn."""
        slowdown, factor = self._own.factors(profile, devices, found)
        cores = self._cores[profile]
        published = cores >= 0
        slowdown, factor = np.where(published, 1.0, slowdown), np.where(published, 1.0, factor)
        grouped = published if self._group is BackgroundGroup.ALWAYS else np.zeros(len(cores), bool)
        if found.app is not None and found.use_ns is not None:
            busy = np.flatnonzero(published & in_use(found))
            if self._group is BackgroundGroup.IN_USE:
                grouped[busy] = True
            who, kind = devices[busy], self._class_of_app[found.app[busy]]
            slow, costly = self._tables
            phone = (hashed(self._phone_key, who) % np.uint64(slow.shape[1])).astype(np.int64)
            app = hashed(self._app_key, who, found.use_ns[busy]) % np.uint64(slow.shape[3])
            cell = (cores[busy], phone, kind, app.astype(np.int64))
            slowdown[busy], factor[busy] = slow[cell], costly[cell]
        slowed, cost = self._background
        return (
            np.where(grouped, slowdown * slowed[cores], slowdown),
            np.where(grouped, factor * cost[cores], factor),
        )


def in_use(found: Segments) -> NDArray[np.bool_]:
    """Which segments somebody uses the phone in; what is not known counts as no."""
    return np.asarray((found.cpu > 0) if found.app is None else (found.cpu > 0) | (found.app >= 0))
