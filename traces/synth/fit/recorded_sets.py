"""The real sets that the shipped models are fitted on, and what each can tell.

They lie in the folder that ``JOULEFLEET_DATA`` names and are not part of joulefleet. Not used: the small
AWARE files of several users (their events come every 3,000 s: made for tests of a library), the StudentLife
tasks (three users, no screen) and the iPhone's display log (brightness, under two days).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from traces.model import InteractionTrace
from traces.readers import READERS
from traces.readers.base import ImportReport, ReaderOptions
from traces.synth.model import Channel


@dataclass(frozen=True, slots=True)
class RealSet:
    """One file.

    Attributes:
        name: For people.
        format: Of the reader.
        path: Below ``JOULEFLEET_DATA``.
        time_zone: Of the users.
        settings: For the reader.
        licence: Terms.
        channels: What it tells; the second one is fitted given the first.
        grid_h: If it was read at fixed times, how far apart.
        bridge_h: Longest gap that the fit bridges.
    """

    name: str
    format: str
    path: str
    time_zone: str
    licence: str
    channels: tuple[Channel, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    grid_h: float | None = None
    bridge_h: float = 0.0

    def read(self, data: Path) -> list[InteractionTrace]:
        """All traces of the set."""
        options = ReaderOptions(time_zone=self.time_zone, settings=self.settings)
        return list(READERS.load(self.format)(data / self.path, options, ImportReport()))


SCREEN = RealSet(
    "AWARE one-month sample of niimpy 1.3.0 (screen)",
    "aware",
    "traces/niimpy_AwareScreen_1month.csv.gz",
    "Europe/Helsinki",  # niimpy's documentation loads its samples with tz="Europe/Helsinki"
    "MIT",
    ("screen",),
)
SCREEN_BATTERY = RealSet(
    "AWARE one-month sample of niimpy 1.3.0 (battery)",
    "aware",
    "traces/niimpy_AwareBattery_1month.csv.gz",
    "Europe/Helsinki",
    "MIT",
    ("plugged",),
)
POWER = RealSet(
    "ExtraSensory (Vaizman et al., IEEE Pervasive Computing, 2017)",
    "extrasensory",
    "traces/extrasensory_phone_state.csv.gz",
    "America/Los_Angeles",  # the study was made in San Diego
    "research use, citation required",
    ("plugged", "wifi"),
    # Pauses of the recorder up to a quarter of an hour are no gaps.
    settings={"hold_s": "900"},
    # With gaps left out, the fitted changes are too few to reach the recorded share of charging at night;
    # beyond three hours, bridging hides nights on the charger that began and ended in the gap.
    bridge_h=3.0,
)
AVAILABILITY = RealSet(
    "FLASH (Yang et al., WWW 2021)",
    "availability",
    "traces/flash_availability_241x723.npz",
    "UTC",  # its stamps are local clock time without a zone, so hours are taken as they stand
    "BSD-2-Clause",
    ("available",),
    grid_h=0.5,
)
