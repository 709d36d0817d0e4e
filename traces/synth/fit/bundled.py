"""``python -m traces.synth.fit.bundled OUT``: fit the models that ship with joulefleet on the real sets.

Needs the folder of real sets in ``JOULEFLEET_DATA``. ``default`` has screen, charger, Wi-Fi, battery, apps;
``availability`` has one channel, "may train" as FLASH defines it (idle, charging, on Wi-Fi). They are two
models because they are two populations: FLASH's phones are available a third as often as ExtraSensory's are
on a charger and Wi-Fi, and no single set tells both.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from joulefleet.provenance import Origin
from joulefleet.records import write_record
from traces.model import InteractionTrace
from traces.synth.fit.battery import fit_battery, screen_factor
from traces.synth.fit.literature import SCREEN_SIGMA, SCREEN_SPREAD, app_mix
from traces.synth.fit.periods import Periods, bridged, first_month, periods_of
from traces.synth.fit.process import fit_processes
from traces.synth.fit.recorded_sets import AVAILABILITY, POWER, SCREEN, SCREEN_BATTERY, RealSet
from traces.synth.model import BUNDLED, ModelSource, Process, UsageModel


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
        user_days=_days(periods),
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


def _days(periods: Periods) -> float:
    return round(float(periods.length_h.sum()) / 24, 1)


def main(arguments: Sequence[str]) -> int:
    """Write both models into a folder."""
    if len(arguments) != 1 or not os.environ.get("JOULEFLEET_DATA"):
        sys.stderr.write("usage: JOULEFLEET_DATA=DIR python -m traces.synth.fit.bundled OUT\n")
        return 2
    data = Path(os.environ["JOULEFLEET_DATA"])
    for name, fit in (("default", default_model), ("availability", availability_model)):
        path = Path(arguments[0]) / BUNDLED[name]
        model = fit(data)
        write_record(path, model, replace=True)
        sys.stdout.write(f"{path}: {model.sha256()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
