"""The server of a round goes on without those who fail, and the meter tells it what an epoch took."""

import threading
import time

import numpy as np
import pytest

from device_agents.protocol import ProbeDone
from harness.bench.job.hooks import Ending, Stopped
from harness.federate.participant import EnergySoFar
from harness.rounds.server import Report, RoundServer
from joulefleet.errors import CalledOff
from power.model import SampleBlock
from tests.harness.in_threads import in_threads


def report(duration_s: float = 1.0) -> Report:
    return Report(
        ProbeDone(seq=1, job_id="job", loss=1.0, duration_ns=round(duration_s * 1e9), samples=1), 0.5
    )


def serve(devices: str, k: int | None, timeout_s: float = 10.0) -> RoundServer:
    choose = None if k is None else lambda reports: frozenset(sorted(reports)[:k])
    return RoundServer(devices, choose, start_timeout_s=timeout_s, report_timeout_s=timeout_s)


def test_the_round_begins_without_those_who_are_lost_or_late() -> None:
    server = serve("abc", 1)
    threading.Timer(0.1, server.lost, ["c"]).start()
    assert in_threads({n: lambda n=n: server.wait_for_all(n, Ending()) for n in "ab"}) == {
        "a": None,
        "b": None,
    }
    late = serve("ab", 1, timeout_s=0.1)
    late.wait_for_all("a", Ending())
    with pytest.raises(CalledOff, match="began without it"):
        late.wait_for_all("b", Ending())
    assert late.decide("a", report(), Ending()), "nobody waits for the report of b either"


def test_the_choice_is_among_those_who_reported() -> None:
    server = serve("abc", 2)
    threading.Timer(0.1, server.lost, ["a"]).start()
    said = in_threads({n: lambda n=n: server.decide(n, report(), Ending()) for n in "bc"})
    assert said == {"b": True, "c": True}
    assert server.chosen == {"b", "c"}
    late = serve("ab", 2, timeout_s=0.1)
    assert late.decide("b", report(), Ending())
    assert not late.decide("a", report(), Ending()), "who comes after the choice stops"
    assert late.chosen == {"b"}


def test_one_that_reported_and_was_lost_is_not_chosen() -> None:
    server = serve("ab", 2)
    ending = Ending()
    threading.Timer(0.1, ending.request, [Stopped("unplugged")]).start()
    assert not server.decide("a", report(), ending)
    server.lost("a")
    assert server.decide("b", report(), Ending())
    assert server.chosen == {"b"}


def test_without_a_choice_everybody_goes_on_at_once() -> None:
    server = serve("ab", None)
    assert server.decide("a", report(), Ending())


def test_a_choice_that_fails_stops_everybody_and_is_told() -> None:
    def choose(_: object) -> frozenset[str]:
        raise RuntimeError("a bug in the selector")

    server = RoundServer("ab", choose, start_timeout_s=9, report_timeout_s=9)
    said = in_threads({n: lambda n=n: server.decide(n, report(), Ending()) for n in "ab"})
    assert said == {"a": False, "b": False}
    assert isinstance(server.failure, RuntimeError)


def block(first: int, watts: list[float]) -> SampleBlock:
    n = len(watts)
    ticks = np.arange(first, first + n)
    return SampleBlock(ticks * 10**6, ticks, np.array(watts) / 4.0, np.full(n, 4.0), first, 0)


def test_power_is_the_mean_of_the_samples_between_two_moments() -> None:
    live = EnergySoFar()
    live(block(0, [1.0] * 11))
    live(block(11, [3.0] * 10))
    assert live.mean_w(0, 10_000_000) == pytest.approx(1.0)
    assert live.mean_w(5_000_000, 15_000_000) == pytest.approx(2.0)
    threading.Timer(0.1, live, [block(21, [5.0] * 10)]).start()
    began_s = time.monotonic()
    assert live.mean_w(20_000_000, 30_000_000) == pytest.approx(5.0), "it waits for samples on their way"
    assert time.monotonic() - began_s < 1.9
    assert np.isnan(live.mean_w(-1, 10)), "before the first sample"
