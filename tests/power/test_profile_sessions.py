"""Repetitions in sessions: mean, n, both spreads and the interval, against values worked out by hand."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from joulefleet.errors import DataQualityError
from power.profile import Quantity, load_profile, quantity_from_sessions
from tests.power.test_profile import profile

T = {1: 12.7062047, 2: 4.30265273, 3: 3.18244631, 4: 2.77644511, 5: 2.57058184}
"""Student's 97.5 % points, from a printed table."""


def test_three_sessions_the_interval_comes_from_their_means() -> None:
    """Session means 10, 12, 17: mean 13, sd sqrt(13). Within: sums of squares 2, 8, 0 on 2 + 2 + 0."""
    found = quantity_from_sessions([[9.0, 10.0, 11.0], [10.0, 12.0, 14.0], [17.0]])
    assert (found.n, found.sessions, found.session_sd_from) == (7, 3, "measured")
    assert found.mean == pytest.approx(13.0)
    assert found.sd == pytest.approx(math.sqrt(10 / 4))
    # What repetitions explain of the variance of session means: 2.5 * (1/3 + 1/3 + 1) / 3.
    assert found.session_sd == pytest.approx(math.sqrt(13.0 - 2.5 * (5 / 3) / 3))
    assert found.half_width_95 == pytest.approx(T[2] * math.sqrt(13.0 / 3), rel=1e-7)


def test_sessions_count_once_however_often_they_repeat() -> None:
    """Otherwise the session with the most repetitions would decide."""
    found = quantity_from_sessions([[1.0] * 50, [2.0], [3.0, 3.0], [6.0]])
    assert (found.mean, found.n, found.sessions) == (3.0, 54, 4)
    assert found.half_width_95 == pytest.approx(T[3] * math.sqrt(14 / 3 / 4))


def test_sessions_that_differ_no_more_than_repetitions_have_no_spread_of_their_own() -> None:
    found = quantity_from_sessions([[1.0, 3.0], [3.0, 1.0], [2.1, 1.9]])
    assert found.session_sd == 0.0
    assert found.session_sd_from == "measured"
    assert found.sd == pytest.approx(math.sqrt((2 + 2 + 0.02) / 3))


def test_one_repetition_per_session_cannot_tell_the_two_spreads_apart() -> None:
    found = quantity_from_sessions([[4.0], [5.0], [9.0]])
    assert (found.mean, found.n, found.sessions, found.sd) == (6.0, 3, 3, None)
    assert found.session_sd == pytest.approx(math.sqrt(7.0))
    assert found.half_width_95 == pytest.approx(T[2] * math.sqrt(7 / 3))


def test_one_session_is_students_over_its_repetitions_and_says_nothing_of_days() -> None:
    found = quantity_from_sessions([[9.0, 10.0, 11.0]])
    assert (found.mean, found.n, found.sd, found.sessions) == (10.0, 3, pytest.approx(1.0), 1)
    assert found.half_width_95 == pytest.approx(T[2] / math.sqrt(3))
    assert (found.session_sd, found.session_sd_from) == (None, None)


def test_two_sessions_are_about_repetitions_only() -> None:
    """Means 2 and 20: eighteen apart, and the interval does not show it, because two cannot tell."""
    found = quantity_from_sessions([[1.0, 2.0, 3.0], [18.0, 22.0]])
    sd = math.sqrt((2 + 8) / 3)
    assert (found.mean, found.n, found.sessions, found.sd) == (11.0, 5, 2, pytest.approx(sd))
    assert found.half_width_95 == pytest.approx(T[3] * sd * math.sqrt(1 / 3 + 1 / 2) / 2)
    assert (found.session_sd, found.session_sd_from) == (None, None)
    two = quantity_from_sessions([[1.0], [3.0]])  # nothing but the two values
    assert (two.n, two.sd) == (2, pytest.approx(math.sqrt(2)))
    assert two.half_width_95 == pytest.approx(T[1])


@pytest.mark.parametrize("sessions", [1, 2])
def test_a_stated_spread_is_added_where_too_few_sessions_show_it(sessions: int) -> None:
    values = [[99.0, 101.0]] * sessions
    plain = quantity_from_sessions(values)
    found = quantity_from_sessions(values, between_sessions=0.03)
    assert (found.mean, found.n, found.sd) == (plain.mean, plain.n, plain.sd)
    assert (found.session_sd, found.session_sd_from) == (pytest.approx(3.0), "stated")
    added = 1.959964 * 3.0 / math.sqrt(sessions)
    assert found.half_width_95 == pytest.approx(math.hypot(plain.half_width_95, added), rel=1e-6)


def test_a_stated_spread_gives_way_to_a_measured_one() -> None:
    values = [[1.0, 1.2], [2.0, 2.1], [3.0, 2.9]]
    assert quantity_from_sessions(values, between_sessions=0.5) == quantity_from_sessions(values)


def test_what_all_values_share_is_added_in_squares() -> None:
    alone = quantity_from_sessions([[1.0], [2.0], [3.0]])
    found = quantity_from_sessions([[1.0], [2.0], [3.0]], systematic_half_width=3.0)
    assert found.half_width_95 == pytest.approx(math.hypot(alone.half_width_95, 3.0))
    assert quantity_from_sessions([[7.0]], systematic_half_width=0.5).half_width_95 == 0.5


def test_a_single_value_has_no_interval_of_its_own() -> None:
    found = quantity_from_sessions([[], [7.0], []])
    assert found == Quantity(mean=7.0, n=1, sessions=1)
    stated = quantity_from_sessions([[7.0]], between_sessions=0.1)
    assert stated.half_width_95 is None  # how repetitions scatter is still not known
    assert stated.session_sd == pytest.approx(0.7)


@pytest.mark.parametrize("values", [[], [[]], [[1.0], [math.nan]], [[math.inf, 1.0]]])
def test_values_that_are_none_are_refused(values: list[list[float]]) -> None:
    with pytest.raises(DataQualityError):
        quantity_from_sessions(values)


@pytest.mark.parametrize("share", [-0.1, 1.0, 3.0, math.nan])
def test_a_stated_spread_is_a_share(share: float) -> None:
    with pytest.raises(DataQualityError, match="share"):
        quantity_from_sessions([[1.0, 2.0]], between_sessions=share)


@pytest.mark.parametrize("counts", [(4, 4, 4), (1, 6, 3), (2, 6, 5, 1, 3)])
@pytest.mark.parametrize("ratio", [0.0, 0.5, 4.0])
def test_the_truth_lies_inside_however_sessions_and_repetitions_scatter(
    counts: tuple[int, ...], ratio: float
) -> None:
    rng = np.random.default_rng(5)
    trials, inside = 600, 0
    for _ in range(trials):
        offsets = rng.normal(0, ratio, len(counts))
        found = quantity_from_sessions(
            [50 + o + rng.normal(0, 1, n) for o, n in zip(offsets, counts, strict=True)]
        )
        inside += abs(found.mean - 50) <= found.half_width_95
    assert 0.92 <= inside / trials <= 0.985  # 95 to 97 %, give or take three standard deviations


def test_a_profile_of_before_keeps_its_hash_and_opens(tmp_path: Path) -> None:
    """The hash is that of a profile written when quantities had no sessions."""
    sealed = profile().sealed()
    assert sealed.content_sha256 == "e5cb6aed47b11b55cbf6ea3d1781a8c2d9601188eb594df3761a967e7ca27ba3"
    path = tmp_path / "old.json"
    data = json.loads(sealed.to_json())
    for name in ("sessions", "stated_spread"):
        del data[name]
    for phase in ("probe", "epoch"):
        for quantity in (data[phase]["duration_s"], data[phase]["gross_j"]):
            for name in ("sessions", "session_sd", "session_sd_from"):
                del quantity[name]
    path.write_text(json.dumps(data))
    opened = load_profile(path, verify=lambda _: True)
    assert opened.is_sealed
    assert opened.sessions is None
    assert opened.epoch.duration_s.sessions is None


def test_sessions_are_part_of_the_hash() -> None:
    """Whoever edits the number of sessions in a file edits the file."""
    cost = profile().epoch
    more = cost.duration_s.model_copy(update={"sessions": 3})
    edited = profile(epoch=cost.model_copy(update={"duration_s": more}))
    assert edited.sha256() != profile().sha256()
