"""``python -m traces.synth.fit.bundled OUT``: fit the models that ship with joulefleet on the real sets.

Needs the folder of real sets in ``JOULEFLEET_DATA``. ``default`` has screen, charger, Wi-Fi, battery, apps;
``availability`` has one channel, "may train" as FLASH defines it (idle, charging, on Wi-Fi). They are two
models because they are two populations: FLASH's phones are available a third as often as ExtraSensory's are
on a charger and Wi-Fi, and no single set tells both.

The sets are not part of joulefleet. Not used: the small AWARE files of several users (their events come every
3,000 s: made for tests of a library), the StudentLife tasks (three users, no screen) and the iPhone's display
log (brightness, under two days).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from joulefleet.provenance import Origin
from joulefleet.records import StoredRecord, write_record
from traces.model import InteractionTrace
from traces.readers import READERS
from traces.readers.base import ImportReport, ReaderOptions
from traces.synth.fit.battery import fit_battery, screen_factor
from traces.synth.fit.network import fit_networks
from traces.synth.fit.periods import bridged, first_month, periods_of
from traces.synth.fit.process import fit_processes
from traces.synth.fit.trace_set import SCREEN_SIGMA, SCREEN_SPREAD, app_mix
from traces.synth.model import (
    BUNDLED,
    NETWORK_MODEL,
    Channel,
    ModelSource,
    NetworkModel,
    Process,
    UsageModel,
)


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


def fit_real(
    chosen: RealSet, traces: Sequence[InteractionTrace], assumption: str = ""
) -> tuple[list[Process], ModelSource]:
    """The processes of one real set."""
    periods = first_month(periods_of(traces, chosen.channels))
    evidence = ModelSource(
        origin=Origin.IMPORTED,
        source=chosen.name,
        licence=chosen.licence,
        users=periods.units,
        user_days=periods.days,
        assumption=assumption,
    )
    return fit_processes(
        bridged(periods, chosen.bridge_h), chosen.channels, evidence, chosen.grid_h
    ), evidence


def default_model(data: Path) -> UsageModel:
    """Screen: AWARE; charger, Wi-Fi and battery: ExtraSensory; spread of screen use and apps: Falaki."""
    screen_traces, power_traces = SCREEN.read(data), POWER.read(data)
    (screen,), screen_evidence = fit_real(SCREEN, screen_traces)
    screen = screen.model_copy(update={"state_sigma": SCREEN_SIGMA, "spread_evidence": SCREEN_SPREAD})
    power, evidence = fit_real(
        POWER, power_traces, "pauses of the recorder up to 3 h bridged, the state changing half-way"
    )
    battery = fit_battery(power_traces, evidence)
    if battery is not None:
        factor = screen_factor(screen_traces[0], SCREEN_BATTERY.read(data)[0])
        burdened = "the recorder of the study kept the sensors on, so levels fall faster than in daily use"
        battery = battery.model_copy(
            update={
                "screen_factor": round(factor, 2),
                "screen_evidence": screen_evidence,
                "evidence": battery.evidence.model_copy(update={"assumption": burdened}),
            }
        )
    processes = (screen, *power)
    return UsageModel(name="default", processes=processes, battery=battery, apps=app_mix())


def availability_model(data: Path) -> UsageModel:
    """Availability of FLASH's phones."""
    assumption = "its half-hour stamps, which have no time zone, are local time"
    processes, _ = fit_real(AVAILABILITY, AVAILABILITY.read(data), assumption)
    return UsageModel(name="availability", processes=tuple(processes))


NETWORKS = RealSet(
    "HSDPA and FCC traces of Pensieve (Mao et al., SIGCOMM 2017)",
    "throughput",
    "network/pensieve_hsdpa_fcc_mbps.csv.gz",
    "",
    "BSD-2-Clause (repository)",
    (),
)


def network_model(data: Path) -> NetworkModel:
    """Throughput of fixed lines (FCC) and of 3G (HSDPA)."""
    source = ModelSource(origin=Origin.IMPORTED, source=NETWORKS.name, licence=NETWORKS.licence)
    return fit_networks(NETWORKS.read(data), source)


def main(arguments: Sequence[str]) -> int:
    """Write the models into a folder."""
    if len(arguments) != 1 or not os.environ.get("JOULEFLEET_DATA"):
        sys.stderr.write("usage: JOULEFLEET_DATA=DIR python -m traces.synth.fit.bundled OUT\n")
        return 2
    data = Path(os.environ["JOULEFLEET_DATA"])
    fits: dict[str, Callable[[Path], StoredRecord]] = {
        BUNDLED["default"]: default_model,
        BUNDLED["availability"]: availability_model,
        NETWORK_MODEL: network_model,
    }
    for name, fit in fits.items():
        path = Path(arguments[0]) / name
        model = fit(data)
        write_record(path, model, replace=True)
        sys.stdout.write(f"{path}: {model.sha256()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
