import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.profiles.curve import fit_curve
from power.profile.model import MeasuredLoad, PhaseCost, Quantity, interpolate

REASON = {
    None: "no marginal energy",
    -0.1: "its marginal energy of -0.1 J is not above zero",
    0.0: "its marginal energy of 0 J is not above zero",
}


def level(
    load: float, seconds: float, joules: float | None, *, kind: str = "cpu", width: float = 0.05
) -> MeasuredLoad:
    cost = PhaseCost(
        duration_s=Quantity(mean=seconds, half_width_95=width * seconds),
        gross_j=Quantity(mean=10.0),
        marginal_j=None if joules is None else Quantity(mean=joules, half_width_95=width * abs(joules)),
    )
    return MeasuredLoad(name=f"{kind}-{load}", kind="none" if load == 0 else kind, load=load, epoch=cost)


def test_points_that_are_monotone_stay_where_they_are() -> None:
    curve, _ = fit_curve([level(0, 2.0, 4.0), level(0.5, 3.0, 4.4), level(1.0, 5.0, 6.0)])
    assert [p.load for p in curve] == [0, 0.5, 1]
    assert [p.slowdown for p in curve] == pytest.approx([1, 1.5, 2.5])
    assert [p.energy_factor for p in curve] == pytest.approx([1, 1.1, 1.5])


def test_noise_against_the_trend_is_pooled_by_certainty() -> None:
    """1.6 at half load is nine times as certain as 1.4 at three quarters: the pool lies near it."""
    half, three_quarters = level(0.5, 1.6, 1.0, width=0.01), level(0.75, 1.4, 1.0, width=0.03)
    curve, _ = fit_curve([level(0, 1.0, 1.0), half, three_quarters, level(1.0, 2.0, 1.0)])
    assert curve[1].slowdown == curve[2].slowdown
    assert curve[1].slowdown == pytest.approx((9 * 1.6 + 1.4) / 10)
    assert curve[3].slowdown == pytest.approx(2.0)


def test_a_value_below_one_is_noise_and_the_base_stays() -> None:
    curve, _ = fit_curve([level(0, 1.0, 1.0), level(0.5, 0.97, 1.0), level(1.0, 1.5, 1.0)])
    assert [p.slowdown for p in curve] == pytest.approx([1, 1, 1.5], abs=1e-6)


def test_energy_may_fall_with_load() -> None:
    """A chip that is awake anyway: the training's own part gets smaller."""
    curve, _ = fit_curve([level(0, 1.0, 4.0), level(0.5, 1.5, 3.0), level(1.0, 2.0, 3.2)])
    assert curve[0].energy_factor == 1
    assert curve[1].energy_factor == curve[2].energy_factor == pytest.approx(0.775, abs=0.01)


def test_what_cannot_be_on_the_curve_is_left_out() -> None:
    base = level(0, 1.0, 1.0)
    assert fit_curve([base]) == ((), ())
    assert fit_curve([base, level(0.5, 2.0, 1.0, kind="memory")]) == ((), ())
    assert fit_curve([level(0.25, 1.0, 1.0), level(0.5, 2.0, 1.0)]) == ((), ())


@pytest.mark.parametrize("unknown", [None, -0.1, 0.0])
def test_a_level_without_marginal_energy_still_slows_down(unknown: float | None) -> None:
    """Its energy lies on the curve of the others, and a note says so."""
    levels = [level(0, 1.0, 1.0), level(0.25, 1.5, 1.2), level(0.5, 2.0, unknown), level(0.75, 3.0, 1.6)]
    curve, notes = fit_curve(levels)
    assert [p.slowdown for p in curve] == pytest.approx([1, 1.5, 2.0, 3.0])
    assert curve[1].energy_factor == pytest.approx(1.2)
    assert 1.2 < curve[2].energy_factor < 1.6
    assert curve[3].energy_factor == pytest.approx(1.6)
    assert notes == (
        f"background 'cpu-0.5': {REASON[unknown]}; its energy is taken from the levels beside it",
    )


def test_without_any_marginal_energy_the_factor_is_held_at_one() -> None:
    curve, notes = fit_curve([level(0, 1.0, 1.0), level(0.5, 2.0, None), level(1.0, 3.0, -1.0)])
    assert [p.slowdown for p in curve] == pytest.approx([1, 2, 3])
    assert [p.energy_factor for p in curve] == [1, 1, 1]
    assert len(notes) == 2
    curve, notes = fit_curve([level(0, 1.0, None), level(0.5, 2.0, 3.0)])
    assert [(p.slowdown, p.energy_factor) for p in curve] == [(1, 1), (2, 1)]
    assert notes == ("without load no marginal energy is known: under load it is taken to be the same",)


def test_different_loads_of_the_same_size_are_averaged_by_certainty_with_a_note() -> None:
    """Two workers at a quarter are not one at a half, but the curve knows their sum only."""
    sure = level(0.5, 1.6, 1.0, width=0.01).model_copy(update={"name": "two-quarters"})
    curve, notes = fit_curve([level(0, 1.0, 1.0), sure, level(0.5, 1.4, 2.0, width=0.03)])
    assert [p.load for p in curve] == [0, 0.5]
    assert curve[1].slowdown == pytest.approx((9 * 1.6 + 1.4) / 10)
    assert curve[1].energy_factor == pytest.approx((9 * 1.0 + 2.0) / 10)
    assert notes == (
        "backgrounds 'two-quarters', 'cpu-0.5' ask for the same load of 50%: the curve has their mean",
    )


def test_loads_that_differ_by_rounding_are_the_same_load() -> None:
    curve, notes = fit_curve([level(0, 1.0, 1.0), level(0.1 + 0.2, 1.6, 1.0), level(0.3, 1.4, 1.0)])
    assert len(curve) == 2
    assert curve[1].slowdown == pytest.approx(1.5)
    assert len(notes) == 1


def test_loads_that_differ_in_the_ninth_digit_are_two() -> None:
    for apart, points in ((4e-10, 2), (2e-9, 3)):
        curve, _ = fit_curve([level(0, 1.0, 1.0), level(0.5, 1.4, 1.0), level(0.5 + apart, 1.6, 1.0)])
        assert len(curve) == points


def test_what_was_measured_once_counts_like_the_least_certain_of_all() -> None:
    """The widest is 10 %, of the third level: so both at a half count alike, and lie at their mean."""
    once = level(0.5, 1.2, 1.0)
    duration = once.epoch.duration_s.model_copy(update={"half_width_95": None})
    once = once.model_copy(update={"epoch": once.epoch.model_copy(update={"duration_s": duration})})
    wide = level(0.5, 1.8, 1.0, width=0.1)
    curve, _ = fit_curve([level(0, 1.0, 1.0, width=0.02), once, wide, level(1.0, 2.0, 1.0)])
    assert curve[1].slowdown == pytest.approx(1.5)


def test_the_closer_of_the_two_trends_by_least_squares() -> None:
    """Energies of 1, 1.1 and 0.8 at 1, 1 and 5 %: weights of 25 : 25 : 1.

    Rising, the last two are pooled at (25 x 1.1 + 0.8) / 26: off by 25 x 0.0115^2 + 0.288^2 = 0.087 in all.
    Falling, the second is pooled with the first: 25 x 0.1^2 = 0.25. By absolute values, third or fourth
    powers the falling trend would be the closer one.
    """
    unsure = level(0.75, 3.0, 0.8, width=0.05)
    sure = [level(load, 1 + load, joules, width=0.01) for load, joules in ((0.25, 1.0), (0.5, 1.1))]
    curve, _ = fit_curve([level(0, 1.0, 1.0), *sure, unsure])
    assert [p.energy_factor for p in curve] == pytest.approx([1, 1, 28.3 / 26, 28.3 / 26], rel=1e-6)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(1, 20), st.floats(0.3, 30), st.floats(0.3, 30)),
        min_size=1,
        max_size=8,
        unique_by=lambda row: row[0],
    )
)
def test_every_fit_is_monotone_between_its_points_too(rows: list[tuple[int, float, float]]) -> None:
    curve, _ = fit_curve([level(0, 1.0, 1.0), *(level(n / 20, s, j) for n, s, j in rows)])
    loads = [p.load for p in curve]
    at = np.linspace(0, 1, 201)
    slow = interpolate(loads, [p.slowdown for p in curve], at)
    energy = interpolate(loads, [p.energy_factor for p in curve], at)
    assert slow[0] == pytest.approx(1)
    assert energy[0] == pytest.approx(1)
    assert np.all(np.diff(slow) >= -1e-9)
    steps = np.diff(energy)
    assert np.all(steps >= -1e-9) or np.all(steps <= 1e-9)
    assert slow.min() > 0
    assert energy.min() > 0


def test_interpolation_holds_its_ends() -> None:
    assert interpolate([], [], [0.3, 0.9]).tolist() == [1, 1]
    assert interpolate([0.5], [1.4], 0.1) == pytest.approx(1.4)
    assert interpolate([0.0, 0.5], [1.0, 2.0], [-1, 0.25, 0.7]).tolist() == pytest.approx([1, 1.5, 2])
