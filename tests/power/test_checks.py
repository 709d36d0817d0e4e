import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from power.model import Finding, Severity
from power.recording.checks import FLAT_S, SampleChecks, finite_rows, merge_findings
from power.timebase import QUARTZ_TOLERANCE_PPM, TOLERANCE_FACT, TimebaseFitter
from tests.power.synthetic import START_NS, block, config, info, timebase

RATE_HZ = 1000
LIVE = np.random.default_rng(1).normal(0.5, 0.01, 10_000).astype(np.float32)


def check(*blocks, clock=None, limits=None, **info_values) -> dict[str, Finding]:
    checks = SampleChecks(info(**info_values), limits)
    for part in blocks:
        checks.add(part)
    return {f.code: f for f in checks.finish(clock or timebase(10_000))}


def test_a_good_recording_has_no_findings() -> None:
    parts = [block(LIVE[i : i + 500], 4.0, first_index=i) for i in range(0, 10_000, 500)]
    assert check(*parts, limits=config()) == {}


def test_gaps_are_counted_in_samples() -> None:
    found = check(
        block(LIVE[:100]),
        block(LIVE[:100], first_index=107, dropped_before=7),
        block(LIVE[:100], first_index=210, dropped_before=3),
    )
    assert found == {
        "gap": Finding(
            code="gap",
            severity="warning",
            message="samples were lost",
            count=10,
            first_index=107,
            last_index=210,
            spans=((107, 107), (210, 210)),
        )
    }


def test_an_instrument_that_cannot_count_its_losses_says_so() -> None:
    found = check(block(LIVE[:100], dropped_before=None), block(LIVE[:100], first_index=100))
    assert (found["loss_unknown"].severity, found["loss_unknown"].count) == (Severity.INFO, 1)


def test_negative_current_counts_beyond_the_stated_offset() -> None:
    values = LIVE[:100].copy()
    values[5], values[50], values[60] = -0.0009, -0.0011, -2.0
    found = check(block(values, first_index=1000))
    assert (found["negative_current"].count, found["negative_current"].first_index) == (2, 1050)


def test_the_limits_of_the_device() -> None:
    values = LIVE[:100].copy()
    values[7] = 3.1
    found = check(block(values, 4.45), limits=config())
    assert {c: (f.severity, f.count) for c, f in found.items()} == {
        "above_current_limit": (Severity.ERROR, 1),
        "supply_voltage": (Severity.WARNING, 100),
        "over_voltage": (Severity.ERROR, 100),
    }
    assert check(block(values, 4.45)) == {}  # without a configuration there is nothing to compare with


def test_the_instruments_own_shutdown_does_not_hide_a_current_above_the_limit() -> None:
    shutdown = Finding(
        code="over_current", severity=Severity.ERROR, message="the unit shut down", first_index=90
    )
    values = LIVE[:100].copy()
    values[7] = 3.1
    of_checks = tuple(check(block(values), limits=config()).values())
    assert {f.code: f.first_index for f in merge_findings((shutdown,), of_checks)} == {
        "over_current": 90,
        "above_current_limit": 7,
    }


def test_an_error_against_other_limits_is_another_error() -> None:
    """As in a replay, whose meter tells what was found when it was recorded."""
    values = LIVE[:100].copy()
    values[7], values[50] = 3.1, 2.5
    before = tuple(check(block(values), limits=config()).values())
    again = tuple(check(block(values), limits=config(current_limit_a=2.0)).values())
    assert merge_findings(before, before) == before
    assert [f.count for f in merge_findings(before, again)] == [1, 2]


def test_voltage_max_leaves_room_for_the_voltmeter() -> None:
    # 4.3 V +- (1 % and 10 mV): a reading of 4.352 V may be 4.3 V.
    limits = config(voltage_v=4.3)
    assert check(block(LIVE[:100], 4.352), limits=limits) == {}
    assert set(check(block(LIVE[:100], 4.354), limits=limits)) == {"over_voltage"}


QUARTZ = {TOLERANCE_FACT: QUARTZ_TOLERANCE_PPM}


@pytest.mark.parametrize(
    ("facts", "offset_ppm", "residual_ns", "severity"),
    [(QUARTZ, 90, 0, None), (QUARTZ, -90, 0, None), (QUARTZ, 150, 0, Severity.WARNING),
     (QUARTZ, -150, 0, Severity.WARNING), (QUARTZ, 500, 10e6, None),
     ({}, 4900, 0, None), ({}, -4900, 0, None), ({}, 5100, 0, Severity.WARNING)],
)  # fmt: skip
def test_the_sample_rate(
    facts: dict[str, float], offset_ppm: float, residual_ns: float, severity: Severity | None
) -> None:
    # Twenty seconds: a delay of 10 ms may pass for 500 ppm.
    clock = timebase(20_000, tick_hz=RATE_HZ * (1 + offset_ppm * 1e-6), residual_ns=residual_ns)
    found = check(block(LIVE[:100]), clock=clock, facts=facts)
    assert {f.severity for f in found.values()} == ({severity} if severity else set())


@pytest.mark.parametrize("skew_ppm", [-2000, 2000])
def test_a_clock_beyond_its_tolerance_is_an_error_however_slow_the_link_seems(skew_ppm: float) -> None:
    fitter = TimebaseFitter(RATE_HZ, tolerance_ppm=QUARTZ_TOLERANCE_PPM)
    for tick in range(0, 590 * RATE_HZ, 50):
        fitter.add(tick, START_NS + round(tick / (1 + skew_ppm * 1e-6) * 1e9 / RATE_HZ))
    (found,) = check(block(LIVE[:100]), clock=fitter.fit(), facts=QUARTZ).values()
    assert (found.code, found.severity) == ("rate_offset", Severity.ERROR)
    assert "more than 500 ppm" in found.message
    assert "off by some 0.44 s" in found.message


@pytest.mark.parametrize(("seconds", "beyond_ns"), [(20, 9e6), (9, 4e8)])
def test_a_busy_host_does_not_accuse_the_clock(seconds: int, beyond_ns: float) -> None:
    assert check(block(LIVE[:100]), clock=timebase(1000 * seconds, beyond_ns=beyond_ns), facts=QUARTZ) == {}


def test_a_short_recording_does_not_judge_the_rate() -> None:
    assert check(block(LIVE[:100]), clock=timebase(9_000, tick_hz=RATE_HZ * 1.0005)) == {}


def test_a_drifting_crystal() -> None:
    clock = timebase(10_000).model_copy(
        update={"ticks": (0, 10_000, 20_000), "host_ns": (0, 10_000_000_000, 20_000_600_000)}
    )
    assert "changed by -60 ppm" in check(block(LIVE[:100]), clock=clock)["rate_drift"].message


def test_a_clock_that_does_not_advance_is_an_error() -> None:
    found = check(block(LIVE[:100], first_index=100), block(LIVE[:100], first_index=150))
    assert (found["clock_backwards"].severity, found["clock_backwards"].count) == (Severity.ERROR, 1)


def naive_flat_lines(current: np.ndarray, limit: int) -> list[int]:
    """Start of each run of equal values longer than the limit, the slow way."""
    starts, begin = [], 0
    for i in range(1, len(current) + 1):
        if i == len(current) or current[i] != current[begin]:
            if i - begin > limit:
                starts.append(begin)
            begin = i
    return starts


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_flat_lines_do_not_depend_on_how_the_samples_are_cut(data: st.DataObject) -> None:
    limit = int(FLAT_S * RATE_HZ)
    near = st.integers(limit - 2, limit + 2)
    lengths = data.draw(st.lists(st.one_of(st.integers(1, 50), near, st.just(3 * limit)), max_size=8))
    current = np.repeat(0.5 + 0.001 * np.arange(len(lengths)), lengths)
    if not len(current):
        return
    cuts = sorted(data.draw(st.sets(st.integers(1, len(current)), max_size=12)) | {len(current)})
    parts = [block(current[a:b], first_index=a) for a, b in zip([0, *cuts], cuts, strict=False)]
    expected = naive_flat_lines(current.astype(np.float32), limit)
    found = check(*parts).get("flat_line")
    assert (found.count if found else 0) == len(expected)
    if found:
        assert (found.first_index, found.last_index) == (expected[0], expected[-1])


def test_a_moving_voltage_is_not_flat() -> None:
    volts = 4.0 + 0.004 * (np.arange(5000) % 2)
    assert "flat_line" not in check(block(np.full(5000, 0.5), volts))
    assert "flat_line" in check(block(np.full(5000, 0.5), 4.0))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_finite_rows(bad: float) -> None:
    part = block(LIVE[:100])
    assert finite_rows(part) == 100
    part.voltage_v[42] = bad
    assert finite_rows(part) == 42
    part.current_a[0] = bad
    assert finite_rows(part) == 0
