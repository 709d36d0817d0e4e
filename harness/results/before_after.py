"""Two runs of the bench side by side: how costs changed, and what else was not the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.profiles.difference import Difference, compare_profiles, pair_profiles
from harness.profiles.library import run_profiles
from harness.results.stored_run import StoredRun
from harness.results.tables import JobCapture
from joulefleet.errors import DataQualityError
from power import DeviceProfile

VOLTAGE_DIFFERS = 0.002
"""Relative; less is within what meters of one kind read differently."""


@dataclass(frozen=True, slots=True)
class RunDifference:
    """Two runs.

    Attributes:
        differences: Device by device, task by task.
        conditions: What else differs, by device; the host's under an empty name.
        only_before: Profiles that only the first run has.
        only_after: Profiles that only the second has.
    """

    before: Path
    after: Path
    differences: tuple[Difference, ...]
    conditions: dict[str, tuple[str, ...]]
    only_before: tuple[DeviceProfile, ...]
    only_after: tuple[DeviceProfile, ...]


def compare_bench_runs(before: Path, after: Path, *, between_sessions: float = 0.0) -> RunDifference:
    """Compare the profiles of two runs.

    Raises:
        DataQualityError: A run has no profiles, or they have no device and task in common.
    """
    sides = [[stored.profile for stored in run_profiles(run)] for run in (before, after)]
    for run, profiles in zip((before, after), sides, strict=True):
        if not profiles:
            raise DataQualityError(f"{run}: no profiles", hint=f"`joulefleet profile build {run}` makes them")
    pairs, only_before, only_after = pair_profiles(*sides)
    if not pairs:
        labels = "; ".join(", ".join(sorted({p.label for p in side})) for side in sides)
        raise DataQualityError(f"the runs have no device and task in common: {labels}")
    found = tuple(compare_profiles(*pair, between_sessions=between_sessions) for pair in pairs)
    opened = StoredRun(before), StoredRun(after)
    names = dict.fromkeys(pair[0].device for pair in pairs)
    conditions = {"": tuple(_differing(*(_host(run) for run in opened)))}
    conditions |= {name: tuple(_differing(*(_device(run, name) for run in opened))) for name in names}
    return RunDifference(before, after, found, conditions, tuple(only_before), tuple(only_after))


def _host(run: StoredRun) -> dict[str, str]:
    return {"host " + name: value for name, value in run.record.host.items()}


def _device(run: StoredRun, name: str) -> dict[str, str]:
    """What the captures of a device say about it: software, governor, temperature, voltage."""
    jobs = [job for job in run.captures if job.capture.record.device.name == name]
    said: dict[str, set[str]] = {}
    for job in jobs:
        device = job.capture.record.device
        facts = {"python": device.python, "governor": device.governor, "product": device.product}
        for fact, value in {**facts, **device.facts}.items():
            said.setdefault(fact, set()).add(value)
    found = {fact: ", ".join(sorted(values)) for fact, values in said.items()}
    return found | _temperature(jobs) | _voltage(jobs)


def _temperature(jobs: Iterable[JobCapture]) -> dict[str, str]:
    """When captures began, in whole degrees."""
    first_c = [job.capture.record.temperature.first_c for job in jobs if job.capture.record.temperature]
    if not first_c:
        return {}
    low, high = round(min(first_c)), round(max(first_c))
    return {"temperature at the start": f"{low} °C" if low == high else f"{low} to {high} °C"}


def _voltage(jobs: Iterable[JobCapture]) -> dict[str, str]:
    means_v = [_mean_voltage_v(job) for job in jobs]
    known_v = [mean_v for mean_v in means_v if mean_v is not None]
    return {"voltage": f"{np.mean(known_v):.4g} V"} if known_v else {}


def _mean_voltage_v(job: JobCapture) -> float | None:
    total_v, count = 0.0, 0
    for block in job.capture.recording.blocks():
        total_v += float(block.voltage_v.sum(dtype=np.float64))
        count += len(block)
    return total_v / count if count else None


def _differing(before: dict[str, str], after: dict[str, str]) -> Iterable[str]:
    for fact in dict.fromkeys((*before, *after)):
        one, two = before.get(fact, "not known"), after.get(fact, "not known")
        if one != two and not (fact == "voltage" and _nearly(one, two)):
            yield f"{fact}: {one or 'not known'}, now {two or 'not known'}"


def _nearly(one: str, two: str) -> bool:
    try:
        first_v, second_v = (float(text.split()[0]) for text in (one, two))
    except ValueError:
        return False
    return abs(first_v - second_v) <= VOLTAGE_DIFFERS * abs(first_v)
