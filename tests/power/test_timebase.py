import math
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulefleet.errors import DataQualityError
from power.timebase import QUARTZ_TOLERANCE_PPM, Timebase, TimebaseFitter, _Line, _Segment


def reads(rate_hz: float, skew_ppm: float, seconds: float, seed: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Ticks of the last sample of each read and when it arrived: 2 ms polling plus rare long delays."""
    rng = np.random.default_rng(seed)
    start_ns = 10**15
    period_ns = 1e9 / (rate_hz * (1 + skew_ppm * 1e-6))
    ticks = np.cumsum(rng.integers(5, 50, int(seconds * rate_hz / 27)))
    delay_ns = rng.exponential(2e6, len(ticks)) + (rng.random(len(ticks)) < 0.01) * 80e6
    return ticks, (start_ns + ticks * period_ns + delay_ns).astype(np.int64), start_ns


def fitted(reads: Iterable[tuple[float, float]], **options: float) -> Timebase:
    fitter = TimebaseFitter(1000.0, **options)
    for tick, arrival_ns in reads:
        fitter.add(int(tick), int(arrival_ns))
    return fitter.fit()


def test_the_residual_is_the_median_delay_above_the_line() -> None:
    """Reads every 10 ms, each 0, 1, 2, 3 or 4 ms late in turn."""
    reads = [(10 * i, 10**15 + 10**7 * i + 10**6 * (i % 5)) for i in range(60)]
    assert fitted(reads).residual_ns == pytest.approx(2e6, abs=1e3)
    assert fitted([(tick, t_ns - 10**6 * (tick // 10 % 5)) for tick, t_ns in reads]).residual_ns == 0.0


def test_the_residual_of_a_long_recording_is_that_of_its_last_minutes() -> None:
    """Up to 2 ms late at first, up to 6 ms later; lines of ten seconds."""
    late_ms = [(i % 3) * (1 if i < 10_000 else 3) for i in range(20_000)]
    reads = [(10 * i, 10**15 + 10**7 * i + 10**6 * late) for i, late in enumerate(late_ms)]
    assert fitted(reads, segment_s=10.0).residual_ns == pytest.approx(3e6, abs=1e3)
    assert fitted(reads[:10_000], segment_s=10.0).residual_ns == pytest.approx(1e6, abs=1e3)


@settings(max_examples=30, deadline=None)
@given(skew_ppm=st.floats(-200, 200), seed=st.integers(0, 2**31))
def test_finds_rate_and_offset_under_delays(skew_ppm: float, seed: int) -> None:
    ticks, arrivals, start_ns = reads(5000, skew_ppm, 60, seed)
    fitter = TimebaseFitter(5000)
    for tick, arrival in zip(ticks, arrivals, strict=True):
        fitter.add(int(tick), int(arrival))
    fit = fitter.fit()
    assert (fit.tick_hz / 5000 - 1) * 1e6 == pytest.approx(skew_ppm, abs=3)
    probe = np.linspace(ticks[0], ticks[-1], 11).astype(np.int64)
    truth = start_ns + probe * (1e9 / (5000 * (1 + skew_ppm * 1e-6)))
    assert np.abs(fit.to_host_ns(probe) - truth).max() < 0.5e6
    assert fit.residual_ns == pytest.approx(2e6 * math.log(2), rel=0.15)  # the median of an exponential delay


def test_follows_a_drifting_crystal() -> None:
    rng = np.random.default_rng(1)
    tick_s = np.arange(1, 7200 * 20) / 20.0
    skew = 20e-6 + 60e-6 * tick_s / 7200  # warms up by 60 ppm over two hours
    true_ns = 10**15 + np.cumsum(np.full(len(tick_s), 0.05) / (1 + skew)) * 1e9
    fitter = TimebaseFitter(5000)
    for tick, arrival in zip(tick_s * 5000, true_ns + rng.exponential(2e6, len(tick_s)), strict=True):
        fitter.add(int(tick), int(arrival))
    fit = fitter.fit()
    assert fit.drift_ppm == pytest.approx(55, abs=8)
    error_ms = (fit.to_host_ns((tick_s * 5000).astype(np.int64)) - true_ns) * 1e-6
    # One straight line over two hours would be off by 60e-6 * 7200 s / 8 = 54 ms.
    assert np.abs(error_ms).max() < 6


@pytest.mark.parametrize("skew_ppm", [-5000, -2000, 2000, 5000])
def test_follows_a_resonator(skew_ppm: float) -> None:
    ticks, arrivals, start_ns = reads(5000, skew_ppm, 590, seed=2)
    fitter = TimebaseFitter(5000)
    for tick, arrival in zip(ticks, arrivals, strict=True):
        fitter.add(int(tick), int(arrival))
    fit = fitter.fit()
    truth = start_ns + ticks * (1e9 / (5000 * (1 + skew_ppm * 1e-6)))
    assert np.abs(fit.to_host_ns(ticks) - truth).max() < 0.5e6
    assert fit.beyond_ns == 0


@pytest.mark.parametrize("skew_ppm", [-2000, 2000])
def test_a_clock_beyond_its_tolerance_is_not_followed_but_told(skew_ppm: float) -> None:
    ticks, arrivals, _ = reads(5000, skew_ppm, 590, seed=2)
    fitter = TimebaseFitter(5000, tolerance_ppm=QUARTZ_TOLERANCE_PPM)
    for tick, arrival in zip(ticks, arrivals, strict=True):
        fitter.add(int(tick), int(arrival))
    fit = fitter.fit()
    assert abs(fit.tick_hz / 5000 - 1) * 1e6 == pytest.approx(500, abs=1)
    assert fit.beyond_ns == pytest.approx(1500e-6 * 590e9 / 2, rel=0.02)
    assert Timebase.model_validate(fit.model_dump()) == fit


def test_clocks_that_do_not_run_together() -> None:
    """The instrument's went on for half an hour while this machine slept."""
    fitter = TimebaseFitter(1000)
    for second in range(120):
        fitter.add(second * 1000, 10**15 + second * 10**9)
    for second in range(120, 720):
        fitter.add((second + 1800) * 1000, 10**15 + second * 10**9)
    with pytest.raises(DataQualityError, match="one has leapt"):
        fitter.fit()


def test_knots_that_fall_together_are_refused_with_the_reason() -> None:
    """Ticks of a picosecond: the two ends of one read are the same nanosecond."""
    fitter = TimebaseFitter(1e12)
    fitter.add(5, 10**15)
    with pytest.raises(DataQualityError, match="cannot be brought together"):
        fitter.fit()


def test_a_record_from_before_keeps_its_hash() -> None:
    assert set(Timebase(ticks=(0, 1), host_ns=(0, 1)).model_dump()) == {"ticks", "host_ns", "residual_ns"}


def test_a_short_recording_keeps_the_nominal_rate() -> None:
    fitter = TimebaseFitter(5000, tolerance_ppm=QUARTZ_TOLERANCE_PPM)
    for tick, arrival in ((100, 10_000_000), (200, 90_000_000), (300, 95_000_000)):
        fitter.add(tick, arrival)
    assert fitter.fit().tick_hz == pytest.approx(5000, rel=6e-4)


def test_round_trip_is_exact_over_weeks() -> None:
    base = Timebase(ticks=(0, 5000 * 86400 * 21), host_ns=(10**15, 10**15 + 86400 * 21 * 10**9 + 12345))
    ticks = np.array([0, 1, 4999, 5000 * 86400 * 21 - 1], np.int64)
    assert (base.to_ticks(base.to_host_ns(ticks)) == ticks).all()


@pytest.mark.parametrize("knots", [((0, 0), (1, 2)), ((0, 5), (3, 3)), ((5, 1), (1, 2))])
def test_knots_must_increase(knots: tuple[tuple[int, int], tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="must increase"):
        Timebase(ticks=knots[0], host_ns=knots[1])


def test_a_fit_costs_the_same_however_long_the_recording_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of segments that are over are not fitted again."""
    fitter = TimebaseFitter(1000.0, segment_s=1.0)
    fitted: list[int] = []
    honest = _Segment.line

    def counted(segment: _Segment, *arguments: float) -> _Line:
        fitted.append(segment.n)
        return honest(segment, *arguments)

    monkeypatch.setattr(_Segment, "line", counted)
    for tick in range(0, 20_000, 10):
        fitter.add(tick, 10**9 + tick * 10**6 + tick % 7)
    fitted.clear()
    found = fitter.fit()
    assert len(fitted) == 1
    assert len(found.ticks) == 21
    assert found.tick_hz == pytest.approx(1000.0, rel=1e-6)
