"""How often the 95 % interval over sessions contains the truth; written apart from the estimator.

This file and `session_draws` rest on docs/profiles.md alone. Cells that are not normal are recorded, not
required: no interval that takes session means for normal can hold in all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import numpy as np
import pytest
from scipy.stats import t as student

from power.profile import quantity_from_sessions
from tests.power.session_draws import TRUTH_J, Lab, draw, draw_mixed

LOWEST, HIGHEST = 0.93, 0.97  # what is required of three sessions or more
DRAWS, FULL_DRAWS = 400, 20_000

LAYOUTS = {
    "3 x 2": (2,) * 3,
    "3 x 5": (5,) * 3,
    "3 x 10": (10,) * 3,
    "5 x 3": (3,) * 5,
    "10 x 2": (2,) * 10,
    "10 x 10": (10,) * 10,
    "2, 5, 10": (2, 5, 10),
    "2, 10, 10": (2, 10, 10),
    "2, 2, 10": (2, 2, 10),
    "10 to 2": (10, 9, 8, 7, 6, 5, 4, 3, 2, 2),
    "2, 9 x 10": (2, *(10,) * 9),
}
SPREADS = ((0.0, 0.01), (0.005, 0.03), (0.01, 0.01), (0.03, 0.02), (0.05, 0.002))
OTHER_LABS = {
    "heavy tails (t5)": Lab(0.03, 0.02, "student5"),
    "skewed (lognormal, sigma 0.5)": Lab(0.03, 0.02, "skewed"),
    "skewed (lognormal, sigma 1)": Lab(0.03, 0.02, "very skewed"),
    "skewed (lognormal, sigma 1), sessions alike": Lab(0.0, 0.02, "very skewed"),
    "warming 3 % in each session": Lab(0.02, 0.01, warming=0.03),
    "each session drifts its own way by 3 %": Lab(0.02, 0.01, slopes=0.03),
    "trend of 5 % over the sessions": Lab(0.01, 0.01, trend=0.05),
    "sessions correlated by 0.5": Lab(0.03, 0.02, memory=0.5),
    "rounded to one sd, sessions alike": Lab(0.0, 0.01, step_j=0.01 * TRUTH_J),
}


def coverage(studies: Iterable[list[list[float]]], systematic_half_width: float = 0.0) -> float:
    inside = []
    for study in studies:
        q = quantity_from_sessions(study, systematic_half_width=systematic_half_width)
        inside.append(abs(q.mean - TRUTH_J) <= q.half_width_95)
    return float(np.mean(inside))


def error(share: float, draws: int) -> float:
    """Binomial standard error of a share."""
    return float(np.sqrt(share * (1 - share) / draws))


def misses(covered: dict[str, float], draws: int) -> dict[str, float]:
    """Cells outside what is required: by over three standard errors in few draws, at all in the campaign."""
    errors = 3 if draws < FULL_DRAWS else 0
    low, high = LOWEST - errors * error(LOWEST, draws), HIGHEST + errors * error(HIGHEST, draws)
    return {cell: share for cell, share in covered.items() if not low <= share <= high}


def record(record_property, covered: dict[str, float], draws: int) -> None:
    record_property("draws a cell", draws)
    record_property("binomial standard error at 0.95", round(error(0.95, draws), 4))
    for cell, share in covered.items():
        record_property(f"covered: {cell}", round(share, 4))


@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_three_sessions_or_more_cover_the_truth(layout, campaign_count, record_property) -> None:
    draws = campaign_count(DRAWS, FULL_DRAWS)
    place = list(LAYOUTS).index(layout)
    covered = {
        f"between {between:.1%}, within {within:.1%}": coverage(
            draw([19, place, number], Lab(between, within), LAYOUTS[layout], draws)
        )
        for number, (between, within) in enumerate(SPREADS)
    }
    record(record_property, covered, draws)
    assert misses(covered, draws) == {}
    assert misses({"all": float(np.mean(list(covered.values())))}, draws * len(covered)) == {}


@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_any_plan_of_three_sessions_or_more_covers_the_truth(campaign_count, record_property) -> None:
    draws = campaign_count(3000, 40_000)
    covered = {"3 to 10 sessions of 2 to 10, any spreads": coverage(draw_mixed(23, draws))}
    record(record_property, covered, draws)
    assert misses(covered, draws) == {}


@pytest.mark.parametrize("sessions", [3, 10])
def test_the_generator_shows_an_interval_that_is_too_narrow(sessions) -> None:
    """The same values, handed over as if all were of one session: that interval has to fail here."""
    studies = draw([29, sessions], Lab(0.03, 0.02), (5,) * sessions, 1000)
    assert coverage([list(chain(*study))] for study in studies) < 0.85


@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("sessions", [3, 5, 10])
def test_what_is_not_normal_is_recorded(sessions, campaign_count, record_property) -> None:
    """No worse than Student's interval over the session means, worked out here on the same draws."""
    draws = campaign_count(DRAWS, FULL_DRAWS)
    covered, plain = {}, {}
    for number, (name, lab) in enumerate(OTHER_LABS.items()):
        studies = list(draw([31, sessions, number], lab, (4,) * sessions, draws))
        means = np.mean(studies, axis=2)
        half = student.ppf(0.975, sessions - 1) * means.std(axis=1, ddof=1) / np.sqrt(sessions)
        plain[name] = float(np.mean(np.abs(means.mean(axis=1) - TRUTH_J) <= half * (1 + 1e-9)))
        covered[name] = coverage(studies)
    record(record_property, covered, draws)
    for cell in misses(covered, draws):
        record_property(f"outside 93 to 97 %: {cell}", round(covered[cell], 4))
    for cell, share in plain.items():
        assert covered[cell] >= share - 0.001, cell


@pytest.mark.campaign
@pytest.mark.parametrize("repetitions", [2, 5, 10])
@pytest.mark.parametrize("within", [0.01, 0.02, 0.025, 0.03])
def test_one_session_does_not_cover_and_a_stated_spread_does(
    repetitions, within, campaign_count, record_property
) -> None:
    """The share is what Student's distribution gives for a scale that lacks the spread between sessions."""
    draws, between = campaign_count(1000, FULL_DRAWS), 0.03
    studies = list(draw([37, repetitions, round(within * 1000)], Lab(between, within), (repetitions,), draws))
    seen = within / np.sqrt(repetitions) / np.hypot(between, within / np.sqrt(repetitions))
    expected = 1 - 2 * student.sf(student.ppf(0.975, repetitions - 1) * seen, repetitions - 1)
    bare, stated = coverage(studies), coverage(studies, 1.96 * between * TRUTH_J)
    record(record_property, {"one session": bare, "one session, spread of 3 % added": stated}, draws)
    record_property("expected of one session", round(float(expected), 4))
    assert bare == pytest.approx(expected, abs=4 * error(float(expected), draws))
    assert stated >= LOWEST - 3 * error(LOWEST, draws)


@pytest.mark.campaign
@pytest.mark.parametrize("between", [0.0, 0.03])
def test_two_sessions(between, campaign_count, record_property) -> None:
    draws = campaign_count(1000, FULL_DRAWS)
    studies = list(draw([41, round(between * 100)], Lab(between, 0.02), (5, 5), draws))
    stated = coverage(studies, 1.96 * between * TRUTH_J / np.sqrt(2))
    covered = {"two sessions": coverage(studies), "two sessions, spread added": stated}
    record(record_property, covered, draws)
    assert stated >= LOWEST - 3 * error(LOWEST, draws)
    assert covered["two sessions"] < 0.8 or between == 0
    for study in studies[:20]:
        q = quantity_from_sessions(study)
        assert (q.n, q.sessions, q.session_sd, q.session_sd_from) == (10, 2, None, None)
