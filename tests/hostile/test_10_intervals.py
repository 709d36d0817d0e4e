"""Class 10: no printed interval holds what cannot be true, however few and wild the values are."""

import math
import re

import numpy as np
import pytest
from numpy.random import default_rng

from emulator.compare.load import ComparedRuns
from emulator.compare.metrics import RunMetrics
from emulator.compare.render import as_markdown, as_text
from emulator.compare.table import compare
from emulator.compare.titles import METRICS
from emulator.round.outcome import Accounting
from harness.cli.meter.commands import _reach
from harness.cli.profile.view import number
from harness.report.page import ErrorBar, Number
from joulefleet.interval import Interval, Scale, student_interval
from joulefleet.provenance import Origin
from power.profile import Quantity

ENDS = re.compile(r"\[(-?[\d.,e+-]+), (-?[\d.,e+-]+)\]")


def ends(text: str) -> list[tuple[float, float]]:
    return [(float(a.replace(",", "")), float(b.replace(",", ""))) for a, b in ENDS.findall(text)]


def wild(seed: int, count: int) -> dict[int, RunMetrics]:
    """Accuracies near both ends, costs over six orders of magnitude."""
    rng = default_rng(seed)
    return {
        s: RunMetrics(
            *rng.choice([0.001, 0.5, 0.999], 2),
            *10 ** rng.uniform(-3, 3, 2),
            rounds_to_target=float(rng.integers(1, 300)),
            reached=True,
            time_s=float(10 ** rng.uniform(-3, 3)),
            energy_j=float(10 ** rng.uniform(-3, 3)),
            round_time_s=float(10 ** rng.uniform(-3, 3)),
            round_energy_j=float(10 ** rng.uniform(-3, 3)),
            calendar_to_target_s=float(10 ** rng.uniform(-3, 6)),
            calendar_s=float(10 ** rng.uniform(-3, 6)),
            classes_per_cohort=float(rng.integers(1, 10)),
            asked=10,
            finished=10,
            accuracy_within_energy=float(rng.choice([0.001, 0.5, 0.999])),
            accuracy_within_time=float(rng.choice([0.001, 0.5, 0.999])),
        )
        for s in range(count)
    }


@pytest.mark.parametrize("seeds", [1, 2, 3, 6])
@pytest.mark.parametrize("draw", range(2))
def test_comparisons_hold_what_can_be_true(seeds: int, draw: int) -> None:
    table = compare({"fedavg": wild(draw, seeds), "oort": wild(draw + 100, seeds)}, ["fedavg"])
    for cells in table.cells.values():
        for metric, cell in cells.items():
            value = cell.value
            assert value.known == (seeds >= 3), metric
            if value.known:
                assert 0 < value.low <= value.mean <= value.high, metric
                assert "accuracy" not in metric or value.high <= 1
            for contrast in cell.contrasts:
                gap = contrast.difference
                assert gap.known == (seeds >= 3), metric
                if "accuracy" in metric and gap.known:
                    assert -1 <= gap.low <= gap.high <= 1
    found = ComparedRuns(
        table, 0.8, Accounting.HONEST, "made up", dict.fromkeys(table.cells, Origin.EMULATED.value)
    )
    for text in (as_text(found, METRICS), as_markdown(found, METRICS)):
        tables = text.split("seeds 0")[0]
        if seeds < 3:
            assert not ends(tables), "the values themselves"
        assert (" and " in tables) == (seeds == 2)


@pytest.mark.parametrize("half_width", [0.1, 0.9, 2.0, 30.0, 1e6])
def test_measured_quantities_are_not_below_nothing(half_width: float) -> None:
    for mean in (1e-6, 1.0, 12.345, 4e4):
        quantity = Quantity(mean=mean, n=2, sd=mean, half_width_95=half_width * mean)
        texts = [
            number(quantity),
            Number(mean, "J", Origin.MEASURED, half_width * mean).text,
            f"{mean:.6g} {_reach(mean, half_width * mean)}",
        ]
        for text in texts:
            if "±" in text:
                value, half = (float(part.split()[0]) for part in text.split("±"))
                assert half <= 0.25 * value, text
            else:
                ((low, high),) = ends(text)
                assert 0 <= low < mean < high < math.inf, text
        low, middle, high = ErrorBar(Number(mean, "J", Origin.MEASURED, half_width * mean), mean).ends
        assert 0 <= low <= middle <= high


@pytest.mark.parametrize("saved", [0.02, 0.5, 0.97, -0.4])
@pytest.mark.parametrize("half_width", [0.01, 0.4, 3.0])
def test_nothing_saves_more_than_all(saved: float, half_width: float) -> None:
    found = Interval.measured(saved, half_width, Scale.SAVED)
    assert found.low < saved < found.high <= 1
    text = Number(100 * saved, "%", Origin.MEASURED, 100 * half_width, Scale.SAVED).text
    for low, high in ends(text):
        assert low < high <= 100
    if "±" in text:
        assert sum(float(part.split()[0]) for part in text.split("±")) <= 100


def test_values_that_are_all_the_same_or_at_an_end() -> None:
    for values in ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0], [0.0, 0.0, 1e-300]):
        for scale in (Scale.LOG, Scale.LOGIT):
            found = student_interval(np.array(values), scale)
            if found.known:
                assert 0 <= found.low <= found.mean <= found.high
                assert scale is Scale.LOG or found.high <= 1
