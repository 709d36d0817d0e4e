"""Clock lines from offsets, exchanges and edges on a wire, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from device_agents.session.agent_session import Ping
from harness.clock.line import Line, allowed, fit_line
from harness.clock.offsets import GpioEdge, fit_edges, fit_pings, ping_line
from joulefleet.errors import DataQualityError

S = 10**9
KNOWN = np.array([[4e-6, 1e-6], [1e-6, 9e-6]])


def test_a_line_at_other_times() -> None:
    line = Line(5 * S, 1000, 10.0, KNOWN)
    assert line.offset_at(7 * S) == 1000 + 20_000
    assert line.offset_at(2 * S) == 1000 - 30_000
    assert line.standard_s(7 * S) == pytest.approx(math.sqrt(4e-6 + 2 * 2e-6 + 4 * 9e-6))
    assert line.standard_s(2 * S) == pytest.approx(math.sqrt(4e-6 - 6e-6 + 81e-6))


def test_a_fit_holds_at_both_ends() -> None:
    line = Line(5 * S, 1000, 10.0, KNOWN)
    fit = line.fit("ping", [4 * S, 2 * S, 6 * S], residual_s=0.25, further_s=0.03, tau_s=0.5)
    assert fit.sync_uncertainty_s == pytest.approx(math.hypot(math.sqrt(79e-6), 0.03))
    assert (fit.offset_ns, fit.skew_ppm, fit.reference_ns) == (1000, 10.0, 5 * S)
    assert (fit.tau_s, fit.residual_s, fit.method) == (0.5, 0.25, "ping")
    later = line.fit("gpio", [6 * S, 8 * S], residual_s=0.0)
    assert later.sync_uncertainty_s == pytest.approx(math.sqrt(4e-6 + 6e-6 + 81e-6))
    assert (later.tau_s, later.method) == (None, "gpio")


def test_least_squares_with_one_more_observation_of_the_skew() -> None:
    """Three offsets that depend on each other, and a prior skew of 30 ± 20 ppm."""
    at_ns, offsets_ns = [10 * S, 14 * S, 21 * S], [5e8, 5e8 + 300e3, 5e8 + 900e3]
    covariance = np.array([[4.0, 1.0, 0.0], [1.0, 9.0, 2.0], [0.0, 2.0, 5.0]]) * 1e-10
    found = fit_line(at_ns, offsets_ns, covariance, skew=(30.0, 20.0))
    assert found.reference_ns == 15 * S
    whole = np.zeros((4, 4))
    whole[:3, :3], whole[3, 3] = covariance, (20e-6) ** 2
    design = np.array([[1, -5.0], [1, -1.0], [1, 6.0], [0, 1.0]])
    y = np.array([0.0, 300e-6, 900e-6, 30e-6])
    inverse = np.linalg.inv(whole)
    information = design.T @ inverse @ design
    offset_s, skew = np.linalg.inv(information) @ design.T @ inverse @ y
    assert found.skew_ppm == pytest.approx(skew * 1e6)
    assert found.offset_ns == pytest.approx(5e8 + offset_s * 1e9, abs=1)
    assert found.covariance == pytest.approx(np.linalg.inv(information))
    other = fit_line([S, 2 * S, 4 * S], [7.0, 7.0, 7.0], covariance)
    assert other.reference_ns == 7 * S // 3
    assert (other.offset_ns, other.skew_ppm) == (7, pytest.approx(0.0, abs=1e-9))


def test_of_one_offset_the_skew_is_that_of_quartz() -> None:
    """Within 100 ppm, all alike: 100 / sqrt(3)."""
    found = fit_line([10 * S], [12345.0], np.array([[1e-10]]))
    assert (found.offset_ns, found.skew_ppm) == (12345, 0.0)
    assert found.covariance == pytest.approx(np.diag([1e-10, (100e-6) ** 2 / 3]), rel=1e-9, abs=1e-20)


def test_what_is_allowed_is_three_standard_uncertainties_the_meters_timing_and_what_is_unsure() -> None:
    prior = Line(5 * S, 1000, 10.0, np.diag([1e-4, 0.0]))  # 10 ms
    limit_s = 3 * 0.01 + 0.02 + 0.005
    for sign in (1, -1):
        assert allowed(sign * (limit_s - 1e-9), prior, 5 * S, 0.005)
        assert not allowed(sign * (limit_s + 1e-9), prior, 5 * S, 0.005)
    exact = Line(0, 0, 0.0, np.zeros((2, 2)))
    assert allowed(0.02, exact, 0, 0.0)


def ping(sent_ms: float, offset_ms: float, trip_ms: float, early_ms: float = 0.0) -> Ping:
    """An exchange: the device read its clock in the middle, or so much earlier."""
    sent_ns, received_ns = round(sent_ms * 1e6), round((sent_ms + trip_ms) * 1e6)
    middle_ns = round((sent_ms + trip_ms / 2 - early_ms - offset_ms) * 1e6)
    return Ping(sent_ns, middle_ns, received_ns)


def test_the_shortest_of_each_half() -> None:
    """Offsets of 3 and 3.4 ms, 8 s apart, from round trips of 2 and 1 ms; the longer ones do not count."""
    pings = [
        ping(500, 3.1, 6.0), ping(1000, 3.0, 2.0), ping(2000, 2.8, 5.0),
        ping(9000, 3.4, 1.0), ping(9500, 3.6, 4.0), ping(9900, 3.3, 3.0),
    ]  # fmt: skip
    line = ping_line(pings)
    at = [(1001 - 3.0) * 1e-3, (9000.5 - 3.4) * 1e-3]
    variances = [0.002**2 / 12, 0.001**2 / 12]
    expected = fit_line(
        [round(t * 1e9) for t in at], [3.0e6, 3.4e6], np.diag(variances)
    )  # fmt: skip
    assert line.reference_ns == expected.reference_ns
    assert (line.offset_ns, line.skew_ppm) == (expected.offset_ns, pytest.approx(expected.skew_ppm))
    assert expected.covariance[0, 0] < variances[1]
    assert line.covariance[0, 0] == pytest.approx(variances[1])  # no average is better than the best
    assert line.covariance[1, 1] == pytest.approx(expected.covariance[1, 1])
    fit = fit_pings(pings)
    off_ms = [
        (one.sent_ns + one.received_ns) / 2e6 - one.t_dev_ns / 1e6 - line.offset_at(one.t_dev_ns) / 1e6
        for one in pings
    ]
    assert fit.residual_s == pytest.approx(sum(abs(x) for x in off_ms) / 6 * 1e-3, rel=1e-6)
    assert fit.sync_uncertainty_s == pytest.approx(
        max(line.standard_s(pings[0].t_dev_ns), line.standard_s(pings[-1].t_dev_ns))
    )
    assert fit_pings(pings[::-1]) == fit
    far = fit_pings(pings, also_ns=[100 * S])
    assert far.sync_uncertainty_s == pytest.approx(line.standard_s(100 * S))
    assert far.method == "ping"


def test_halves_meet_in_the_middle_of_the_whole() -> None:
    """From 0 to 10 s: an exchange sent at exactly 5 s is of the second half."""
    first, second = ping(0, 3.0, 2.0), ping(9998, 3.0, 2.0)
    early, late = ping(4999, 3.0, 1.0), ping(5000, 3.0, 0.5)
    line = ping_line([first, early, late, second])
    assert line.reference_ns == (early.t_dev_ns + late.t_dev_ns) // 2
    assert line.covariance[0, 0] == pytest.approx(0.0005**2 / 12)


def test_clocks_are_read_within_a_microsecond() -> None:
    line = ping_line([Ping(1000, 5000, 1000)])
    assert line.covariance[0, 0] == pytest.approx(1e-12 / 12)
    assert line.offset_ns == -4000
    assert ping_line([Ping(1000, 5000, 4000)]).covariance[0, 0] == pytest.approx(9e-12 / 12)


@pytest.mark.parametrize("base_s", [0, 1000])
def test_bounds_that_no_line_passes(base_s: int) -> None:
    """At one time an offset of at most 1 ms, and of at least 1 ms and a little."""
    low = Ping(base_s * S, base_s * S, base_s * S + 10**6)
    for apart_ns, possible in ((900, True), (1100, False)):
        t_ns = base_s * S + 10**6 + apart_ns
        high = Ping(t_ns, base_s * S, t_ns + 10**6)
        if possible:
            ping_line([low, high])
            continue
        with pytest.raises(DataQualityError, match=r"moved by at least 1\.1e-06 s"):
            ping_line([low, high])
        with pytest.raises(DataQualityError, match=r"moved by at least 1\.1e-06 s"):
            ping_line([high, low])


@pytest.mark.parametrize("sign", [1, -1])
def test_a_skew_of_500_ppm_and_no_more(sign: int) -> None:
    """Ten seconds apart; round trips of 0.1 ms leave 0.1 ms: 4.9 to 5.1 ms are 5 ms at 500 ppm."""
    first = ping(1000, 20.0, 0.1)
    ping_line([first, ping(11_000, 20.0 + sign * 5.09, 0.1)])
    with pytest.raises(DataQualityError, match="clock moved"):
        ping_line([first, ping(11_000, 20.0 + sign * 5.12, 0.1)])


def test_edges_on_a_wire() -> None:
    """Three edges 10 s apart with a period of 1 ms; the middle one 0.9 ms late."""
    edges = [GpioEdge(0, 7 * S), GpioEdge(10 * S, 17 * S + 900_000), GpioEdge(20 * S, 27 * S)]
    fit = fit_edges(edges, period_s=1e-3)
    line = fit_line([0, 10 * S, 20 * S], [7e9, 7e9 + 9e5, 7e9], np.eye(3) * (1e-6 / 12))
    assert (fit.offset_ns, fit.skew_ppm) == (line.offset_ns, line.skew_ppm)
    assert fit.offset_ns == 7 * S + 300_000
    assert fit.residual_s == pytest.approx(math.sqrt((0.09 + 0.36 + 0.09) / 3) * 1e-3)
    worst_s = max(line.standard_s(0), line.standard_s(20 * S))
    assert fit.sync_uncertainty_s == pytest.approx(math.hypot(worst_s, 1e-3 / math.sqrt(12)))


def test_an_edge_two_periods_off_is_still_one_of_them() -> None:
    def edges(late_ns: int) -> list[GpioEdge]:
        return [GpioEdge(0, 7 * S), GpioEdge(10 * S, 17 * S + late_ns), GpioEdge(20 * S, 27 * S)]

    # A third of it moves the line: 3 ms late is 2 ms off.
    fit_edges(edges(2_999_990), period_s=1e-3)
    with pytest.raises(DataQualityError, match=r"one is 0\.002 s off"):
        fit_edges(edges(3_000_010), period_s=1e-3)
    fit_edges(edges(3_000_000), period_s=1e-3)


def test_edges_with_a_skew_that_no_quartz_has() -> None:
    """Far apart, so that the prior does not matter."""
    for ppm, possible in ((499.0, True), (501.0, False), (-499.0, True), (-501.0, False)):
        edges = [GpioEdge(t * S, t * S + round(t * S * ppm * 1e-6)) for t in (0, 5000, 10_000)]
        if possible:
            assert fit_edges(edges, period_s=1e-3).skew_ppm == pytest.approx(ppm, abs=0.01)
        else:
            with pytest.raises(DataQualityError, match=rf"a skew of \{ppm:+.0f} ppm"):
                fit_edges(edges, period_s=1e-3)


def test_offsets_of_days_are_exact() -> None:
    days = 30 * 86_400 * S
    line = fit_line([days, days + S], [float(days), float(days)], np.eye(2) * 1e-10)
    assert line.offset_at(days) == pytest.approx(days, abs=4)


def test_the_second_half_has_a_best_of_its_own() -> None:
    """The shortest of all is in the first half; in the second it is one of 3 ms.

    0.4 ms in 8 s are 50 ppm, with a variance of (1 + 9) / 12 us^2 / (8 s)^2; quartz is within 100 ppm.
    """
    pings = [ping(1000, 3.0, 1.0), ping(1500, 3.1, 5.0), ping(9000, 3.4, 3.0), ping(9900, 3.6, 4.0)]
    line = ping_line(pings)
    assert line.reference_ns == (pings[0].t_dev_ns + pings[2].t_dev_ns) // 2
    seen, quartz = 10e-6 / 12 / 8.0**2, (100e-6) ** 2 / 3
    assert line.skew_ppm == pytest.approx(50 * quartz / (quartz + seen), rel=0.01)
    assert line.covariance[1, 1] == pytest.approx(1 / (1 / quartz + 1 / seen), rel=0.01)
