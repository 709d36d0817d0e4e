"""The page on what a budget buys has the tables and the figure that its data give."""

import runpy
from typing import Any

import pytest

from emulator.compare.metrics import RunMetrics
from emulator.compare.table import compare
from tests.conftest import REPOSITORY

RESULTS = REPOSITORY / "docs" / "results"
PAGE: dict[str, Any] = runpy.run_path(str(RESULTS / "budget.py"))


PAGES = {PAGE["DATA"]: "budget-digits.md", PAGE["MNIST"]: "budget-mnist.md"}


@pytest.mark.parametrize(
    ("scenario", "data", "page"),
    [
        *((one, PAGE["DATA"], "budget-digits.md") for one in PAGE["WORLDS"]),
        (PAGE["STATIC"], PAGE["OTHERS"], "budget-digits.md"),
        (PAGE["WEEK"], PAGE["MNIST"], "budget-mnist.md"),
    ],
)
def test_every_number_against_the_control_is_recomputed_from_the_data(
    scenario: str, data: str, page: str
) -> None:
    assert PAGE["table"](scenario, data) in (RESULTS / page).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("table", "data"),
    [
        pytest.param("pairs", PAGE["DATA"], marks=pytest.mark.campaign),
        ("pairs", PAGE["MNIST"]),
        *(("penalties", data) for data in PAGES),
    ],
)
def test_what_is_said_of_fedrank_is_recomputed_from_the_data(table: str, data: str) -> None:
    assert PAGE[table](data) in (RESULTS / PAGES[data]).read_text(encoding="utf-8")


def test_the_figure_is_that_of_the_data() -> None:
    assert PAGE["figure"]() == (RESULTS / "budget.svg").read_text(encoding="utf-8")


def test_a_ratio_is_paired_and_a_missed_target_has_no_interval() -> None:
    """By hand: costs of twice the control's on every seed are 2 with an interval of no width."""

    def run(cost: float, reached: bool = True) -> RunMetrics:
        return RunMetrics(0.8, 0.9, cost, cost, 5.0, reached, 9.0, 9.0, 1.0, 1.0, asked=1, finished=1)

    control = {seed: run(cost) for seed, cost in enumerate((1.0, 2.0, 4.0))}
    twice = {seed: run(cost) for seed, cost in enumerate((2.0, 4.0, 8.0))}
    found = compare({"no_probe": control, "other": twice}, ("no_probe",)).cells["other"]
    assert PAGE["_times"](found["energy_to_target_j"].contrasts)[0] == "2 [2, 2]"
    missed = {**twice, 2: run(8.0, reached=False)}
    found = compare({"no_probe": control, "other": missed}, ("no_probe",)).cells["other"]
    assert PAGE["_times"](found["energy_to_target_j"].contrasts)[0] == "2"
