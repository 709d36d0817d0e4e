"""A selector sees what it declares and nothing else, whoever it is."""

import copy
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulator.round.chooser import Chooser
from emulator.round.engine import Engine
from emulator.round.outcome import ClientCost, RoundOutcome
from emulator.round.selector import Selector
from emulator.round.view import ALWAYS_SHOWN, PRIVILEGED_FIELDS, VIEW_FIELDS, ServerView
from emulator.runs.checkpoint import load_checkpoint, save_checkpoint
from emulator.selectors.registry import SELECTORS
from joulefleet.errors import ConfigError
from tests.emulator.tiny_trainer import CLASSES, TinyTrainer
from tests.emulator.worlds import HOUR_S, Prober, engine, fleet, profile, replay, user, world

DEVICES = 12
ROUNDS = 4


def loadable() -> list[str]:
    """Every registered selector that can be made without files of its own."""
    names = []
    for name in SELECTORS.entries():
        try:
            SELECTORS.load(name)()
        except ConfigError:
            continue
        names.append(name)
    return names


class Watched(Selector):
    """Asks two copies of a selector: one sees what it declared, the other sees everything.

    The engine supplies every field because this one declares them all.
    """

    name = "watched"
    needs = VIEW_FIELDS - ALWAYS_SHOWN
    needs_weights = True
    privileged = True

    def __init__(self, inner: Selector) -> None:
        self.family, self.probe, self.profiling = inner.family, inner.probe, inner.profiling
        self.proximal_mu = inner.proximal_mu
        self.blind, self.seeing = inner, copy.deepcopy(inner)
        self.questions = 0

    def candidates(self, view: ServerView, m: int, rng: np.random.Generator) -> Any:
        return self.both("candidates", view, rng, m)

    def select(self, view: ServerView, candidates: Any, k: int, rng: np.random.Generator) -> Any:
        return self.both("select", view, rng, candidates, k)

    def epochs(self, view: ServerView, chosen: Any) -> Any:
        return self.blind.epochs(view.restricted(self.blind.needs), chosen)

    def observe(self, view: ServerView, outcome: RoundOutcome) -> None:
        self.blind.observe(view.restricted(self.blind.needs), outcome.restricted(self.blind.needs))
        self.seeing.observe(view, outcome)

    def both(self, question: str, view: ServerView, rng: np.random.Generator, *arguments: Any) -> Any:
        self.questions += 1
        twin = copy.deepcopy(rng)
        blind = getattr(self.blind, question)(view.restricted(self.blind.needs), *arguments, rng)
        seeing = getattr(self.seeing, question)(view, *arguments, twin)
        np.testing.assert_array_equal(blind, seeing, err_msg=f"{self.blind.name}: {question}")
        return blind


class TellingAll(Chooser):
    """Tells the selector everything about a round, also what no selector is told."""

    def observe(self, view: ServerView, outcome: RoundOutcome) -> None:
        self.selector.observe(view, outcome)


def watched_engine(selector: Selector) -> Engine:
    """An engine that keeps nothing from a `Watched`."""
    run = busy_engine(Watched(selector))
    run.chooser = TellingAll(run.selector, run.rules, seed=1)
    return run


def busy_engine(selector: Selector) -> Engine:
    """A world in which every field has something to tell."""
    people = [
        user(
            f"u{i}",
            busy=[(3 + i, 40 + i, 0.7)],
            charging=[(0, 60.0 * (i + 1))],
            battery=[(h * HOUR_S, 0.9 - 0.02 * i) for h in range(25)],
        )
        for i in range(DEVICES)
    ]
    from power.profile.model import Battery

    trainer = TinyTrainer(DEVICES, 1)
    phones = [profile(1.0 + i, 2.0 + i, battery=Battery(capacity_j=40_000, charge_w=8)) for i in range(3)]
    place = world(fleet(phones, trainer.sizes, speed_spread=0.2), replay(people))
    made = engine(selector, place=place, trainer=trainer, rounds=ROUNDS, k=3, candidates=6, local_epochs=2)
    histogram = np.random.default_rng(0).dirichlet(np.ones(CLASSES), DEVICES)
    return Engine(
        place,
        trainer,
        selector,
        made.rules,
        made.reward_rules,
        1,
        classes=CLASSES,
        label_histogram=histogram,
    )


def to_the_end(run: Engine) -> None:
    while not run.done:
        run.play()


@pytest.mark.parametrize("name", loadable())
def test_undeclared_fields_change_nothing(name: str) -> None:
    run = watched_engine(SELECTORS.load(name)())
    to_the_end(run)
    assert run.selector.questions == 2 * ROUNDS
    assert not np.isnan(run.reported.fields["true_epoch_s"]).all()


def test_a_selector_that_learns_on_learns_from_what_it_declares() -> None:
    run = watched_engine(SELECTORS.load("fedmarl")(online=True, explore_rounds=0))
    to_the_end(run)
    rewards = [
        agent.state_dict()["learner"]["rewards"] for agent in (run.selector.blind, run.selector.seeing)
    ]
    assert len(rewards[0]) == ROUNDS
    np.testing.assert_array_equal(*rewards)


@pytest.mark.parametrize("name", loadable())
def test_every_selector_plays_whole_rounds(name: str) -> None:
    """With only what it declares; 3 unique eligible devices a round, or as many as its method wants."""
    run = busy_engine(SELECTORS.load(name)())
    while not run.done:
        outcome = run.play()
        assert outcome.chosen.sum() <= 3
        assert outcome.round == 0 or outcome.chosen.any()


@pytest.mark.parametrize("name", loadable())
def test_every_selector_goes_on_from_a_checkpoint(name: str, tmp_path: Path) -> None:
    whole = busy_engine(SELECTORS.load(name)())
    first = busy_engine(SELECTORS.load(name)())
    while first.round < ROUNDS // 2:
        whole.play()
        first.play()
    save_checkpoint(tmp_path, first.state_dict())
    second = busy_engine(SELECTORS.load(name)())
    second.load_state_dict(load_checkpoint(tmp_path))
    while not whole.done:
        expected, found = whole.play(), second.play()
        assert found.clients.tolist() == expected.clients.tolist()
        assert found.chosen.tolist() == expected.chosen.tolist()
        assert (found.duration_ns, found.reward) == (expected.duration_ns, expected.reward)
    np.testing.assert_array_equal(second.weights, whole.weights)
    assert second.selector.metrics() == pytest.approx(whole.selector.metrics(), nan_ok=True)


def test_a_selector_that_peeks_is_caught() -> None:
    class Peeker(Prober):
        name = "peeker"

        def select(self, view, candidates, k, rng):
            return candidates[np.argsort(view.true_epoch_s[candidates], kind="stable")[:k]]

    run = watched_engine(Peeker())
    with (
        pytest.warns(UserWarning, match="'true_epoch_s' is not in the selector's `needs`"),
        pytest.raises(AssertionError, match="peeker: select"),
    ):
        to_the_end(run)


def test_a_selector_that_goes_by_what_others_truly_spent_is_caught() -> None:
    class Bookkeeper(Prober):
        name = "bookkeeper"
        spent_j = np.zeros(DEVICES)

        def observe(self, view, outcome):
            self.spent_j = self.spent_j.copy()
            self.spent_j[outcome.clients] += outcome.cost.wait_j + outcome.cost.train_j

        def select(self, view, candidates, k, rng):
            return candidates[np.argsort(-self.spent_j[candidates], kind="stable")[:k]]

    with pytest.raises(AssertionError, match="bookkeeper: select"):
        to_the_end(watched_engine(Bookkeeper()))


def test_reading_what_was_not_declared_warns_where_it_is_read() -> None:
    class Forgetful(Prober):
        needs = frozenset({"loss"})

        def select(self, view, candidates, k, rng):
            score = view.loss[candidates] / view.epoch_j[candidates]
            return candidates[np.argsort(-score, kind="stable")[:k]]

    run = busy_engine(Forgetful())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")  # once per place, as people see it
        to_the_end(run)
    (warning,) = caught
    assert "'epoch_j' is not in the selector's `needs`" in str(warning.message)
    assert warning.filename == __file__


def test_only_oracles_get_what_no_server_could_know() -> None:
    for name in loadable():
        selector = SELECTORS.load(name)
        assert selector.privileged or not selector.needs & PRIVILEGED_FIELDS, name


def test_an_oracle_is_told_when_devices_leave() -> None:
    """Policy charging: one on the charger until 60 s, another until 90 s."""
    people = [user("a", charging=[(0, 60)]), user("b", charging=[(0, 90)])]
    trainer = TinyTrainer(2, 1)
    place = world(fleet([profile()], trainer.sizes), replay(people, "charging"))
    run = engine(SELECTORS.load("refl_oracle")(), place=place, trainer=trainer, rounds=1, k=2, candidates=2)
    np.testing.assert_allclose(run.open_round().view.leaves_s, [60.0, 90.0])
    still = engine(SELECTORS.load("refl_oracle")(), devices=3, rounds=1)
    assert np.isposinf(still.open_round().view.leaves_s).all()


def test_the_view_cannot_be_written_to() -> None:
    view = busy_engine(Prober()).open_round().view
    with pytest.warns(UserWarning, match="battery"):
        hidden = view.battery
    for values in (view.eligible, view.data_size, view.loss, hidden):
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 1


def test_reports_arrive_when_they_are_made() -> None:
    run = busy_engine(Prober())
    opened = run.open_round()
    probed = opened.candidates
    others = np.setdiff1d(np.arange(DEVICES), probed)
    assert not np.isnan(opened.view.loss[probed]).any()
    assert np.isnan(opened.view.loss[others]).all()
    assert not np.isnan(opened.view.comm_s).any()  # from the speed test at registration
    with pytest.warns(UserWarning, match="battery"):
        assert np.isnan(opened.view.battery).all()  # not asked for


def test_an_outcome_tells_a_selector_what_it_declared_and_nothing_else() -> None:
    class Listening(Prober):
        needs = frozenset({"loss"})

        def observe(self, view: ServerView, outcome: Any) -> None:
            self.heard = outcome

    selector = Listening()
    logged = engine(selector).play()
    assert np.isfinite(logged.reports.epoch_s).any()
    np.testing.assert_array_equal(selector.heard.reports.loss, logged.reports.loss)
    for name in ("epoch_s", "epoch_j", "comm_s", "comm_j", "upload_j", "loss_rms"):
        assert np.isnan(getattr(selector.heard.reports, name)).all()
    for field in fields(ClientCost):
        assert np.isfinite(getattr(logged.cost, field.name)).all()
        assert np.isnan(getattr(selector.heard.cost, field.name)).all()
