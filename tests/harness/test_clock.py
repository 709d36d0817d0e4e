import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from device_agents.session import Ping
from fedjoule.errors import DataQualityError
from harness.clock import fit_pings


def exchanges(offset_ns: int, seed: int, n: int = 20) -> list[Ping]:
    """Pings over a link whose two directions take 0.2 ms plus an exponential delay each."""
    rng = np.random.default_rng(seed)
    pings = []
    for i in range(n):
        sent = 10**12 + i * 10**7
        there, back = (200_000 + rng.exponential(1e6, 2)).astype(int)
        pings.append(Ping(sent, int(sent + there - offset_ns), int(sent + there + back)))
    return pings


@settings(max_examples=50, deadline=None)
@given(st.integers(-(10**9), 10**9), st.integers(0, 2**31))
def test_the_offset_lies_within_half_the_best_round_trip(offset_ns: int, seed: int) -> None:
    pings = exchanges(offset_ns, seed)
    fit = fit_pings(pings)
    best = min(p.round_trip_ns for p in pings)
    assert abs(fit.offset_ns - offset_ns) <= best / 2 + 1
    assert fit.sync_uncertainty_s == pytest.approx(best * 1e-9 / 12**0.5)
    assert abs(fit.to_host_ns(pings[0].t_dev_ns) - (pings[0].t_dev_ns + offset_ns)) <= best / 2 + 1


def test_a_stepped_clock_is_noticed() -> None:
    pings = exchanges(0, 1)
    stepped = [Ping(p.sent_ns, p.t_dev_ns + 50_000_000, p.received_ns) for p in pings[10:]]
    with pytest.raises(DataQualityError, match="clock moved"):
        fit_pings(pings[:10] + stepped)


def test_no_exchange_is_an_error() -> None:
    with pytest.raises(DataQualityError, match="no clock exchange"):
        fit_pings([])
