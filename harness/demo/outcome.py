"""What the demo found: as plain data, as lines for a terminal, and what to do next."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from emulator import Accounting
from emulator.experiments import PAPER_SAVING, ExperimentResults, MethodRow, summarise
from emulator.experiments import as_data as experiment_data
from emulator.experiments.vanilla import AgainstVanilla
from harness.probing.predict import Prediction
from harness.profiles.library import Stored
from harness.report.page import REPORT_FILE, Number
from joulefleet.provenance import Origin
from power import DeviceProfile
from power.profile import Quantity

LOOK = (
    ("the power of every job", "joulefleet bench show {bench}"),
    ("the methods, paired by seed", "joulefleet compare {replay}"),
    ("probing from these profiles", "joulefleet probing validate {bench} --backend torch"),
)
NEXT = (
    ("what this machine lacks", "joulefleet doctor"),
    ("find the instrument", "joulefleet meter scan"),
    ("write devices.toml by answering questions", "joulefleet bench init"),
    (
        "pin the device's key, try device and meter",
        "joulefleet bench trust NAME && joulefleet bench ping NAME",
    ),
    (
        "the demo's plan on your devices; --dry-run says what it takes",
        "joulefleet bench run {run}/config/plan.toml --inventory devices.toml",
    ),
    ("profiles that say measured", "joulefleet profile build RUN"),
    (
        "a scenario with them in fleet.profiles",
        "joulefleet emulate SCENARIO.toml --selector fedavg,oort,fedrank",
    ),
)


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What the demo found, and where it is.

    Attributes:
        run: Folder of the demo: its page, plan and inventory.
        bench: Folder of act 1's bench run.
        replay: Folder of act 2's experiment.
        profiles: Built in act 1.
        results: Of act 2.
        predicted: Act 3, by the formula.
        replayed: Act 3, in the emulated rounds.
        took_s: Seconds by act, on the wall.
    """

    run: Path
    bench: Path
    replay: Path
    profiles: tuple[Stored, ...]
    results: ExperimentResults
    predicted: Prediction
    replayed: AgainstVanilla
    took_s: dict[str, float]

    @property
    def report(self) -> Path:
        """The page."""
        return self.run / REPORT_FILE


def commands(result: DemoResult, which: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """`LOOK` or `NEXT` with the folders of this demo in them."""
    places = {"run": result.run, "bench": result.bench, "replay": result.replay}
    return [(what, command.format(**places)) for what, command in which]


def activation() -> str:
    """The command after which this terminal knows `joulefleet`; empty if it does already."""
    script = Path(sys.prefix) / "bin" / "activate"
    if shutil.which("joulefleet") or not script.exists():
        return ""
    here = Path.cwd()
    return f". {script.relative_to(here) if script.is_relative_to(here) else script}"


def method_rows(result: DemoResult) -> tuple[MethodRow, ...]:
    """Act 2's table."""
    (summary,) = summarise(result.results)
    return summary.rows


def as_dict(result: DemoResult) -> dict[str, Any]:
    """Plain data for ``--json``; every number sits beside its origin."""
    return {
        "run": str(result.run),
        "report": str(result.report),
        "took_s": result.took_s,
        "bench": {
            "run": str(result.bench),
            "profiles": [_profile(stored.profile) for stored in result.profiles],
        },
        "replay": {
            "run": str(result.replay),
            "origin": Origin.EMULATED.value,
            "warnings": list(result.results.warnings),
            "numbers": experiment_data(result.results),
        },
        "probing": _probing(result),
        "next": [command for _, command in commands(result, NEXT)],
    }


def _profile(profile: DeviceProfile) -> dict[str, Any]:
    return {
        "label": profile.label,
        "origin": profile.origin.value,
        "epoch_duration_s": profile.epoch.duration_s.model_dump(),
        "epoch_gross_j": profile.epoch.gross_j.model_dump(),
    }


def _probing(result: DemoResult) -> dict[str, Any]:
    replayed = result.replayed
    return {
        "predicted": {
            "origin": result.predicted.origin.value,
            **{
                accounting.value: {
                    "time_saved": saving.time_saved.mean,
                    "energy_saved": saving.energy_saved.mean,
                }
                for accounting, saving in result.predicted.cells[0].savings.items()
            },
        },
        "emulated_rounds": {
            "origin": replayed.origin.value,
            "rounds": replayed.rounds,
            "left_out": replayed.left_out,
            **{
                accounting.value: {"time_saved": share.time.mean, "energy_saved": share.energy.mean}
                for accounting, share in replayed.savings.items()
            },
        },
        "paper": {"origin": Origin.LITERATURE.value, **asdict(PAPER_SAVING)},
    }


def lines(result: DemoResult) -> list[str]:
    """The same for people: three acts, where to look, what to run next."""
    found = [_act(result, 0, "LeNet-5, one local epoch")]
    found += [f"  {_cost(stored.profile)}" for stored in result.profiles]
    found.append(_act(result, 1, "test accuracy of the last rounds; time and energy of a round [emulated]"))
    found += [f"  {_method(row)}" for row in method_rows(result)]
    found.append(_act(result, 2, "saved by early exit: time, energy"))
    found += [f"  {line}" for line in _savings(result)]
    found += ["", f"look at   {result.report}"]
    found += [f"          {command}" for _, command in commands(result, LOOK)]
    found += ["", "next, with real hardware"]
    found += [f"          {command}" for _, command in commands(result, NEXT)]
    if command := activation():
        found += ["", f"first     {command}    # in every new terminal: `joulefleet` is not on the PATH"]
    return found


def _act(result: DemoResult, number: int, text: str) -> str:
    name, took_s = list(result.took_s.items())[number]
    return f"act {number + 1}  {name:<8} {took_s:4.0f} s  {text}"


def _cost(profile: DeviceProfile) -> str:
    def text(quantity: Quantity, unit: str) -> str:
        return Number(quantity.mean, unit, profile.origin, quantity.half_width_95).text

    epoch = profile.epoch
    cost = f"{text(epoch.duration_s, 's')}, {text(epoch.gross_j, 'J')}"
    return f"{profile.device:<8} {profile.backend:<12} {cost} [{profile.origin.value}]"


def _method(row: MethodRow) -> str:
    honest = Accounting.HONEST
    cost = f"{row.round_time_s[honest].mean:.3g} s, {row.round_energy_j[honest].mean:.3g} J"
    return f"{row.method:<8} {row.accuracy.mean:6.1%}  {cost}"


def _savings(result: DemoResult) -> list[str]:
    found = [f"{'':<14} {'formula':<12} {'emulated rounds':<16}"]
    for accounting in Accounting:
        predicted = result.predicted.cells[0].savings[accounting]
        replayed = result.replayed.savings[accounting]
        pairs = [(predicted.time_saved.mean, predicted.energy_saved.mean)]
        pairs += [(replayed.time.mean, replayed.energy.mean)]
        formula, rounds = (f"{time:.0%}, {energy:.0%}" for time, energy in pairs)
        found.append(f"{accounting.value:<14} {formula:<12} {rounds:<16} [{result.replayed.origin.value}]")
    said = f"{PAPER_SAVING.time_saved:.1%}, {PAPER_SAVING.energy_saved:.1%}"
    return [*found, f"{'the paper':<14} {said}; accounting not stated [{Origin.LITERATURE.value}]"]
