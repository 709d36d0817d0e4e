"""``python -m traces.synth.fidelity``: are generated people like real ones whom the fit never saw?

For each real set, many times: split the people into two random halves, fit on one, generate as many people as
it has, look at them through the gaps and the grid of its recordings, and compare with the other half. The bar
is `BAR` times the distance between the two real halves. A set of one person is split by days.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from joulefleet.provenance import Origin
from joulefleet.seeds import generator
from traces.synth.draw.process import DrawnPeriods, sampler_of
from traces.synth.fit.bundled import AVAILABILITY, POWER, SCREEN, RealSet
from traces.synth.fit.periods import Periods, bridged, cut_at_hours, first_month, periods_of
from traces.synth.fit.process import fit_processes
from traces.synth.model import HOURS, WEEK_H, ModelSource, Process

Array = NDArray[np.float64]
LEAST_WATCHED_H = 1.0
"""A person's share at an hour of the day counts where that hour was watched at least this long."""
BAR = 1.5
SPLITS = 20
_PERSON_H = 1e5  # more hours than anybody is generated for
_EVIDENCE = ModelSource(origin=Origin.IMPORTED, source="half of a set")
Distance = Callable[[Periods, Periods], float]


@dataclass(frozen=True, slots=True)
class TraceFidelity:
    """One line of the table.

    Attributes:
        quantity: What was compared.
        set_name: In which set.
        held_out: Units in the half that the fit did not see.
        unit: What a unit is.
        splits: How many random halvings.
        real: Mean distance between the two real halves.
        generated: Mean distance between the generated people and the held-out half.
    """

    quantity: str
    set_name: str
    held_out: int
    unit: str
    splits: int
    real: float
    generated: float

    @property
    def ratio(self) -> float:
        """Generated over real."""
        return self.generated / self.real

    @property
    def passed(self) -> bool:
        """Whether the ratio is within the bar."""
        return self.ratio <= BAR


def ks_distance(a: Array, b: Array) -> float:
    """Largest difference of the two empirical distribution functions."""
    both = np.sort(np.concatenate([a, b]))
    at_a = np.searchsorted(np.sort(a), both, side="right") / len(a)
    at_b = np.searchsorted(np.sort(b), both, side="right") / len(b)
    return float(np.max(np.abs(at_a - at_b)))


def hourly_share(periods: Periods, on: NDArray[np.bool_], least_h: float = LEAST_WATCHED_H) -> Array:
    """Share of the watched time that is on: unit x hour of the day, NaN where little was watched."""
    period, hour, spent = cut_at_hours(periods)
    place = periods.unit[period] * HOURS + hour % HOURS
    watched = np.bincount(place, weights=spent, minlength=periods.units * HOURS)
    yes = np.bincount(place, weights=spent * on[period], minlength=periods.units * HOURS)
    share = np.where(watched >= least_h, yes / np.maximum(watched, 1e-9), np.nan)
    return np.asarray(share.reshape(periods.units, HOURS))


def hourly_distance(a: Array, b: Array) -> float:
    """Distance between the people's shares at one hour of the day, averaged over the hours."""
    distances = []
    for at_hour in zip(a.T, b.T, strict=True):
        x, y = (share[~np.isnan(share)] for share in at_hour)
        if len(x) and len(y):
            distances.append(ks_distance(x, y))
    return float(np.mean(distances))


def whole_lengths(periods: Periods, on: NDArray[np.bool_]) -> Array:
    """Length (h) of the periods of some kind whose begin and end were seen."""
    return np.asarray(periods.length_h[on & periods.whole])


def lengths(state_bit: int, *, on: bool) -> Distance:
    """Distance of the lengths of the stretches in which a channel is on (or off)."""

    def distance(a: Periods, b: Periods) -> float:
        return ks_distance(*(whole_lengths(part, part.on(state_bit) == on) for part in (a, b)))

    return distance


def shares(bits: Sequence[int], least_h: float = 1.0) -> Distance:
    """Distance of the hourly shares of the time in which all of some channels are on."""

    def distance(a: Periods, b: Periods) -> float:
        return hourly_distance(*(hourly_share(part, _all_on(part, bits), least_h) for part in (a, b)))

    return distance


def _all_on(periods: Periods, bits: Sequence[int]) -> NDArray[np.bool_]:
    return np.asarray(np.logical_and.reduce([periods.on(bit) for bit in bits]))


@dataclass(frozen=True, slots=True)
class Trial:
    """What is compared in one set.

    Attributes:
        real_set: The set.
        quantities: Name to distance.
        by_day: Units are days of one person, not persons.
    """

    real_set: RealSet
    quantities: dict[str, Distance]
    by_day: bool = False


TRIALS = (
    Trial(
        SCREEN,
        {
            "session length": lengths(0, on=True),
            "gap": lengths(0, on=False),
            "hourly screen-on share": shares([0], 0.5),
        },
        by_day=True,
    ),
    Trial(
        POWER,
        {
            "hourly charging share": shares([0]),
            "hourly Wi-Fi share": shares([1]),
            "availability: hourly share of charging and Wi-Fi": shares([0, 1]),
        },
    ),
    Trial(
        AVAILABILITY,
        {
            "availability: hourly share": shares([0]),
            "availability: length of a stretch": lengths(0, on=True),
            "availability: gap": lengths(0, on=False),
        },
    ),
)


def measure(trial: Trial, data: Path, splits: int = SPLITS) -> list[TraceFidelity]:
    """Every quantity of a set, averaged over random halvings."""
    periods = first_month(periods_of(trial.real_set.read(data), trial.real_set.channels))
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in trial.quantities}
    held_out = 0
    for split in range(splits):
        rng = generator(split, "fidelity", trial.real_set.name)
        fitted, kept, made = (_halves_of_days if trial.by_day else _halves_of_people)(trial, periods, rng)
        held_out = kept.units
        for name, distance in trial.quantities.items():
            found[name].append((distance(fitted, kept), distance(made, kept)))
    unit = "days of one person" if trial.by_day else "people"
    return [
        TraceFidelity(name, trial.real_set.name, held_out, unit, splits, *np.mean(pairs, axis=0).tolist())
        for name, pairs in found.items()
    ]


def _halves_of_people(
    trial: Trial, periods: Periods, rng: np.random.Generator
) -> tuple[Periods, Periods, Periods]:
    order = rng.permutation(periods.units)
    fitted, kept = periods.of_units(order[::2]), periods.of_units(order[1::2])
    processes = _fit(trial, fitted)
    return fitted, kept, generated_like(processes, fitted, rng)


def _fit(trial: Trial, periods: Periods) -> list[Process]:
    chosen = trial.real_set
    return fit_processes(bridged(periods, chosen.bridge_h), chosen.channels, _EVIDENCE, chosen.grid_h)


def _halves_of_days(
    trial: Trial, periods: Periods, rng: np.random.Generator
) -> tuple[Periods, Periods, Periods]:
    days = periods.by_day()
    order = rng.permutation(days.units)
    fitted, kept = days.of_units(order[::2]), days.of_units(order[1::2])
    processes = _fit(trial, fitted.as_one())
    made = generated_like(processes, periods, rng).by_day()
    return fitted, kept, made.of_units(order[::2][order[::2] < made.units])


def generated_like(processes: Sequence[Process], real: Periods, rng: np.random.Generator) -> Periods:
    """Generated people, one per real one, seen through the windows of the real ones."""
    windows = windows_of(real)
    hours = max(float(end[-1]) for _, end in windows)
    drawn: list[DrawnPeriods] = []
    for process in processes:
        given = drawn[0] if process.given else None
        drawn.append(sampler_of(process).draw(len(windows), hours, rng, given))
    return seen_through(drawn, windows)


def windows_of(periods: Periods) -> list[tuple[Array, Array]]:
    """Per unit, begin and end of the stretches in which it was watched without a gap."""
    found = []
    for unit in range(periods.units):
        mine = periods.unit == unit
        start, end = periods.start_h[mine], periods.end_h[mine]
        first = np.append(True, start[1:] > end[:-1])
        found.append((start[first], end[np.append(first[1:], True)]))
    return found


def joined(channels: Sequence[DrawnPeriods]) -> tuple[NDArray[np.int64], Array, NDArray[np.int64]]:
    """Person, begin (hours since Monday 0:00; the day before is there, too) and joint state of channels."""
    person = np.concatenate([part.person for part in channels])
    start_h = np.concatenate([part.start_h for part in channels]) - WEEK_H
    order = np.lexsort((start_h, person))
    person, start_h = person[order], start_h[order]
    state = np.zeros(len(person), np.int64)
    for bit, part in enumerate(channels):
        latest = (
            np.searchsorted(_key(part.person, part.start_h - WEEK_H), _key(person, start_h), side="right") - 1
        )
        state |= part.on[latest].astype(np.int64) << bit
    return person, start_h, state


def _key(person: NDArray[np.int64], t_h: Array) -> Array:
    return np.asarray(person * _PERSON_H + t_h)


def seen_through(channels: Sequence[DrawnPeriods], windows: list[tuple[Array, Array]]) -> Periods:
    """What would be on record of person ``i``, watched in the stretches ``windows[i]`` only.

    Args:
        channels: Of as many people as there are windows.
        windows: Begin and end of the stretches that are watched, hours since Monday 0:00.
    """
    person, start_h, state = joined(channels)
    bound = np.searchsorted(person, np.arange(len(windows) + 1))
    parts = []
    for unit, stretches in enumerate(windows):
        mine = slice(bound[unit], bound[unit + 1])
        for begin, end in zip(*stretches, strict=True):
            seen = _in_window(start_h[mine], state[mine], begin, end)
            parts.append((np.full(len(seen[0]), unit), *seen))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return Periods.of_columns(columns, len(windows), len(channels))


def _in_window(
    start: Array, state: NDArray[np.int64], begin_h: float, end_h: float
) -> tuple[NDArray[np.generic], ...]:
    """State, begin, end, whether begun in sight, next state."""
    first = int(np.searchsorted(start, begin_h, side="right")) - 1
    last = int(np.searchsorted(start, end_h, side="left"))
    inside, states = np.maximum(start[first:last], begin_h), state[first:last]
    changed = np.append(True, states[1:] != states[:-1])
    inside, states = inside[changed], states[changed]
    until = np.append(inside[1:], end_h)
    begun = np.append(False, np.ones(len(states) - 1, bool))
    return states, inside, until, begun, np.append(states[1:], -1)


def table(lines: Sequence[TraceFidelity]) -> Iterator[str]:
    """The lines as a Markdown table."""
    yield "| quantity | set | held out | splits | real halves | generated | ratio | at most 1.5 |"
    yield "|---|---|---|---|---|---|---|---|"
    for line in lines:
        verdict = "yes" if line.passed else "**no**"
        yield (
            f"| {line.quantity} | {line.set_name} | {line.held_out} {line.unit} | {line.splits} "
            f"| {line.real:.3f} | {line.generated:.3f} | {line.ratio:.2f} | {verdict} |"
        )


def main(arguments: Sequence[str]) -> int:
    """Print the table; the exit code says whether every line passed."""
    data = Path(os.environ.get("JOULEFLEET_DATA", ""))
    splits = int(arguments[0]) if arguments else SPLITS
    lines = [line for trial in TRIALS for line in measure(trial, data, splits)]
    sys.stdout.write("\n".join(table(lines)) + "\n")
    return 0 if all(line.passed for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
