"""The page on where probing pays has the table and the figure that its data give."""

import runpy
from typing import Any

from tests.conftest import REPOSITORY

RESULTS = REPOSITORY / "docs" / "results"
MAP: dict[str, Any] = runpy.run_path(str(RESULTS / "volatility.py"))


def test_every_number_of_the_table_is_recomputed_from_the_data() -> None:
    assert MAP["table"]() in (RESULTS / "volatility.md").read_text(encoding="utf-8")


def test_the_figure_is_that_of_the_data() -> None:
    assert MAP["figure"]() == (RESULTS / "volatility.svg").read_text(encoding="utf-8")


def test_a_cell_is_a_paired_mean_with_students_interval() -> None:
    """By hand: 0.8, 0.9 and 1.0 have mean 0.9, sd 0.1, and t = 4.303 at two degrees of freedom."""
    cell = MAP["_cell"]([0.8, 0.9, 1.0])
    assert round(cell.mean, 6) == -10
    half = 4.30265 * 0.1 / 3**0.5
    assert abs(cell.low - 100 * (0.9 * 2.718281828 ** (-half / 0.9) - 1)) < 0.01
    assert cell.verdict == MAP["OPEN"]
    assert MAP["_cell"]([0.8, 0.81, 0.8]).verdict == MAP["SAVES"]
    assert MAP["_cell"]([1.2, 1.21, 1.2]).verdict == MAP["COSTS"]
