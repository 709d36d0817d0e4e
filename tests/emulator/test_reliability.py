"""Devices that never deliver: what the server remembers of them, and what becomes of the rounds."""

import numpy as np
import pytest

from emulator.round.engine import Engine
from emulator.round.outcome import Fate, RoundOutcome
from emulator.round.reports import Reported
from emulator.runs.assembly import assemble
from emulator.scenario.model import FleetSection, ProtocolSection, Scenario, TaskSection, TrainerSection
from emulator.selectors.registry import SELECTORS
from tests.emulator.tiny_trainer import TinyTrainer
from tests.emulator.worlds import engine
from tests.emulator.worlds import play as play_on

ROUNDS = 25


def late_fleet(deadline_s: float | None) -> Scenario:
    """Forty devices of very different speed; half of their rounds are too long."""
    return Scenario(
        name="late",
        fleet=FleetSection(devices=40, speed_spread=1.0),
        task=TaskSection(name="digits-softmax", partition="dir_client", options={"alpha": 0.1}),
        protocol=ProtocolSection(rounds=ROUNDS, k=4, local_epochs=2, test_every=0, deadline_s=deadline_s),
        trainer=TrainerSection(workers=1),
    )


def play(scenario: Scenario, name: str) -> tuple[Engine, list[RoundOutcome]]:
    engine = assemble(scenario, 0, selector=SELECTORS.load(name)()).engine
    try:
        outcomes = []
        while not engine.done:
            outcomes.append(engine.play())
    finally:
        engine.trainer.close()
    return engine, outcomes


@pytest.fixture(scope="module")
def deadline_s() -> float:
    _, outcomes = play(late_fleet(None), "fedavg")
    return float(np.quantile([outcome.duration_ns * 1e-9 for outcome in outcomes], 0.3))


@pytest.mark.parametrize("name", ["harmony_like", "fed_cbs", "oort", "rpow_d"])
def test_rounds_do_not_fill_up_with_devices_that_are_always_late(name: str, deadline_s: float) -> None:
    """They were unknown for ever, so such methods tried them for ever: no update came in any more."""
    _, outcomes = play(late_fleet(deadline_s), name)
    finished = [outcome.fates.count(Fate.FINISHED) for outcome in outcomes]
    assert sum(finished[-10:]) >= 15  # of 40; it was 0 for Fed-CBS and 10 for Oort


def test_the_server_counts_failures_in_a_row(deadline_s: float) -> None:
    engine, outcomes = play(late_fleet(deadline_s), "fed_cbs")
    expected = np.zeros(40)
    for outcome in outcomes:
        for device, fate in zip(outcome.clients, outcome.fates, strict=True):
            failed = fate in (Fate.LEFT, Fate.DEADLINE, Fate.DIVERGED)
            expected[device] = expected[device] + 1 if failed else 0
    assert expected.max() > 1
    assert engine.reported.fields["failures"].tolist() == expected.tolist()


@pytest.mark.parametrize("name", ["rpow_d", "fed_cbs", "harmony_like"])
def test_rounds_do_not_fill_up_with_devices_that_diverge(name: str) -> None:
    """They report no loss and no labels, so they stay as interesting as on the first day."""
    poisoned = range(4)
    trainer = TinyTrainer(20, 0, poisoned=poisoned)
    made = engine(SELECTORS.load(name)(), trainer=trainer, devices=20, k=4, candidates=12, rounds=ROUNDS)
    finished = [outcome.fates.count(Fate.FINISHED) for outcome in play_on(made)]
    assert sum(finished[-10:]) >= 20  # of 40
    assert (made.reported.fields["failures"][poisoned] > 0).all()


def test_whoever_delivers_begins_anew() -> None:
    reported = Reported(np.full(3, 10), frozenset({"failures"}), classes=2)
    ids = np.arange(3)
    reported.count_failures(ids, np.array([True, True, False]))
    reported.count_failures(ids[:2], np.array([True, False]))
    view = reported.view(np.ones(3, bool), round=1, rounds=2, now_ns=0, k=1, local_epochs=1,
                         time_budget_s=1.0, energy_budget_j=1.0)  # fmt: skip
    assert view.failures.tolist() == [2, 0, 0]
