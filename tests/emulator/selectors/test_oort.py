"""Oort's own rules beyond the recorded decisions: the paper's mode, feedback, options, EAFL."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emulator.round.outcome import Fate
from emulator.selectors.eafl import Eafl
from emulator.selectors.oort.draws import EngineDraws
from emulator.selectors.oort.official import OfficialRules
from emulator.selectors.oort.selector import Oort
from emulator.selectors.oort.settings import DEFAULTS, Settings
from emulator.selectors.oort.variants import FedScaleRules, PaperRules
from joulefleet.errors import ConfigError
from tests.emulator.selectors.driver import LOCAL_EPOCHS, World

ALL = np.ones(40, dtype=bool)


def paper_rules(explored: int = 40, **settings: float) -> PaperRules:
    rules = PaperRules(Settings(**{"pacer_step": 2, **settings}))  # type: ignore[arg-type]
    rules.register(np.full(40, 1e6), np.linspace(1.0, 40.0, 40))
    ids = np.arange(explored)
    rules.arms.feed_back(ids, 10.0 + ids, rules.arms.duration_s[ids], 1)
    return rules


def test_placeholders_do_not_distort_the_papers_scores() -> None:
    decision = paper_rules(explored=20).decide(5, ALL, EngineDraws(np.random.default_rng(0)))
    assert decision.norm.low == pytest.approx(9.99)
    assert decision.norm.clip == 29.0


def test_the_papers_pacer_relaxes_when_utility_falls_and_only_then() -> None:
    rules = paper_rules(threshold_percent=30.0, threshold_step_percent=10.0)
    rules.history = [8.0, 8.0, 4.0]
    rules.calls = 3
    rules.decide(5, ALL, EngineDraws(np.random.default_rng(0)))
    assert rules.threshold_percent == 40.0
    rules.history = [4.0, 4.0, 8.0]
    rules.arms.succeeded[:] = True
    rules.calls = 3
    rules.decide(5, ALL, EngineDraws(np.random.default_rng(0)))
    assert rules.threshold_percent == 40.0


@pytest.mark.parametrize(
    ("history", "start", "then"),
    [
        ([1.0, 1.0, 6.0], 30.0, 20.0),  # 2, then 16: a jump
        ([1.0, 1.0, 2.01], 30.0, 20.0),  # 2, then a little more than 12: five times as much was added
        ([1.0, 1.0, 1.9], 30.0, 30.0),  # 2, then less than 12
        ([1.0, 1.0, 6.0], 15.0, 10.0),  # never below one step
        ([6.0, 6.0, 2.01], 30.0, 40.0),  # 12, then as much: flat
        ([6.0, 6.0, 2.01], 95.0, 100.0),  # never above all
        ([6.0, 6.0, 3.3], 30.0, 30.0),  # more than a tenth above
        ([6.0, 6.0, 0.7], 30.0, 30.0),  # more than a tenth below
    ],
)
def test_the_published_pacer_goes_up_on_flat_and_down_on_a_jump(
    history: list[float], start: float, then: float
) -> None:
    """Last call's only exploited device has a utility of 10, which becomes the last of the history."""
    rules = OfficialRules(Settings(pacer_step=2, threshold_percent=start, threshold_step_percent=10.0))
    rules.register(np.full(40, 1e6), np.linspace(1.0, 40.0, 40))
    rules.arms.feed_back(np.array([3]), np.array([10.0]), np.array([4.0]), 1)
    rules.history, rules.calls, rules.last_exploited = list(history), 3, np.array([3])
    decision = rules.decide(5, ALL, EngineDraws(np.random.default_rng(0)))
    assert decision.last_exploit_utility == pytest.approx(10.0, rel=1e-3)
    assert rules.threshold_percent == then


@pytest.mark.parametrize("kind", [OfficialRules, PaperRules, FedScaleRules])
def test_a_resumed_pacer_remembers_whom_it_chose(kind: type[OfficialRules]) -> None:
    """Feedback for those that were exploited and explored comes after the checkpoint."""
    whole = kind(Settings(pacer_step=2))
    whole.register(np.full(40, 1e6), np.linspace(1.0, 40.0, 40))
    for stamp in range(1, 5):
        chosen = whole.decide(10, ALL, EngineDraws(np.random.default_rng(stamp))).picked
        whole.arms.feed_back(chosen, 10.0 + chosen, 1.0 + chosen, stamp)
    last = whole.decide(10, ALL, EngineDraws(np.random.default_rng(5)))
    assert len(last.exploited) > 0
    assert len(last.explored) > 0
    resumed = kind(Settings(pacer_step=2))
    resumed.load_state_dict(whole.state_dict())
    for rules in (whole, resumed):
        rules.arms.feed_back(last.exploited, 100.0 + last.exploited, 1.0 + last.exploited, 5)
        rules.arms.feed_back(last.explored, 300.0 + last.explored, 1.0 + last.explored, 5)
        decision = rules.decide(10, ALL, EngineDraws(np.random.default_rng(6)))
        assert decision.last_exploit_utility == pytest.approx(100.0 + last.exploited.mean(), rel=1e-3)
        assert decision.last_explore_utility == pytest.approx(300.0 + last.explored.mean(), rel=1e-3)
        assert rules.history[-1] == decision.last_exploit_utility
    assert resumed.history == whole.history
    assert resumed.threshold_percent == whole.threshold_percent


def test_the_paper_explores_by_speed() -> None:
    rules = paper_rules(explored=10, sample_window=1e6)
    counts = np.zeros(40)
    state = rules.state_dict()
    rng = np.random.default_rng(1)
    for _ in range(300):
        rules.load_state_dict(state)
        counts[rules.decide(8, ALL, EngineDraws(rng)).explored] += 1
    assert counts[:10].sum() == 0
    assert counts[10:20].mean() > 1.5 * counts[30:].mean()


def test_slow_devices_are_penalised_by_the_square_of_their_lateness() -> None:
    rules = paper_rules(threshold_percent=0.0)  # T is the fastest device's second
    decision = rules.decide(5, ALL, EngineDraws(np.random.default_rng(0)))
    clipped = (np.minimum(10.0 + np.arange(40), decision.norm.clip) - decision.norm.low) / decision.norm.span
    assert decision.scores == pytest.approx(clipped / np.linspace(1.0, 40.0, 40) ** 2)


def test_the_blacklist_never_starves_a_round() -> None:
    rules = paper_rules(blacklist_after=0, blacklist_share=1.0)
    decision = rules.decide(5, ALL, EngineDraws(np.random.default_rng(0)))
    assert len(decision.blacklist) == 40
    assert len(set(decision.picked.tolist())) == 5


def test_feedback_is_what_devices_reported() -> None:
    world, selector = World(30, 6, 20, failures=0.0), Oort()
    decided = world.play(selector, 1, np.ones(30, dtype=bool))
    ids, arms = np.array(decided.chosen), selector.rules.arms
    assert np.flatnonzero(arms.count).tolist() == sorted(decided.chosen)
    assert arms.utility[ids] == pytest.approx(world.data_size[ids] * world.reported["loss_rms"][ids])
    expected_s = world.comm_s + LOCAL_EPOCHS * world.reported["epoch_s"]
    assert arms.duration_s[ids] == pytest.approx(expected_s[ids])
    assert set(arms.stamp[ids].tolist()) == {1}


def test_surplus_devices_are_credited_with_the_mean_and_lost_ones_with_nothing() -> None:
    world, selector = World(60, 20, 20, failures=0.6), Oort()
    decided = world.play(selector, 1, np.ones(60, dtype=bool))
    arms = selector.rules.arms
    finished = np.flatnonzero(world.reported["last_round"] == 1)
    mean = float(np.mean(world.data_size[finished] * world.reported["loss_rms"][finished]))
    surplus = [d for d in decided.chosen if d not in finished and (d + 1) % 4 == 2]
    lost = [d for d in decided.chosen if d not in finished and (d + 1) % 4 != 2]
    assert surplus
    assert lost
    assert arms.utility[surplus] == pytest.approx(mean)
    assert not arms.count[lost].any()


def test_devices_cut_at_the_deadline_are_stragglers_too() -> None:
    """Or they would stay unexplored, and take the whole share of exploration in every round."""
    world, selector = World(30, 5, 20), Oort()
    everyone = np.ones(30, dtype=bool)
    chosen = np.arange(5)
    world._measure(chosen, 1)
    outcome = world.outcome(selector, 1, chosen, chosen, [])
    late = replace(outcome, fates=(Fate.FINISHED, Fate.DEADLINE, Fate.LEFT, Fate.FINISHED, Fate.FINISHED))
    selector.observe(world.view(1, everyone, selector.needs), late)
    arms = selector.rules.arms
    assert np.flatnonzero(arms.count).tolist() == [0, 1, 3, 4]
    assert arms.utility[1] == pytest.approx(arms.utility[[0, 3, 4]].mean())


def test_each_mode_has_its_own_defaults_and_options_override_them() -> None:
    assert Oort().rules.settings == DEFAULTS["paper"]
    assert Oort(mode="official").rules.settings.cut_off == 0.7
    assert Oort(mode="official", cut_off=0.5).rules.settings.cut_off == 0.5


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mode": "magic"}, "known: paper, official, fedscale"),
        ({"cutoff": 0.5}, "known: mode, exploration"),
        ({"exploration": 1.5}, "from 0 to 1"),
        ({"penalty": -1}, "from 0 to 100"),
    ],
)
def test_wrong_options_are_explained(options: dict[str, float], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Oort(**options)  # type: ignore[arg-type]
    assert says in caught.value.hint


@pytest.mark.parametrize(("rounds", "step"), [(10, 2), (50, 5), (200, 20), (1000, 20)])
def test_short_runs_get_a_shorter_pacer(rounds: int, step: int) -> None:
    selector = Oort()
    World(30, 6, rounds).play(selector, 1, np.ones(30, dtype=bool))
    assert selector.rules.settings.pacer_step == step


def test_fedscales_pool_holds_more_than_ten_times_what_is_drawn() -> None:
    rules = FedScaleRules(Settings(cut_off=0.05))
    assert len(rules._pool(0.1 ** np.arange(60.0), 2)[1]) == 21
    assert len(rules._pool(np.linspace(1.0, 0.9, 60), 2)[1]) == 60
    assert len(rules._pool(0.1 ** np.arange(15.0), 2)[1]) == 15


def test_eafl_avoids_empty_batteries() -> None:
    world, selector = World(60, 10, 40, failures=0.0), Eafl()
    world.reported["battery"][:] = np.where(np.arange(60) < 30, 1.0, 0.01)
    chosen = [d for r in range(1, 13) for d in world.play(selector, r, np.ones(60, dtype=bool)).chosen][10:]
    plain = World(60, 10, 40, failures=0.0)
    oort = Oort()
    without = [d for r in range(1, 13) for d in plain.play(oort, r, np.ones(60, dtype=bool)).chosen][10:]
    assert np.mean(np.array(chosen) < 30) > np.mean(np.array(without) < 30) + 0.2
