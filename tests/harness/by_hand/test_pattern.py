"""Bursts and what a regulator makes of them: every edge by itself, added up."""

from __future__ import annotations

import numpy as np
import pytest

from device_agents.payload.sync_pattern import Pattern, pack_lateness
from device_agents.protocol import EpochMarker, Phase
from harness.clock.pattern import BurstRun, burst_runs, response
from tests.harness.by_hand.edges import added_edges

RUN = BurstRun(1_000, Pattern(order=3, bit_ns=20_000_000), "before")


def test_times_of_a_pattern() -> None:
    assert (RUN.middle_ns, RUN.bit_s, RUN.duration_s) == (
        70_001_000,
        pytest.approx(0.02),
        pytest.approx(0.14),
    )
    assert (BurstRun(0, Pattern()).when, BurstRun(0, Pattern()).late_ns) == ("", ())


def by_hand(run: BurstRun) -> list[tuple[float, int]]:
    """Edges from the bits."""
    found, before = [], 0
    for i, bit in enumerate(run.pattern.bits()):
        if bit != before:
            found.append((i * run.pattern.bit_ns * 1e-9, bit - before))
        before = bit
    return found


def test_edges_of_a_pattern() -> None:
    at, change = RUN.edges()
    assert at.tolist() == pytest.approx([t for t, _ in by_hand(RUN)], abs=1e-13)
    assert change.tolist() == [step for _, step in by_hand(RUN)]
    n = len(at)
    late = BurstRun(0, RUN.pattern, late_ns=tuple(1_000_000 * (k + 1) for k in range(n)))
    assert late.edges()[0].tolist() == pytest.approx(
        [t + 1e-3 * (k + 1) for k, (t, _) in enumerate(by_hand(RUN))]
    )
    # The first is later than the second was due: they come together.
    first = BurstRun(0, RUN.pattern, late_ns=(70_000_000, *[0] * (n - 1)))
    times = [t for t, _ in by_hand(RUN)]
    assert first.edges()[0].tolist() == pytest.approx([max(t, 0.07) for t in times])


@pytest.mark.parametrize("tau_s", [0.0003, 0.004, 0.05])
@pytest.mark.parametrize("width_s", [1e-5, 0.003, 0.03])
def test_each_edge_is_an_exponential(tau_s: float, width_s: float) -> None:
    late = BurstRun(0, Pattern(order=4, bit_ns=20_000_000), late_ns=tuple(range(0, 8_000_000, 1_000_000)))
    t_s = np.concatenate((np.linspace(-0.05, 0.4, 301), late.edges()[0]))
    found = response(late, tau_s, t_s, width_s)
    assert found == pytest.approx(added_edges(late, tau_s, t_s, width_s), abs=1e-9)
    assert found[0] == 0.0


def marker(seq: int, edge: str, t_dev_ns: int, kind: Phase = Phase.SYNC, **extra: object) -> EpochMarker:
    return EpochMarker.model_validate(
        {"kind": kind, "edge": edge, "t_dev_ns": t_dev_ns, "seq": seq, "extra": extra}
    )


def test_runs_from_markers() -> None:
    first, second = {"order": 3, "bit_ns": 20_000_000, "cores": 2}, {"order": 4, "bit_ns": 10**7, "cores": 1}
    late = [1000 * k for k in range(8)]
    found = burst_runs(
        [
            marker(0, "end", 50),  # of one that began before: not a pattern
            marker(1, "start", 100, when="before", **first),
            marker(2, "start", 150, Phase.WAIT),
            marker(3, "end", 160, Phase.WAIT),
            marker(4, "end", 200),
            marker(5, "end", 250),
            marker(6, "start", 300, **first),  # never ended
            marker(7, "start", 400, **second),
            marker(8, "end", 500, **pack_lateness(late)),
        ]
    )
    assert found == (
        BurstRun(100, Pattern(3, 20_000_000, 2), "before", ()),
        BurstRun(400, Pattern(4, 10**7, 1), "", tuple(late)),
    )
