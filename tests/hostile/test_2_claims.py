"""Class 2: real agents that lie about when things happened. The job fails, or the interval has the truth."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from device_agents import AgentSession, BlobRef, Job, LocalTransport, Ping
from device_agents.protocol import EpochMarker, Phase
from harness.clock import fit_pings
from harness.evidence.capture import phases_of
from harness.evidence.claims import Claims, require_consistent, require_in_time
from harness.evidence.clock_fit import ClockFit
from harness.evidence.unaccounted import Unaccounted, unaccounted
from joulefleet.errors import DataQualityError, DeviceError, JoulefleetError
from tests.device_agents.agents import ONE_THREAD, a_model, session_with, softmax
from tests.device_agents.test_agent_untrusted import PRELUDE
from tests.hostile import liar

MODEL = a_model()
SAMPLES = 30_000
WAIT_S = 0.1


@dataclass(frozen=True)
class Lived:
    """A job as the host lived through it."""

    claims: Claims
    clock: ClockFit
    pings: tuple[Ping, ...]

    def check(self) -> None:
        require_consistent(self.claims)
        require_in_time(self.claims, self.clock)

    def left(self) -> tuple[Unaccounted, ...]:
        phases = phases_of(self.claims.markers, self.clock)
        trips_ns = [ping.round_trip_ns for ping in self.pings]
        return unaccounted(phases, self.claims.result.times, trips_ns)


def order(**changes: object) -> Job:
    sync = {"order": 3, "bit_ns": 10_000_000}
    given = {"samples": SAMPLES, "epochs": 3, "upload": True, "sync": sync, "model": BlobRef.of(MODEL)}
    return softmax(**{**given, **changes})


@contextmanager
def agent(lie: str, folder: Path) -> Iterator[AgentSession]:
    files = {"LIAR_TRUTH": str(folder / "truth.json"), "LIAR_LIE": str(folder / "lie")}
    environment = {**ONE_THREAD, **files}
    argv = [sys.executable, "-m", "tests.hostile.liar", lie, "--state", str(folder / "state")]
    with LocalTransport(environment).open(argv) as channel:
        yield AgentSession(channel)


def live(lie: str, folder: Path, *, going_on: bool = True, **changes: object) -> Lived:
    with agent(lie, folder) as session:
        return live_through(session, going_on=going_on, **changes)


def live_through(session: AgentSession, *, going_on: bool = True, **changes: object) -> Lived:
    job = order(**changes)

    def decide(_: object) -> bool:
        time.sleep(WAIT_S)
        return going_on

    pings = session.ping(20)
    result = session.run_round(job, decide, blobs={"model": MODEL})
    pings += session.ping(20)
    claims = Claims(job, result, session.collect(result.job_id), session.hello.cpus)
    return Lived(claims, fit_pings(pings), tuple(pings))


def true_s(folder: Path, epochs: tuple[int, ...]) -> float:
    markers = json.loads((folder / "truth.json").read_text())
    found = [liar.edges(markers, "epoch", epoch) for epoch in epochs]
    return sum(end["t_dev_ns"] - start["t_dev_ns"] for start, end in found) * 1e-9


@pytest.mark.parametrize("quiet", [True, False])
@pytest.mark.parametrize("going_on", [True, False])
def test_an_honest_agent_is_believed(tmp_path: Path, quiet: bool, going_on: bool) -> None:
    lived = live("none", tmp_path, quiet=quiet, going_on=going_on)
    lived.check()
    left = lived.left()
    assert [part.epochs for part in left] == ([(1,), (2, 3)] if going_on else [(1,)])
    # What a device does between its phases: a summary and a journal on the disk, here with others' work.
    assert all(part.seconds < max(0.5, 0.5 * part.trained_s) for part in left)


def test_an_honest_agent_with_everything_that_a_job_can_have_is_believed(tmp_path: Path) -> None:
    from device_agents import BackgroundLoad
    from device_agents.payload.tensors import pack_arrays

    rng = np.random.default_rng(0)
    shard = pack_arrays({"x": rng.normal(size=(500, 64)), "y": rng.integers(0, 10, 500)})
    job = order(
        samples=500,
        shard=BlobRef.of(shard),
        warmup_epochs=2,
        background=BackgroundLoad.constant(0.3, 2),
        load_only_s=0.2,
    )
    with agent("none", tmp_path) as session:
        pings = session.ping(20)
        for expected in (["model", "shard", "probe", "result"], ["model", "probe", "result"]):
            result = session.run_round(job, blobs={"model": MODEL, "shard": shard})
            assert [exchange.what for exchange in result.times.exchanges] == expected
            claims = Claims(job, result, session.collect(result.job_id), session.hello.cpus)
            pings += session.ping(20)
            Lived(claims, fit_pings(pings), tuple(pings)).check()


@pytest.fixture(scope="module")
def markers_liar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AgentSession, Path]]:
    folder = tmp_path_factory.mktemp("markers")
    with agent("markers", folder) as session:
        yield session, folder / "lie"


@pytest.mark.parametrize("lie", liar.MARKERS)
def test_markers_that_cannot_be_true_are_refused(markers_liar: tuple[AgentSession, Path], lie: str) -> None:
    session, place = markers_liar
    place.write_text(lie)
    with pytest.raises((DataQualityError, DeviceError)) as caught:
        live_through(session).check()
    assert len(caught.value.message) > 20


@pytest.mark.parametrize("lie", [*liar.PONGS, *liar.WORDS, "another journal", "a stepped clock"])
def test_what_cannot_be_true_is_refused(tmp_path: Path, lie: str) -> None:
    with pytest.raises((DataQualityError, DeviceError)) as caught:
        live(lie, tmp_path).check()
    assert len(caught.value.message) > 20


@pytest.mark.parametrize("lie", [*liar.INSIDE, "cut probe"])
def test_what_fits_between_two_messages_leaves_its_time_in_the_interval(tmp_path: Path, lie: str) -> None:
    lived = live(lie, tmp_path)
    lived.check()
    lied = [part for part in lived.left() if part.epochs == ((1,) if lie == "cut probe" else (2, 3))]
    assert len(lied) == 1
    (part,) = lied
    truth_s = true_s(tmp_path, part.epochs)
    assert part.trained_s < 0.7 * truth_s
    # No less than the truth, and no more than the host's time for it.
    assert truth_s - 0.005 <= part.trained_s + part.seconds <= part.passed_s


@pytest.mark.parametrize("guess", ["range(20)", "[2**53 - 1] * 20", "[None] * 20"])
def test_a_pong_that_is_sent_before_its_ping(guess: str) -> None:
    """It would make a round trip of no time, and a clock of any offset known to a microsecond."""
    early = f"for n in {guess}: say('pong', nonce=n, t_dev_ns=10**15)"
    with session_with(f"{PRELUDE}\nhello()\n{early}") as channel:
        session = AgentSession(channel)
        with pytest.raises(DeviceError):
            session.ping(20)


def test_a_live_marker_that_the_journal_denies(tmp_path: Path) -> None:
    """A job that is not quiet sends markers as they happen; the journal is another telling."""
    with pytest.raises(DataQualityError, match="markers in its journal changed"):
        live("cut", tmp_path, quiet=False).check()


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Lived:
    lived = live("none", tmp_path_factory.mktemp("honest"))
    lived.check()
    return lived


TOLD = (Phase.EPOCH, Phase.WAIT, Phase.UPLOAD)


def perturbed(lived: Lived, rng: np.random.Generator) -> Lived:
    """The same job with some edges elsewhere: near or far, one or all, in order or not."""
    markers = list(lived.claims.markers)
    reach_ns = 10 ** rng.uniform(5, 11)
    together = rng.integers(-1, 2) * rng.uniform() * reach_ns if rng.random() < 0.3 else 0.0
    for i, marker in enumerate(markers):
        if marker.kind not in TOLD:
            continue
        by_ns = together + (rng.normal() * reach_ns if rng.random() < 0.4 else 0.0)
        markers[i] = marker.model_copy(update={"t_dev_ns": max(0, marker.t_dev_ns + round(by_ns))})
    if rng.random() < 0.7:  # most liars keep the order
        told = [i for i, marker in enumerate(markers) if marker.kind in TOLD]
        times = sorted(markers[i].t_dev_ns for i in told)
        for i, t_ns in zip(told, times, strict=True):
            markers[i] = markers[i].model_copy(update={"t_dev_ns": t_ns})
    return replace(lived, claims=retold(lived.claims, tuple(markers)))


def retold(claims: Claims, markers: tuple[EpochMarker, ...]) -> Claims:
    """Markers changed everywhere, and the probe's report with them: a consistent liar."""
    at_ns = {(m.kind, m.epoch, m.edge): m.t_dev_ns for m in markers}
    duration_ns = at_ns[Phase.EPOCH, 1, "end"] - at_ns[Phase.EPOCH, 1, "start"]
    wait_ns = at_ns[Phase.WAIT, 0, "end"]
    journal, numbered = [], iter(markers)
    for record in claims.record.journal:
        if record.type == "marker":
            journal.append(record.model_copy(update={"marker": next(numbered)}))
        elif record.type == "probe_done":
            journal.append(record.model_copy(update={"duration_ns": max(0, duration_ns)}))
        elif record.type == "decision":
            journal.append(record.model_copy(update={"t_dev_ns": wait_ns}))
        else:
            journal.append(record)
    probe = claims.result.probe
    assert probe is not None
    said = probe.model_copy(update={"duration_ns": max(0, duration_ns)})
    result = replace(claims.result, markers=markers, probe=said)
    return replace(claims, result=result, record=replace(claims.record, journal=tuple(journal)))


@pytest.mark.campaign
def test_whatever_a_consistent_liar_says_the_truth_stays_inside(
    honest: Lived, campaign_count: Callable[[int, int], int], record_property: Callable[[str, object], None]
) -> None:
    count = campaign_count(300, 30_000)
    rng = np.random.default_rng(20)
    truth_s = {part.epochs: part.trained_s for part in honest.left()}
    believed = 0
    for _ in range(count):
        lived = perturbed(honest, rng)
        try:
            lived.check()
        except JoulefleetError:
            continue
        believed += 1
        slack_s = 3 * honest.clock.sync_uncertainty_s + 0.002
        for part in lived.left():
            assert part.trained_s + part.seconds >= truth_s[part.epochs] - slack_s
            assert part.trained_s <= part.passed_s + slack_s
    record_property("lies", count)
    record_property("believed", believed)
    assert 0 < believed < count
