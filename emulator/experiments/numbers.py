"""All numbers of an experiment, one by one, each with what it rests on: as plain data or CSV."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from emulator.compare.load import BASELINE
from emulator.experiments.plan import Variant
from emulator.experiments.results import ExperimentResults
from emulator.experiments.summary import MethodRow, VariantSummary, summarise
from emulator.experiments.vanilla import vanilla_numbers
from emulator.round.outcome import Accounting
from joulefleet.interval import Interval
from joulefleet.printable import csv_text
from joulefleet.provenance import Origin

NUMBER_COLUMNS = (
    "variant", "method", "seeds", "quantity", "mean", "low_95", "high_95", "reached", "reduced",
    "origin", "accounting", "target", "missing_runs", "median",
)  # fmt: skip


def as_csv(results: ExperimentResults) -> str:
    """One row per number."""
    return csv_text(NUMBER_COLUMNS, [list(line.values()) for line in as_data(results)])


def as_data(results: ExperimentResults) -> list[dict[str, Any]]:
    """One entry per number, in SI units and shares, the paper's among them; ``None`` for unknown."""
    lines = []
    for summary in summarise(results):
        missing = _missing(results, summary.variant)
        for row in summary.rows:
            target = _Number("target", _only(summary.target), row.seeds)
            for number in [target, *_numbers(row), *_saved_numbers(summary, row)]:
                missed = number.to_target and row.reached < row.seeds
                values = [
                    summary.variant.name,
                    row.method,
                    number.seeds,
                    number.quantity,
                    *((None,) * 3 if missed else _ends(number.value)),
                    row.reached if number.to_target else None,
                    summary.reductions,
                    number.origin.value,
                    number.accounting,
                    summary.target if number.to_target else None,
                    missing,
                    _known(number.value.mean) if missed else None,
                ]
                lines.append(dict(zip(NUMBER_COLUMNS, values, strict=True)))
    return lines


@dataclass(frozen=True, slots=True)
class _Number:
    """One number of a method.

    Attributes:
        quantity: What it is.
        value: Its mean and interval.
        seeds: Over how many; ``None`` where the paper does not say.
        accounting: Whose probes count; ``None`` where that makes no difference, or the paper does not say.
        to_target: Whether it depends on the target.
        origin: Where it comes from.
    """

    quantity: str
    value: Interval
    seeds: int | None
    accounting: str | None = None
    to_target: bool = False
    origin: Origin = Origin.EMULATED


def _only(value: float) -> Interval:
    return Interval(value, math.nan, math.nan)


def _missing(results: ExperimentResults, variant: Variant) -> int:
    """Runs that its table lacks, those of the FedAvg that another variant lends among them."""
    own = sum(one.variant == variant.name for one in results.missing)
    lent = sum(one.variant == variant.baseline and one.selector == BASELINE for one in results.missing)
    return own + lent


def _numbers(row: MethodRow) -> list[_Number]:
    n, honest = row.seeds, Accounting.HONEST.value
    found = [
        _Number("accuracy", row.accuracy, n),
        _Number("best_accuracy", row.best_accuracy, n),
        *([_Number("finished_share", _only(row.finished / row.asked), n)] if row.asked else []),
        _Number("time_s", row.time_s, n, honest),
        _Number("energy_j", row.energy_j, n, honest),
        _Number("rounds_to_target", row.rounds_to_target, n, to_target=True),
        _Number("time_to_target_s", row.time_to_target_s, n, honest, to_target=True),
        _Number("energy_to_target_j", row.energy_to_target_j, n, honest, to_target=True),
    ]
    for accounting in Accounting:
        name = accounting.value
        found.append(_Number(f"round_time_s_{name}", row.round_time_s[accounting], n, name))
        found.append(_Number(f"round_energy_j_{name}", row.round_energy_j[accounting], n, name))
    return [*found, *_against_numbers(row), *_paper_numbers(row)]


def _against_numbers(row: MethodRow) -> list[_Number]:
    """Over the seeds that FedAvg has, too."""
    against = row.against
    if against is None:
        return []
    n, found = against.pairs, []
    for accounting in Accounting:
        name = accounting.value
        found.append(_Number(f"energy_of_fedavg_{name}", against.energy[accounting], n, name))
        found.append(_Number(f"speed_x_fedavg_{name}", against.speed[accounting], n, name))
    found.append(_Number("accuracy_minus_fedavg", against.accuracy, n))
    return [*found, _Number("accuracy_minus_fedavg_p_holm", _only(against.p_holm), n)]


def _saved_numbers(summary: VariantSummary, row: MethodRow) -> list[_Number]:
    """What early exit saves; vanilla has no probes that could count or not."""
    found = summary.vanilla.get(row.method)
    if found is None:
        return []
    accountings = {name.value for name in Accounting}
    return [
        _Number(name, value, row.seeds, next((a for a in accountings if name.endswith(f"_{a}")), None))
        for name, value in vanilla_numbers(found).items()
    ]


def _paper_numbers(row: MethodRow) -> list[_Number]:
    paper = row.paper
    if paper is None:
        return []
    values = {
        "paper_accuracy": paper.share,
        "paper_accuracy_in_round": paper.reached_in_round,
        "paper_energy_of_fedavg": paper.energy_percent / 100,
        "paper_speed_x_fedavg": paper.speed,
    }
    return [
        _Number(name, _only(value), None, origin=Origin.LITERATURE)
        for name, value in values.items()
        if value is not None
    ]


def _ends(value: Interval) -> list[Any]:
    return [_known(number) for number in (value.mean, value.low, value.high)]


def _known(number: float) -> float | None:
    return None if math.isnan(number) else number
