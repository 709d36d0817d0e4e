"""What a window says of itself, by hand; loss and breaks at their exact limits."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from power.energy.integration import antiderivative, exact_ns, held, integrate, piece
from power.energy.windows import GapPolicy, Window, WindowEnergy, WindowSums, window_energies
from power.model import AVERAGES_FACT, Accuracy, Finding, InstrumentInfo, Loss, RangeAccuracy, Severity
from tests.power.by_hand.made import energy_of
from tests.power.synthetic import START_NS, block, info

MS = 1_000_000


def span(start_ms: float, end_ms: float, label: str = "") -> Window:
    return Window(START_NS + round(start_ms * MS), START_NS + round(end_ms * MS), label)


def two_ranges(**more: object) -> InstrumentInfo:
    accuracy = Accuracy(
        current=(
            RangeAccuracy(name="fine", up_to_a=0.3, gain_rel=0.01, offset_a=0.001),
            RangeAccuracy(name="coarse", gain_rel=0.02, offset_a=0.004),
        ),
        voltage_gain_rel=0, voltage_offset_v=0, source="test",
    )  # fmt: skip
    return info(accuracy=accuracy, **more)


def test_a_window_and_its_energy() -> None:
    window = Window(2 * 10**9, 5 * 10**9, "a")
    assert window.duration_s == pytest.approx(3.0)
    assert window.moved(-7) == Window(2 * 10**9 - 7, 5 * 10**9 - 7, "a")
    assert Window(1, 2).label == ""
    energy = energy_of(2, 5, 6.0)
    assert (energy.duration_s, energy.mean_power_w, energy.valid) == (
        pytest.approx(3.0),
        pytest.approx(2.0),
        True,
    )
    assert energy_of(2, 5, None).mean_power_w is None
    assert not energy_of(2, 5, 6.0, problems=("lost",)).valid
    plain = WindowEnergy("", 0, 1, 1.0, 1.0, 1, 0.0, loss_known=True, bridged_s=0.0)
    assert (plain.range_energy_j, plain.range_volt_s, plain.problems, plain.notes) == ((), (), (), ())


def test_limits_of_a_policy() -> None:
    policy = GapPolicy()
    assert (policy.bridge_up_to_s, policy.max_lost_fraction, policy.max_lost_averages) == (0.05, 0.001, 0.02)
    names = ("bridge_up_to_s", "max_lost_fraction", "max_lost_averages")
    for name in names:
        for good in (0.0, 0.5, 1.0):
            assert getattr(GapPolicy.model_validate({name: good}), name) == good
        with pytest.raises(ValidationError):
            GapPolicy.model_validate({name: -0.01})
    for name in names[1:]:
        with pytest.raises(ValidationError):
            GapPolicy.model_validate({name: 1.01})
    assert GapPolicy(bridge_up_to_s=7.0).longest_bridge_s(1000.0) == 7.0


def test_the_longest_bridge_and_the_largest_loss() -> None:
    policy = GapPolicy()
    assert policy.longest_bridge_s(1000.0) == 0.05
    assert policy.longest_bridge_s(10.0) == 0.25  # two and a half periods, more than 50 ms
    assert policy.largest_loss(info()) == 0.001
    averages = info(facts={AVERAGES_FACT: True})
    assert policy.largest_loss(averages) == 0.02
    assert GapPolicy(max_lost_fraction=0.3).largest_loss(averages) == 0.3
    assert GapPolicy(max_lost_fraction=0.0).largest_loss(info()) == 0.0


FINDINGS = (
    Finding(code="clipping", severity=Severity.ERROR, message="at its limit", first_index=4, last_index=6),
    Finding(code="pause", severity=Severity.WARNING, message="nothing came", first_index=8, last_index=8),
    Finding(code="late_data", severity=Severity.INFO, message="it came late", first_index=2, last_index=2),
    Finding(code="other", severity=Severity.WARNING, message="no matter", first_index=0, last_index=9),
)


def test_findings_at_the_first_and_last_sample() -> None:
    """Ten samples, one each millisecond: which of them lie in a window."""
    windows = [span(0, 2), span(2, 4), span(1.5, 4.5), span(6, 8), span(7, 8.5), span(6.5, 8), span(4, 4.5)]
    found = integrate([block([0.1] * 10)], windows, info(), findings=FINDINGS)
    clipped, paused, late = "clipping: at its limit", "pause: nothing came", "late_data: it came late"
    assert [one.problems for one in found] == [
        (), (), (clipped,), (clipped,), (), (), (clipped,),
    ]  # fmt: skip
    assert [one.notes for one in found] == [(), (late,), (late,), (), (paused,), (), ()]
    assert [one.n_samples for one in found] == [2, 2, 3, 2, 2, 1, 1]
    # One without a sample may lie next to any of them.
    (between,) = integrate([block([0.1] * 10)], [span(0.2, 0.8)], info(), findings=FINDINGS)
    assert between.problems == ("no sample lies inside", clipped)
    assert between.notes == (paused, late)


def test_losses_at_their_limits() -> None:
    """Of 1000 ms one lost sample, half of the two periods around it: 0.1 % is allowed, more is not."""
    parts = [block([0.1] * 100), block([0.1] * 1000, first_index=101, dropped_before=1)]
    exact, over, none = integrate(parts, [span(0, 1000), span(0.5, 1000), span(0, 99)], info())
    assert exact.lost_fraction == pytest.approx(0.001, rel=1e-9)
    lenient = GapPolicy(max_lost_fraction=exact.lost_fraction)
    assert integrate(parts, [span(0, 1000)], info(), policy=lenient)[0].valid
    assert over.problems == ("0.100% of the samples were lost, 0.100% are allowed",)
    assert over.energy_j is not None
    assert none.lost_fraction == none.bridged_s == 0.0
    assert exact.bridged_s == pytest.approx(0.002)


def test_a_gap_that_is_just_bridged() -> None:
    parts = [block([0.1] * 100), block([0.3] * 100, first_index=149, dropped_before=49)]
    windows = [span(50, 200), span(0, 99), span(0, 100), span(149, 200), span(148, 200), span(110, 120)]
    policy = GapPolicy(bridge_up_to_s=0.05, max_lost_fraction=1.0)
    found = integrate(parts, windows, info(), policy=policy)
    # At 4 V: 49 ms of 0.4 W, 50 ms from 0.4 to 1.2 W, 51 ms of 1.2 W.
    assert found[0].energy_j == pytest.approx(0.0196 + 0.04 + 0.0612)
    assert found[0].bridged_s == pytest.approx(0.05)
    assert found[0].lost_fraction == pytest.approx(0.05 * 49 / 50 / 0.15)
    assert [one.bridged_s for one in found] == pytest.approx([0.05, 0, 0.001, 0, 0.001, 0.01])
    assert found[5].problems == ("no sample lies inside",)
    broken = integrate(parts, windows, info(), policy=GapPolicy(bridge_up_to_s=0.0499, max_lost_fraction=1.0))
    long = ("a gap longer than 0.0499 s lies inside",)
    assert [one.problems for one in broken] == [long, (), long, (), long, long]
    assert (broken[0].range_energy_j, broken[0].range_volt_s, broken[0].charge_c) == ((), (), None)


def test_losses_that_nobody_counted() -> None:
    """A gap of unknown loss after sample 9; 40 ms, which is bridged."""
    parts = [block([0.1] * 10), block([0.1] * 50, first_index=50, dropped_before=None)]
    windows = [span(0, 9), span(0, 10), span(50, 60), span(49, 60), span(0, 60), span(20, 30)]
    found = integrate(parts, windows, info())
    assert [one.loss_known for one in found] == [True, False, True, False, False, False]
    assert [one.bridged_s for one in found] == [0.0] * 6
    assert [one.lost_fraction for one in found] == [0.0] * 6
    said = "the instrument cannot tell whether samples were lost"
    assert [said in one.notes for one in found] == [False, True, False, True, True, True]
    (never,) = integrate(parts, [span(0, 9)], info(loss=Loss.UNKNOWN))
    assert (never.loss_known, never.notes) == (False, (said,))


def test_rows_that_are_averages_hold_until_the_next() -> None:
    parts = [block([0.1, 0.2, 0.3]), block([0.5, 0.4], first_index=4, dropped_before=1)]
    averages = info(facts={AVERAGES_FACT: True})
    windows = [span(0, 3), span(0.5, 2.25), span(0, 6), span(5, 6), span(3, 4), span(2.5, 4.5)]
    found = integrate(parts, windows, averages, policy=GapPolicy(max_lost_fraction=1.0))
    mj = [one.energy_j and one.energy_j * 1e3 for one in found]
    # 4 V; the missing row is a line from 0.3 to 0.5 A.
    assert mj[:4] == pytest.approx([2.4, 4 * (0.05 + 0.2 + 0.075), 4 * (0.6 + 0.4 + 0.9), 1.6])
    assert mj[5] == pytest.approx(4 * (0.15 + 0.4 + 0.25))
    assert found[4].problems == ("no sample lies inside",)
    assert [one.bridged_s for one in found] == pytest.approx([0, 0, 0.001, 0, 0.001, 0.001])
    assert [one.lost_fraction for one in found] == pytest.approx([0, 0, 1 / 6, 0, 1, 0.5])
    assert found[2].notes == ()
    strict = GapPolicy(max_lost_fraction=0.001, max_lost_averages=0.5)
    noted = integrate(parts, windows, averages, policy=strict)
    rows = "of the rows are missing: the interval holds what they may hide"
    assert [one.notes for one in noted] == [(), (), (f"16.667% {rows}",), (), (), (f"50.000% {rows}",)]
    assert [one.valid for one in noted] == [True, True, True, True, False, True]
    exact = GapPolicy(max_lost_fraction=found[2].lost_fraction, max_lost_averages=0.5)
    assert integrate(parts, windows, averages, policy=exact)[2].notes == ()


def test_ranges_charge_and_order() -> None:
    """0.1 A for two samples, 0.5 A for three, at 2 and 4 V; windows that overlap, in no order."""
    parts = [block([0.1, 0.1, 0.5, 0.5, 0.5], [2.0, 2.0, 4.0, 4.0, 4.0])]
    late, whole, early = integrate(
        parts, [span(2, 4, "late"), span(0, 4, "all"), span(0, 1, "early")], two_ranges()
    )
    assert [one.label for one in (late, whole, early)] == ["late", "all", "early"]
    assert late.energy_j == pytest.approx(4e-3)
    assert late.charge_c == pytest.approx(1e-3)
    assert late.range_energy_j == pytest.approx((0.0, 4e-3), abs=1e-10)
    assert late.range_volt_s == pytest.approx((0.0, 8e-3), abs=1e-10)
    assert early.range_energy_j == pytest.approx((0.2e-3, 0.0), abs=1e-10)
    assert whole.energy_j == pytest.approx(0.2e-3 + 1.1e-3 + 4e-3)
    # Between the samples the power goes from 0.2 to 2 W: what lies above goes from 0 to 2 W.
    assert whole.range_energy_j == pytest.approx((0.2e-3 + 0.1e-3, 1e-3 + 4e-3))
    assert whole.range_volt_s == pytest.approx((2e-3 + 1e-3, 2e-3 + 8e-3))
    assert (late.start_ns, late.end_ns) == (START_NS + 2 * MS, START_NS + 4 * MS)


def test_empty_blocks_are_nothing() -> None:
    parts = [block([]), block([0.1] * 5), block([], first_index=5), block([0.1] * 5, first_index=5)]
    (found,) = integrate(parts, [span(0, 9)], info())
    assert (found.energy_j, found.n_samples) == (pytest.approx(3.6e-3), 9)


def test_single_samples_make_a_line_together() -> None:
    parts = [block([0.1 * i], first_index=i) for i in range(5)]
    (found, part) = integrate(parts, [span(0, 4), span(0.5, 3.5)], info())
    assert found.energy_j == pytest.approx(4 * 0.1 * 8 * 1e-3)
    assert part.energy_j == pytest.approx(4 * 0.1 * (3.5**2 - 0.5**2) / 2 * 1e-3)
    assert (found.n_samples, part.n_samples) == (4, 3)


def test_blocks_that_overlap_in_time_count_once() -> None:
    """The second begins 3 ms before the first ends: its samples are moved there, and last no time."""
    second = block([0.5] * 6, first_index=5)
    moved = type(second)(
        second.t_ns - 3 * MS, second.ticks, second.current_a, second.voltage_v, 5, 0
    )  # fmt: skip
    found, beyond = integrate([block([0.1] * 5), moved], [span(0, 7), span(5, 6)], info())
    # 4 ms of 0.4 W; then 2 ms that jump to 2 W at once, and one more.
    assert found.energy_j == pytest.approx(1.6e-3 + 6e-3)
    assert beyond.energy_j == pytest.approx(2e-3)
    assert found.n_samples == 10


def test_exact_times() -> None:
    ticks = np.array([100, 103, 106, 109])
    whole = np.array([7, 10, 13, 16]) + 10**15
    assert exact_ns(whole, ticks).tolist() == [0, 3, 6, 9]
    # 3 1/3 ns a step, rounded: taken from the ticks.
    assert exact_ns(np.array([7, 10, 14, 17]) + 10**15, ticks).tolist() == pytest.approx(
        [0, 10 / 3, 20 / 3, 10]
    )
    # Off by 1.5 ns is a rounding, by more it is a bend.
    assert exact_ns(np.array([0, 9, 18, 33]), np.array([0, 1, 2, 4])).tolist() == [0, 8.25, 16.5, 33]
    assert exact_ns(np.array([0, 8, 15, 33]), np.array([0, 1, 2, 4])).tolist() == pytest.approx(
        [0, 8.25, 16.5, 33]
    )
    assert exact_ns(np.array([0, 8, 14, 33]), np.array([0, 1, 2, 4])).tolist() == [0, 8, 14, 33]
    assert exact_ns(np.array([0, 5, 9]), np.array([3, 3, 3])).tolist() == [0, 5, 9]
    assert exact_ns(np.array([4, 9]), np.array([3, 3])).tolist() == [0, 5]
    assert exact_ns(np.array([0, 1, 4]), np.array([3, 3, 5])).tolist() == [0, 0, 4]
    assert exact_ns(np.array([0, 1, 3]), np.array([3, 4, 5])).tolist() == [0, 1.5, 3]


def test_averages_have_corners() -> None:
    x, y = held(np.array([0.0, 2.0, 5.0]), np.array([[1.0, 2.0, 3.0]]), 4)
    assert x.tolist() == [0, 2, 2, 5, 5, 9]
    assert y.tolist() == [[1, 1, 2, 2, 3, 3]]
    x, y = held(np.array([0.0, 2.0]), np.array([[1.0, 2.0]]), 0)
    assert (x.tolist(), y.tolist()) == ([0, 2], [[1, 2]])


def test_the_integral_up_to_a_time() -> None:
    x, y = np.array([0.0, 2.0, 2.0, 6.0]), np.array([[1.0, 3.0, 5.0, 1.0], [2.0, 2.0, 2.0, 2.0]])
    at = np.array([0.0, 1.0, 2.0, 4.0, 6.0])
    found = antiderivative(x, y, at) * 1e9
    assert found[0] == pytest.approx([0, 1.5, 4, 4 + 8, 4 + 12])
    assert found[1] == pytest.approx(2 * at)
    left, right = np.array([1.0, 4.0]), np.array([3.0, 4.0])
    assert piece(left, right, np.array([1.0, 2.0]), np.array([4.0, 0.0])).tolist() == pytest.approx(
        [1.25, 8.0]
    )
    assert piece(left, right, np.array([0.25, 2.0]), np.array([0.5, 0.0])).tolist() == pytest.approx(
        [0.375, 8.0]
    )


def test_sums_in_another_order_and_none_at_all() -> None:
    zero = WindowSums.zero(3, 2)
    assert zero.integrals.shape == (3, 2)
    assert zero.span_ns is None
    for name in ("n_samples", "first_index", "last_index", "bridged_s", "lost_s", "broken", "unknown"):
        assert getattr(zero, name).tolist() == [0, 0], name
    sums = WindowSums(
        integrals=np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), n_samples=np.array([7, 8]),
        first_index=np.array([9, 10]), last_index=np.array([11, 12]), bridged_s=np.array([0.1, 0.2]),
        lost_s=np.array([0.3, 0.4]), broken=np.array([True, False]), unknown=np.array([False, True]),
        span_ns=(5, 6),
    )  # fmt: skip
    turned = sums.taken(np.array([1, 0]))
    assert turned.integrals.tolist() == [[2, 1], [4, 3], [6, 5]]
    assert (turned.n_samples.tolist(), turned.first_index.tolist()) == ([8, 7], [10, 9])
    assert (turned.last_index.tolist(), turned.bridged_s.tolist()) == ([12, 11], [0.2, 0.1])
    assert (turned.lost_s.tolist(), turned.broken.tolist()) == ([0.4, 0.3], [False, True])
    assert (turned.unknown.tolist(), turned.span_ns) == ([True, False], (5, 6))


def test_what_lies_outside() -> None:
    sums = WindowSums.zero(3, 4)
    sums.span_ns = (100, 2_000_000_100)
    sums.n_samples += 1
    windows = [
        Window(100, 2_000_000_100),
        Window(99, 200),
        Window(200, 2_000_000_101),
        Window(-400_000_000, 3 * 10**9),
    ]
    found = window_energies(windows, sums, info(), GapPolicy(), ())
    assert [one.problems for one in found] == [
        (),
        ("starts 1e-09 s before the first sample",),
        ("ends 1e-09 s after the last sample",),
        ("starts 0.4 s before the first sample", "ends 1 s after the last sample"),
    ]
    same, back = window_energies([Window(5, 5), Window(6, 5)], WindowSums.zero(3, 2), info(), GapPolicy(), ())
    assert same.problems == back.problems == ("the window does not end after it starts",)
    assert same.lost_fraction == back.lost_fraction == 0.0
