"""What a page says first: the answer in a sentence, with its uncertainty."""

from __future__ import annotations

from collections.abc import Sequence

from device_agents.workloads import Metric
from emulator import Accounting
from emulator.compare import BASELINE
from emulator.compare.titles import target_text
from emulator.experiments import MethodRow, VariantSummary
from emulator.experiments.vanilla import AgainstVanilla
from emulator.selectors import shown_name
from joulefleet.interval import Interval
from joulefleet.rounding import rounded


def variant_answers(summary: VariantSummary) -> list[str]:
    """Which method needs the least energy and time for the target, and whether that is clear."""
    reached = [row for row in summary.rows if row.reached == row.seeds]
    if len(summary.rows) < 2:
        return [_alone(row, summary.metric) for row in summary.rows]
    if not reached:
        sign = 1 if summary.metric.higher_is_better else -1
        most = max(summary.rows, key=lambda row: sign * row.accuracy.mean)
        none = f"No method reaches {target_text(summary.target, summary.metric)} with every seed."
        return [f"{none} {shown_name(most.method)} ends best: test {_reached(most, summary.metric)}."]
    cheapest = min(reached, key=lambda row: row.energy_to_target_j.mean)
    fastest = min(reached, key=lambda row: row.time_to_target_s.mean)
    energy = _beside_others(cheapest, reached, "energy_to_target_j", "J")
    time = _beside_others(fastest, reached, "time_to_target_s", "s")
    metric = summary.metric
    goal = target_text(summary.target, metric) + (f" test {metric.name}" if metric.share else "")
    return [
        f"{shown_name(cheapest.method)} reaches {goal} with the least energy: {energy}.",
        f"{shown_name(fastest.method)} is there first: {time}.",
    ]


def sweep_answers(summaries: Sequence[VariantSummary]) -> list[str]:
    """What early exit saves over a series, for each method that probes; the ends of the series."""
    found = []
    for swept in dict.fromkeys(one.variant.swept for one in summaries if one.variant.swept):
        points: dict[str, list[tuple[float, AgainstVanilla]]] = {}
        for one in summaries:
            for method, vanilla in one.vanilla.items():
                if one.variant.swept == swept and vanilla is not None:
                    value = swept.value(one.variant.scenario)
                    points.setdefault(method, []).append((value, vanilla))
        for method, series in points.items():
            ends = sorted(series, key=lambda point: point[0])
            said = [
                _saving(swept.quantity, *end) for end in (ends[:1] if len(ends) == 1 else [ends[0], ends[-1]])
            ]
            honest = [vanilla.savings[Accounting.HONEST] for _, vanilla in (ends[0], ends[-1])]
            known = all(one.time.known and one.energy.known for one in honest)
            few = "" if known else " (too few seeds for an interval)"
            found.append(
                f"{shown_name(method)}: early exit saves {'; '.join(said)}, every probe counted{few}."
            )
    return found


def _saving(quantity: str, value: float, vanilla: AgainstVanilla) -> str:
    honest = vanilla.savings[Accounting.HONEST]
    time, energy = said(honest.time.times(100), "%"), said(honest.energy.times(100), "%")
    return f"{time} of the time and {energy} of the energy at {quantity} = {value:g}"


def _beside_others(best: MethodRow, rows: Sequence[MethodRow], name: str, unit: str) -> str:
    """What the best takes, then the baseline or the next best, and whether the intervals part."""
    rest = [row for row in rows if row is not best]
    if not rest:
        return f"{said(getattr(best, name), unit)}; no other method reaches it with every seed"
    baseline = [row for row in rest if row.method == BASELINE]
    other = baseline[0] if baseline else min(rest, key=lambda row: float(getattr(row, name).mean))
    mine, theirs = getattr(best, name), getattr(other, name)
    known = mine.known and theirs.known
    why = "intervals overlap: no clear difference" if known else "too few seeds for an interval"
    word = "" if known and mine.high < theirs.low else f" ({why})"
    return f"{said(mine, unit)}; {shown_name(other.method)} takes {said(theirs, unit)}{word}"


def said(value: Interval, unit: str) -> str:
    """To the digits that its interval supports; of two seeds, which have none, each."""
    each = [] if value.known else [rounded(one, 3) for one in value.values]
    return f"{value.plus_minus()} {unit}" + (f" ({' and '.join(each)})" if len(each) > 1 else "")


def _alone(row: MethodRow, metric: Metric) -> str:
    honest = Accounting.HONEST
    return (
        f"{shown_name(row.method)} ends with a test {_reached(row, metric)}. A round takes "
        f"{row.round_time_s[honest].text()} s and {row.round_energy_j[honest].text()} J without waiting."
    )


def _reached(row: MethodRow, metric: Metric) -> str:
    return f"{metric.name} of {row.accuracy.text(row.shown_times)}" + " %" * metric.share
