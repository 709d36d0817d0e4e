"""The time base by hand: reads at 1000 ticks a second, a million nanoseconds each."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from power.model import Accuracy, InstrumentInfo, RangeAccuracy
from power.timebase import Timebase, TimebaseFitter, _Segment, clock_tolerance_ppm

T0_NS = 10**15
MS = 1_000_000


def fitter_of(reads: list[tuple[int, int]], **options: float) -> TimebaseFitter:
    fitter = TimebaseFitter(1000.0, **options)
    for tick, arrival_ns in reads:
        fitter.add(tick, arrival_ns)
    return fitter


def refused(**fields: object) -> set[str]:
    with pytest.raises(ValidationError) as error:
        Timebase.model_validate(fields)
    return {str(one["loc"][0]) for one in error.value.errors() if one["loc"]}


def test_limits_of_the_fields() -> None:
    assert refused(ticks=(1,), host_ns=(2,)) == {"ticks", "host_ns"}
    two = {"ticks": (1, 2), "host_ns": (3, 4)}
    assert refused(**two, residual_ns=-0.1, beyond_ns=-0.1) == {"residual_ns", "beyond_ns"}
    plain = Timebase.model_validate(two)
    assert (plain.residual_ns, plain.beyond_ns) == (0.0, 0.0)
    some = Timebase.model_validate({**two, "residual_ns": 0.5, "beyond_ns": 0.25})
    assert some.model_dump() == {**two, "residual_ns": 0.5, "beyond_ns": 0.25}
    assert "beyond_ns" not in plain.model_dump()
    for zero in ("residual_ns", "beyond_ns"):
        assert getattr(Timebase.model_validate({**two, zero: 0.0}), zero) == 0.0


@pytest.mark.parametrize(
    ("ticks", "host_ns", "message"),
    [
        ((0, 5, 5), (0, 1, 2), "ticks: knots must increase"),
        ((0, 5, 6), (0, 2, 2), "host_ns: knots must increase"),
        ((0, 5, 6), (0, 2, 1), "host_ns: knots must increase"),
        ((0, 5, 6), (0, 2), "different number of knots"),
    ],
)
def test_knots_are_checked(ticks: tuple[int, ...], host_ns: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Timebase(ticks=ticks, host_ns=host_ns)


BENT = Timebase(ticks=(100, 110, 130, 190), host_ns=(1000, 1050, 1130, 1310))
"""5, 4 and 3 ns a tick."""


def test_rates_by_hand() -> None:
    assert BENT.tick_hz == pytest.approx(90 / 310e-9, rel=1e-12)
    assert BENT.drift_ppm == pytest.approx((5 / 3 - 1) * 1e6, rel=1e-12)
    three = Timebase(ticks=(100, 110, 130), host_ns=(1000, 1050, 1130))
    assert three.drift_ppm == pytest.approx((5 / 4 - 1) * 1e6)
    assert Timebase(ticks=(100, 110), host_ns=(1000, 1050)).drift_ppm == 0.0


def test_every_line_and_both_ends_by_hand() -> None:
    ticks = np.array([90, 100, 107, 110, 112, 130, 131, 190, 200])
    host_ns = np.array([950, 1000, 1035, 1050, 1058, 1130, 1133, 1310, 1340])
    assert BENT.to_host_ns(ticks).tolist() == host_ns.tolist()
    assert BENT.to_ticks(host_ns).tolist() == ticks.tolist()
    assert BENT.to_ticks(np.array([1052, 1051])).tolist() == [110, 110]  # to the nearest tick
    assert BENT.to_host_ns(np.array([], np.int64)).dtype == np.int64


def info_of(**facts: float) -> InstrumentInfo:
    exact = Accuracy(
        current=(RangeAccuracy(name="all", gain_rel=0, offset_a=0),),
        voltage_gain_rel=0, voltage_offset_v=0, source="test",
    )  # fmt: skip
    return InstrumentInfo(
        kind="synthetic", emulated=True, rate_hz=10, tick_hz=10, uniform_ticks=True, accuracy=exact,
        facts=facts,
    )  # fmt: skip


def test_a_tolerance_is_one_percent_unless_the_instrument_knows_better() -> None:
    assert clock_tolerance_ppm(info_of()) == 10_000.0
    assert clock_tolerance_ppm(info_of(clock_tolerance_ppm=12.5)) == 12.5
    # 3 % fast: the line goes with 1 % through the read that arrived earliest for it, the last.
    reads = [(1000 * i, T0_NS + 970 * MS * i) for i in range(11)]
    fit = fitter_of(reads).fit()
    assert fit.ticks == (0, 10_000)
    assert fit.host_ns == (T0_NS + (9700 - 9900) * MS, T0_NS + 9700 * MS)
    # In the middle, at tick 5000: 4850 ms seen, 9700 - 4950 = 4750 ms on the line.
    assert fit.beyond_ns == pytest.approx(100 * MS)
    slow = fitter_of([(1000 * i, T0_NS + 1040 * MS * i) for i in range(11)]).fit()
    assert slow.host_ns == (T0_NS, T0_NS + 10_100 * MS)
    assert slow.beyond_ns == pytest.approx((5200 - 5050) * MS)


def test_a_tolerance_of_a_quartz_is_500_ppm() -> None:
    from power.timebase import QUARTZ_TOLERANCE_PPM

    reads = [(1000 * i, T0_NS + 1001 * MS * i) for i in range(11)]
    fit = fitter_of(reads, tolerance_ppm=QUARTZ_TOLERANCE_PPM).fit()
    assert fit.host_ns == (T0_NS, T0_NS + 10_005 * MS)
    assert fit.beyond_ns == pytest.approx(5 * 0.5 * MS)


def test_what_is_below_a_line_and_what_is_beyond_it_with_large_ticks() -> None:
    """No tolerance: the line has the nominal slope and goes through the read that is earliest for it."""
    first = 10**13
    early_ns = [400, 90, 160, 0, 310, 700]
    reads = [(first + 10 * i, T0_NS + 10 * MS * i + late) for i, late in enumerate(early_ns)]
    fit = fitter_of(reads, tolerance_ppm=0.0).fit()
    assert fit.host_ns == (T0_NS, T0_NS + 50 * MS)
    # The lower hull: 400, 90 (at 1), 0 (at 3), 700 (at 5). Over the mean, 2.5, the edge from 90 to 0.
    assert fit.beyond_ns == pytest.approx(90 - 45 * 1.5, abs=0.5)
    fits = fitter_of([(tick, T0_NS + (tick - first) * MS) for tick, _ in reads], tolerance_ppm=0.0).fit()
    assert fits.beyond_ns == 0.0


def test_the_hull_is_lower_and_keeps_no_point_that_it_does_not_need() -> None:
    segment = _Segment()
    for point in [(0, 5), (10, 3), (20, 1), (30, 4), (40, 7), (50, 30)]:
        segment.add(*point)
    assert segment.hull == [(0, 5), (20, 1), (40, 7), (50, 30)]
    assert (segment.n, segment.tick_sum) == (6, 150)
    # The mean tick is 25: the edge from 20 to 40, 0.3 a tick, with room for it.
    assert segment.line(0.31, 100_000.0) == pytest.approx((20, 1, 0.3, 0.0))
    # Of a slope of 0.5 at least, the read at 40 is the lowest: 7 - 0.5 * 15 = -0.5 at the mean, 2.5 seen.
    assert segment.line(0.5, 0.0) == pytest.approx((40, 7, 0.5, 3.0))
    assert segment.line(0.1, 0.0) == pytest.approx((20, 1, 0.1, 1.0))


def test_over_a_corner_the_earlier_edge_counts() -> None:
    """Ticks 0, 10, 20: the mean is the corner itself. Slopes of 1 and 2 ns are both allowed."""
    segment = _Segment()
    for point in [(0, 100), (10, 110), (20, 130)]:
        segment.add(*point)
    assert segment.line(1.5, 500_000.0) == pytest.approx((0, 100, 1.0, 0.0))


def test_one_read_has_the_nominal_rate() -> None:
    fit = fitter_of([(100, 7)]).fit()
    assert (fit.ticks, fit.host_ns) == ((100, 101), (7, 7 + MS))
    assert (fit.residual_ns, fit.beyond_ns) == (0.0, 0.0)
    with pytest.raises(ValueError, match="no reads"):
        TimebaseFitter(1000.0).fit()


def test_ticks_that_do_not_increase_are_left_out() -> None:
    fit = fitter_of(
        [(10, 100 * MS), (20, 110 * MS), (20, 90 * MS), (15, 90 * MS), (30, 120 * MS)], tolerance_ppm=0.0
    ).fit()
    assert (fit.ticks, fit.host_ns, fit.residual_ns) == ((10, 30), (100 * MS, 120 * MS), 0.0)


def test_no_time_is_before_the_clock_began() -> None:
    """The line reaches back to 1000 ns before 0."""
    fit = fitter_of([(0, 5 * MS), (10, 10 * MS - 1000)], tolerance_ppm=0.0).fit()
    assert fit.host_ns == (0, 10 * MS - 1000)


def segments(last_tick: int) -> Timebase:
    """Lines of one second: on time, 10 us late, 30 us late; the nominal rate."""
    ticks = range(0, last_tick + 1, 100)
    late_ns = {0: 0, 1: 10_000, 2: 30_000}
    reads = [(tick, T0_NS + tick * MS + late_ns[min(tick // 1000, 2)]) for tick in ticks]
    return fitter_of(reads, tolerance_ppm=0.0, segment_s=1.0).fit()


def test_segments_meet_in_the_middle() -> None:
    fit = segments(2500)
    assert fit.ticks == (0, 1000, 2000, 2500)
    assert [ns - T0_NS - tick * MS for tick, ns in zip(fit.ticks, fit.host_ns, strict=True)] == [
        0, 5_000, 20_000, 30_000,
    ]  # fmt: skip


def test_a_last_segment_needs_half_its_length() -> None:
    assert segments(2500).ticks == (0, 1000, 2000, 2500)
    short = segments(2400)
    assert short.ticks == (0, 1000, 2400)
    assert short.host_ns[-1] == T0_NS + 2400 * MS + 10_000
    assert segments(900).ticks == (0, 900)
    assert segments(400).ticks == (0, 400)  # the only one is used however short


def test_a_segment_has_ten_minutes() -> None:
    reads = [(tick, T0_NS + tick * MS) for tick in range(0, 900_001, 50_000)]
    assert fitter_of(reads).fit().ticks == (0, 600_000, 900_000)
    early = [read for read in reads if read[0] != 600_000]
    assert fitter_of([*early[:-1], (950000, T0_NS + 950000 * MS)]).fit().ticks == (0, 650_000, 950_000)


def test_the_largest_excess_of_all_segments_is_told() -> None:
    """Of two segments the first is 2 % slow, the second on time."""
    reads = [(tick, T0_NS + tick * 1_020_000) for tick in range(0, 1000, 100)]
    reads += [(tick, T0_NS + 20 * MS + tick * MS) for tick in range(1000, 2000, 100)]
    fit = fitter_of(reads, segment_s=1.0, tolerance_ppm=10_000.0).fit()
    assert fit.beyond_ns == pytest.approx(450 * 10_000)


def delayed(late: list[int], **options: float) -> float:
    reads = [(i + 1, T0_NS + i * MS + 2000 * one) for i, one in enumerate(late)]
    return fitter_of(reads, tolerance_ppm=0.0, **options).fit().residual_ns


def test_which_delays_the_residual_is_the_median_of() -> None:
    """Half of them 0, half 2000 ns: a median of 1000, which any further one of either moves."""
    even = [0, 1] * 50
    assert delayed(even) == 1000.0
    assert delayed([*even, 1, 1, 1]) == 1000.0  # reads 101 to 103 are not asked
    assert delayed([*even, 1, 1, 1, 1]) == 2000.0  # 104 is
    assert delayed([*even, 1, 1, 1, 0]) == 0.0
    assert delayed([*even[:-1], 0]) == 0.0  # 100 itself is
    assert delayed([*even, *[1] * 4, *[0] * 8]) == 1000.0
    assert delayed([*even, *[1] * 4, *[0] * 7]) == 2000.0


def test_of_many_delays_the_last_1024_count() -> None:
    half = [0, 1] * 512
    assert delayed([0] * 90 + half, segment_s=0.05) == 1000.0
    assert delayed([0] * 90 + [1, 1] + half, segment_s=0.05) == 1000.0
    assert delayed([0] * 90 + half[:-1], segment_s=0.05) == 0.0
