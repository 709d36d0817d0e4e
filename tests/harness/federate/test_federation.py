"""What a federation keeps and books, with the devices' part of the work left out."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from device_agents.protocol import Done, ProbeDone
from device_agents.session.agent_session import Ping
from device_agents.session.host_times import HostTimes
from device_agents.session.running_job import JobResult
from emulator import Family, Probe, RoundOutcome, Selector, ServerView
from emulator.round.outcome import COSTS, ClientCost, Fate
from harness.bench.job.attempt import Attempt, Bench
from harness.bench.job.hooks import SoFar, Stage
from harness.bench.job.live_status import StatusBoard
from harness.bench.plan import PlannedLoad
from harness.evidence.capture import CAPTURE_FILE, HostWindow
from harness.federate import federation as module
from harness.federate import participant
from harness.federate.choice import ProbeChoice
from harness.federate.federation import Federation
from harness.federate.files import FederateFiles, read_federate_files
from harness.federate.participant import FederatedParticipant, fate_of, play_federated_round
from harness.federate.registration import Registered
from harness.federate.setup import FederationSetup
from harness.rounds.round import play_round
from harness.rounds.server import Report, RoundServer
from joulefleet.errors import ConfigError, DataQualityError, DeviceError
from power.model import SampleBlock
from tests.conftest import REPOSITORY

SECOND_NS = 10**9
TRAINED_S = 7
NEVER = HostTimes(sent_ns=0, exchanges=(), done_ns=0)
TRAINED = JobResult("job", None, Done.model_construct(), (), {"w": np.zeros(1)}, NEVER)
SETTINGS = 'backend = "torch"\ndevices = ["pi", "phone", "far", "left"]\n'


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> FederateFiles:
    settings = tmp_path_factory.mktemp("settings") / "federate.toml"
    settings.write_text(SETTINGS)
    return read_federate_files(
        "quick", REPOSITORY / "examples" / "devices.toml", settings, selector="fedrank", rounds=2
    )


@pytest.fixture
def cast(files: FederateFiles) -> FederationSetup:
    return FederationSetup.of(files)


@pytest.fixture
def bench(files: FederateFiles, tmp_path: Path) -> Bench:
    plan = files.settings.plan(files.scenario)
    board = StatusBoard(files.devices)
    return Bench(tmp_path, "run", plan, files.inventory, files.inventory_path, board)


def registered(*epoch_s: float) -> Registered:
    column = np.array(epoch_s)
    return Registered(column, 2 * column, 0 * column, 0 * column)


def ready(cast: FederationSetup, bench: Bench) -> Federation:
    federation = Federation(bench, cast)
    federation.register(registered(1.0, 2.0, 3.0, 4.0))
    return federation


def probe(duration_ns: int = SECOND_NS) -> ProbeDone:
    return ProbeDone(seq=1, job_id="job", loss=1.0, duration_ns=duration_ns, samples=1)


def test_a_resumed_run_is_judged_by_the_same_budgets(cast: FederationSetup, bench: Bench) -> None:
    """Devices that register later change nothing, in the same session or after it."""
    first = Federation(bench, cast)
    first.register(registered(1.0, np.nan, np.nan, np.nan))
    judged_by = first.budgets
    first.register(registered(1.0, 20.0, 30.0, 40.0))
    assert first.budgets == judged_by
    second = Federation(bench, cast)
    second.load_state_dict(first.state_dict())
    assert second.budgets == judged_by
    assert not len(second.unregistered)


def test_nobody_was_chosen_if_every_probe_failed(
    cast: FederationSetup, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_fail(_bench: Bench, _server: RoundServer, them: Sequence[FederatedParticipant], *_: Any) -> None:
        for one in them:
            one.error = DeviceError("unplugged")

    monkeypatch.setattr(module, "play_federated_round", all_fail)
    played = ready(cast, bench).play(threading.Event())
    assert set(played.outcome.fates) == {Fate.LEFT}
    assert not played.outcome.chosen.any()
    assert not any(part.chosen for part in played.record.parts)


class Easy(Selector):
    name, family, probe, probe_optional = "easy", Family.CONTROL, Probe.EPOCH, True
    learns_from = frozenset({"device_rewards"})
    heard: Any = None

    def select(self, view: ServerView, candidates: Any, k: int, rng: np.random.Generator) -> Any:
        return candidates[:k]

    def observe(self, view: ServerView, outcome: RoundOutcome) -> None:
        self.heard = outcome.device_rewards


@pytest.mark.parametrize(("k", "probed"), [(3, True), (4, False)])
def test_a_probe_that_decides_nothing_is_not_made(
    cast: FederationSetup, bench: Bench, monkeypatch: pytest.MonkeyPatch, k: int, probed: bool
) -> None:
    """For a method that says so, on the bench as in the emulator; and it hears each device's reward."""

    def all_done(_bench: Bench, server: RoundServer, them: Sequence[FederatedParticipant], *_: Any) -> None:
        server.chosen = frozenset(one.device for one in them[:k]) if server.chooses else None

    seconds = np.arange(1.0, 5.0)
    cost = ClientCost(**dict.fromkeys(COSTS, seconds))
    monkeypatch.setattr(module, "play_federated_round", all_done)
    monkeypatch.setattr(participant, "client_cost", lambda *_args, **_kwargs: cost)
    rules = replace(cast.rules, k=k, candidates=4)
    selector = Easy()
    played = ready(replace(cast, selector=selector, rules=rules), bench).play(threading.Event())
    assert played.record.probed is probed
    assert played.outcome.chosen.sum() == k
    assert np.count_nonzero(selector.heard != 0) in (0, k)
    assert len(selector.heard) == 4


def test_an_object_is_held_to_what_a_bench_does(files: FederateFiles) -> None:
    class Proximal(Easy):
        name, proximal_mu = "proximal", 0.1

    class Small(Easy):
        name, most_devices = "small", 2

    with pytest.raises(ConfigError, match="changes the local objective"):
        FederationSetup.of(files, Proximal())
    with pytest.raises(ConfigError, match="at most 2 devices"):
        FederationSetup.of(files, Small())


def test_devices_rest_after_their_registration_too(
    cast: FederationSetup, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[dict[str, float]] = []

    def play(bench: Bench, *rest: Any) -> None:
        ended.append(dict(bench.last_end_s))
        play_federated_round(bench, *rest)

    def unplugged(_: Attempt) -> None:
        raise DeviceError("unplugged")

    monkeypatch.setattr(Attempt, "_run", unplugged)
    monkeypatch.setattr(module, "play_federated_round", play)
    federation = Federation(bench, cast)
    for _ in range(2):
        federation.measure_registration(threading.Event())
    assert [set(times) for times in ended] == [set(), set(cast.devices)]


def test_an_update_is_kept_if_only_what_follows_the_capture_fails(
    cast: FederationSetup, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once its file is there a capture is finished, so the weights that came with it count as well."""

    def run(self: Attempt) -> None:
        self.hooks.on_result(TRAINED)
        (self.folder / CAPTURE_FILE).write_text("{}")
        raise DeviceError("the link broke when it was closed")

    monkeypatch.setattr(Attempt, "_run", run)
    monkeypatch.setattr(participant, "open_capture", lambda folder: folder)
    monkeypatch.setattr(participant, "read_part", lambda capture, _energy: capture)
    (one,) = cast.participants(1, np.array([0]), np.array([1]), cast.uploads.initial())
    play_federated_round(bench, cast.server([one], None), [one], threading.Event())
    assert one.error is None
    assert one.model is not None


def test_a_capture_without_the_energy_that_is_charged_costs_its_device_alone(
    cast: FederationSetup, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round goes on and nothing of it is played again when the run is resumed."""

    def run(self: Attempt) -> None:
        self.hooks.on_result(TRAINED)
        self._at(Stage.VERIFY)
        (self.folder / CAPTURE_FILE).write_text("{}")

    def no_idle_power(folder: Path, _energy: str) -> Path:
        if "_pi_" in folder.name:
            raise DataQualityError("no idle power, so there is no net energy")
        return folder

    monkeypatch.setattr(Attempt, "_run", run)
    monkeypatch.setattr(participant, "open_capture", lambda folder: folder)
    monkeypatch.setattr(participant, "read_part", no_idle_power)
    told: list[tuple[str, str]] = []
    them = cast.participants(1, np.array([0, 1]), np.array([1, 1]), cast.uploads.initial())
    noting = replace(bench, note=lambda event, job, **_: told.append((event, job.split("_")[1])))
    play_federated_round(noting, cast.server(them, None), them, threading.Event())
    pi, phone = them
    assert pi.reason == "verify: no idle power, so there is no net energy"
    assert pi.capture is None
    assert phone.error is None
    assert phone.part is not None
    assert ("part_failed", "pi") in told
    assert [p.name for p in (bench.run / "failed").iterdir()] == [f"{pi.job.name}-attempt1"]
    assert fate_of(pi, cast.server(them, None), finite=True, in_time=True) is Fate.LEFT


def test_who_sent_no_update_has_not_finished(cast: FederationSetup) -> None:
    (one,) = cast.participants(1, np.array([0]), np.array([1]), cast.uploads.initial())
    server = cast.server([one], None)
    assert fate_of(one, server, finite=True, in_time=True) is Fate.LEFT
    one.model = {"w": np.zeros(1)}
    assert fate_of(one, server, finite=True, in_time=True) is Fate.FINISHED


SO_FAR = SoFar(
    heard_ns=TRAINED_S * SECOND_NS, pings=(Ping(0, 0, 0),), idle=(HostWindow(start_ns=0, end_ns=SECOND_NS),)
)


def part_of_a_round(
    cast: FederationSetup, load: PlannedLoad | None = None, energy: str = "marginal"
) -> FederatedParticipant:
    """A device that was idle at 1 W, perhaps ran a load at 2 W, trained at 3 W, and has just said so."""
    playing = replace(cast, scenario=cast.scenario.model_copy(update={"energy": energy}))
    (one,) = playing.participants(1, np.array([0]), np.array([2]), cast.uploads.initial())
    if load is not None:
        one.job = replace(one.job, cell=replace(one.job.cell, load=load))
    for first_s, last_s, watts in ((0, 1, 1.0), (1, TRAINED_S - 1, 2.0), (TRAINED_S - 1, TRAINED_S, 3.0)):
        ticks = np.arange(first_s * 1000, last_s * 1000 + 1)
        power = np.full(len(ticks), watts)
        one.see(SampleBlock(ticks * 10**6, ticks, power, np.ones(len(ticks)), 0, 0))
    return one


def test_the_selector_is_told_the_energy_that_is_charged(cast: FederationSetup) -> None:
    """Marginal energy is what the training adds to the load beside it, at the choice as well."""
    game = PlannedLoad(name="game", cpu_share=0.5)

    def told(**changes: Any) -> float:
        return part_of_a_round(cast, **changes).epoch_j(probe(), SO_FAR)

    assert told() == pytest.approx(2.0, rel=1e-2)
    assert told(load=game) == pytest.approx(1.0, rel=1e-2)
    assert told(load=game, energy="net") == pytest.approx(2.0, rel=1e-2)
    assert told(load=game, energy="gross") == pytest.approx(3.0, rel=1e-2)


def test_an_epoch_of_no_length_has_no_energy(cast: FederationSetup) -> None:
    """A device may report anything."""
    assert np.isnan(part_of_a_round(cast).epoch_j(probe(0), SO_FAR))


def test_without_a_choice_nobody_waits_for_the_meter(
    cast: FederationSetup, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Methods that do not probe would be charged for the meter's lag as waiting."""

    def asked(*_: Any) -> float:
        raise AssertionError("nobody needs to know")

    said: list[bool] = []
    monkeypatch.setattr(FederatedParticipant, "epoch_j", asked)
    monkeypatch.setattr(Attempt, "_run", lambda self: said.append(self._decide(probe())))
    server = RoundServer(["pi"], None, start_timeout_s=1, report_timeout_s=1)
    play_round(bench, server, [part_of_a_round(cast)], threading.Event())
    assert said == [True]
    assert np.isnan(server.reports["pi"].epoch_j)


def test_an_energy_that_is_not_known_in_time_is_the_last_one_known(
    cast: FederationSetup, bench: Bench
) -> None:
    federation = ready(cast, bench)
    opened = federation._open()
    assert isinstance(opened.choice, ProbeChoice)
    ids = np.arange(4)
    assert opened.choice._columns([Report(probe(), np.nan)] * 4, ids)["epoch_j"].tolist() == [2, 4, 6, 8]
    federation._reported.put(np.array([1]), {"epoch_j": np.array([5.0])})
    assert opened.choice._columns([Report(probe(), np.nan)] * 4, ids)["epoch_j"].tolist() == [2, 5, 6, 8]
