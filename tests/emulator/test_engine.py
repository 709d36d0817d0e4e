"""Rounds on small worlds: cost, learning, fates, and every way in which a round can come to nothing."""

from dataclasses import replace

import numpy as np
import pytest

from emulator.fleet.conditions import Replayed
from emulator.round.engine import Engine
from emulator.round.outcome import Accounting, Fate
from emulator.round.rules import Aggregation
from emulator.round.selector import Probe, Profiling
from emulator.selectors.fedavg import FedAvg
from joulefleet.errors import ConfigError, DataQualityError, JoulefleetError, NobodyLeft
from joulefleet.provenance import Origin, Provenance
from power.profile.model import Battery
from tests.emulator.tiny_trainer import TinyTrainer
from tests.emulator.worlds import (
    HOUR_S,
    SECOND_NS,
    Prober,
    engine,
    fleet,
    play,
    profile,
    replay,
    user,
    world,
)


class Everybody(FedAvg):
    """Chooses in the order of the ids, so that a test knows whom."""

    name = "everybody"

    def select(self, view, candidates, k, rng):
        return candidates[:k]


def test_a_round_costs_its_slowest_and_its_sum() -> None:
    e = engine()
    clock_ns = 0
    for outcome in play(e):
        ids = outcome.clients
        (first_s, first_j), (epoch_s, epoch_j) = e.world.fleet.first_epoch(ids), e.world.fleet.epoch(ids)
        assert outcome.start_ns == clock_ns
        assert outcome.duration_ns * 1e-9 == pytest.approx((first_s + 4 * epoch_s + 1.0).max(), abs=1e-8)
        assert outcome.energy_j == pytest.approx((first_j + 4 * epoch_j + 0.5).sum())
        assert outcome.chosen.all()
        assert set(outcome.fates) == {Fate.FINISHED}
        clock_ns += outcome.duration_ns


def test_probing_charges_everybody_and_continues_the_chosen() -> None:
    e = engine(Prober())
    for outcome in play(e):
        cost, ids = outcome.cost, outcome.clients
        (first_s, first_j), (epoch_s, epoch_j) = e.world.fleet.first_epoch(ids), e.world.fleet.epoch(ids)
        assert len(ids) == 6
        assert outcome.chosen.sum() == 3
        assert cost.probe_s == pytest.approx(first_s, abs=1e-8)
        assert cost.train_s == pytest.approx(np.where(outcome.chosen, 4 * epoch_s, 0.0), abs=1e-8)
        decision_s = (0.5 + first_s).max()
        assert cost.wait_s == pytest.approx(decision_s - 0.5 - first_s, abs=1e-8)
        assert cost.wait_j == pytest.approx(0.3 * cost.wait_s)
        honest = outcome.costs[Accounting.HONEST]
        assert honest.time_s == pytest.approx(decision_s + (4 * epoch_s + 0.5)[outcome.chosen].max())
        expected_j = (0.25 + first_j).sum() + (4 * epoch_j + 0.25)[outcome.chosen].sum()
        assert honest.energy_j == pytest.approx(expected_j)
        fates = np.array(outcome.fates)
        assert set(fates[outcome.chosen]) == {Fate.FINISHED}
        assert set(fates[~outcome.chosen]) == {Fate.REJECTED}


def test_probed_and_unprobed_training_are_the_same_training() -> None:
    """The probe is epoch 1: the same devices give the same model, however their epochs were asked for."""

    class ProbedEverybody(Everybody):
        probe = Probe.EPOCH

    plain, probed = engine(Everybody(), k=10, candidates=10), engine(ProbedEverybody(), k=10, candidates=10)
    for _ in range(3):
        plain.play()
        probed.play()
    np.testing.assert_array_equal(plain.weights, probed.weights)


def test_the_model_really_learns() -> None:
    e = engine(rounds=15)
    before = e.test().accuracy
    outcomes = play(e)
    assert before < 0.2
    assert e.test().accuracy > 0.85
    assert outcomes[-1].accuracy == e.score.accuracy
    assert sum(o.accuracy_gain for o in outcomes) == pytest.approx(e.score.accuracy - e_initial(e))


def e_initial(e) -> float:
    return e.trainer.evaluate(e.trainer.initial(), "validation").accuracy


def test_rewards_come_from_the_split_that_was_chosen() -> None:
    e = engine(rounds=2)
    tested = Engine(
        e.world, e.trainer, FedAvg(), e.rules, replace(e.reward_rules, split="test"), 0, classes=10
    )  # fmt: skip
    assert e.play().accuracy == e.trainer.evaluate(e.weights, "validation").accuracy
    assert tested.play().accuracy == e.trainer.evaluate(tested.weights, "test").accuracy
    np.testing.assert_array_equal(e.weights, tested.weights)


def test_aggregation_is_the_average_by_size() -> None:
    trainer = TinyTrainer(4, 0)
    trainer.shards = [shard[: 20 * (i + 1)] for i, shard in enumerate(trainer.shards)]
    for how, shares in ((Aggregation.BY_SIZE, [0.1, 0.2, 0.3, 0.4]), (Aggregation.UNIFORM, [0.25] * 4)):
        e = engine(Everybody(), trainer=trainer, k=4, candidates=4, rounds=1, aggregation=how)
        e.play()
        reference = TinyTrainer(4, 0)
        reference.shards = trainer.shards
        reference.begin(1, reference.initial())
        ids = np.arange(4)
        reference.train(ids, np.full(4, 5))
        expected = (reference.weights(ids).astype(float) * np.array(shares)[:, None]).sum(0)
        assert e.weights == pytest.approx(expected, abs=1e-6)


def test_the_same_seed_gives_the_same_run_and_another_a_different_one() -> None:
    def trace(seed: int) -> list[tuple[object, ...]]:
        return [(o.clients.tolist(), o.duration_ns, o.accuracy, o.reward) for o in play(engine(seed=seed))]

    assert trace(3) == trace(3)
    assert trace(3) != trace(4)


def test_methods_that_probe_at_random_get_the_same_candidates() -> None:
    class Other(Prober):
        name = "other"

        def select(self, view, candidates, k, rng):
            return candidates[-k:]

    pairs = zip(play(engine(Prober())), play(engine(Other())), strict=True)
    assert all(a.clients.tolist() == b.clients.tolist() for a, b in pairs)


def people(n: int, **facts) -> list:
    return [user(f"u{i}", **facts) for i in range(n)]


def placed(users, policy: str, sizes: int = 100, **phone):
    return world(fleet([profile(**phone)], [sizes] * len(users)), replay(users, policy))


def test_nobody_there_the_clock_goes_on_to_when_somebody_is() -> None:
    users = [*people(4, charging=[(7200, 9000)]), user("early", charging=[(3600, 5000)])]
    e = engine(place=placed(users, "charging"), devices=5, rounds=1)
    outcome = e.play()
    assert outcome.start_ns == 0
    assert outcome.clients.tolist() == [4]
    assert outcome.duration_ns - 3600 * SECOND_NS == round(outcome.costs[Accounting.HONEST].time_s * 1e9)
    assert e.clock_ns == outcome.duration_ns


def test_nobody_ever_there_is_an_error_that_says_so() -> None:
    e = engine(place=placed(people(4, charging=[]), "charging"), devices=4)
    with pytest.raises(NobodyLeft, match="no device is eligible") as caught:
        e.play()
    assert "traces stats" in caught.value.hint


def test_when_nobody_finishes_the_model_stays() -> None:
    users = people(4, charging=[(0, 3), (7200, 7203)])
    e = engine(place=placed(users, "charging"), devices=4, k=4, candidates=4, rounds=2)
    before = e.weights.copy()
    first, second = play(e)
    assert set(first.fates) == set(second.fates) == {Fate.LEFT}
    assert first.duration_ns == 3 * SECOND_NS
    assert first.energy_j == pytest.approx(4 * (0.25 + 2.5 * 1.5))
    assert first.accuracy_gain == first.reward == 0.0
    np.testing.assert_array_equal(e.weights, before)
    assert second.start_ns + second.duration_ns == 7203 * SECOND_NS


def test_when_every_candidate_leaves_nobody_is_asked_for_a_choice() -> None:
    e = engine(Prober(), place=placed(people(4, charging=[(0, 2)]), "charging"), devices=4, rounds=1)
    outcome = e.play()
    assert set(outcome.fates) == {Fate.LEFT}
    assert not outcome.chosen.any()
    assert outcome.duration_ns == 2 * SECOND_NS
    assert outcome.reward == 0.0


def test_a_battery_that_never_recovers_is_waited_for_a_year_at_most() -> None:
    """Always 3 %, below what a phone that ran out restarts at; the charger comes and goes for ever."""
    from traces.replay.devices import FleetRecipe
    from traces.replay.flat import flatten
    from traces.replay.fleet import TraceFleet

    hours = [(h * HOUR_S, 0.03) for h in range(25)]
    flat = flatten(people(2, battery=hours, charging=[(3600, 7200)]))
    there = Replayed(TraceFleet.from_recipe(flat, FleetRecipe(devices=2)), "recorded")
    place = world(fleet([profile(battery=Battery(capacity_j=100, charge_w=1))], [100] * 2), there)
    e = engine(Everybody(), place=place, devices=2, k=2, candidates=2)
    assert set(e.play().fates) == {Fate.BATTERY}
    with pytest.raises(NobodyLeft, match="no device is eligible"):
        e.play()


def test_fewer_there_than_wanted_are_all_taken() -> None:
    users = [*people(2, charging=[(0, 3600)]), *[user(f"away{i}", charging=[]) for i in range(4)]]
    e = engine(place=placed(users, "charging"), devices=6, k=3)
    assert e.play().clients.tolist() == [0, 1]


def test_who_leaves_while_waiting_cannot_be_chosen() -> None:
    """Device 0 is done after 2.5 s, the slow one after 20.5; device 0 leaves at 10."""
    phones = [profile(device="fast"), profile(epoch_s=20.0, device="slow")]
    users = [user("a", charging=[(0, 10)]), *[user(f"u{i}", charging=[(0, 3600)]) for i in range(3)]]
    state = fleet(phones, [100] * 4)
    fast = int(np.flatnonzero(state.profile == 0)[0])
    users[0], users[fast] = users[fast], users[0]
    e = engine(Prober(), place=world(state, replay(users, "charging")), devices=4, k=4, candidates=4)
    opened = e.open_round()
    assert fast not in opened.candidates
    outcome = e.close_round(opened, opened.candidates, np.full(3, 5))
    assert outcome.fates[fast] is Fate.LEFT
    assert outcome.cost.wait_s[fast] == pytest.approx(7.5)


def test_a_probe_deadline_ends_probing_but_not_the_round() -> None:
    phones = [profile(device="fast"), profile(epoch_s=20.0, device="slow")]
    e = engine(
        Prober(), place=world(fleet(phones, [100] * 4)), devices=4, k=2, candidates=4, probe_deadline_s=5.0
    )
    outcome = e.play()
    fates = np.array(outcome.fates)
    slow = e.world.fleet.profile[outcome.clients] == 1
    assert set(fates[slow]) == {Fate.DEADLINE}
    assert set(fates[~slow]) == {Fate.FINISHED}
    assert outcome.cost.probe_s[slow] == pytest.approx(4.5)
    assert outcome.duration_ns * 1e-9 == pytest.approx(5.0 + 8.0 + 0.5)


def test_a_deadline_ends_the_probing_too() -> None:
    """An epoch takes 20 s: at the deadline of 5 s nobody has finished the probe."""
    place = world(fleet([profile(epoch_s=20.0)], [100] * 4))
    outcome = engine(Prober(), place=place, devices=4, k=2, candidates=4, deadline_s=5.0).play()
    assert set(outcome.fates) == {Fate.DEADLINE}
    assert outcome.duration_ns == 5 * SECOND_NS
    assert outcome.cost.probe_s == pytest.approx(4.5)


def test_a_deadline_drops_the_slow_and_charges_them() -> None:
    phones = [profile(device="fast"), profile(epoch_s=20.0, epoch_j=30.0, device="slow")]
    e = engine(
        Everybody(), place=world(fleet(phones, [100] * 4)), devices=4, k=4, candidates=4, deadline_s=60
    )
    outcome = e.play()
    slow = e.world.fleet.profile == 1
    assert {f for f, s in zip(outcome.fates, slow, strict=True) if s} == {Fate.DEADLINE}
    assert outcome.duration_ns == 60 * SECOND_NS
    assert outcome.cost.train_j[slow] == pytest.approx(59.5 * 1.5)


def test_over_commitment_ends_with_the_first_k() -> None:
    phones = [profile(epoch_s=float(i), device=f"d{i}") for i in (1, 2, 3, 4)]
    e = engine(
        Everybody(), place=world(fleet(phones, [100] * 4)), devices=4, k=2, candidates=4, over_commit=2.0
    )
    outcome = e.play()
    rank = e.world.fleet.profile[outcome.clients]
    assert [outcome.fates[i] for i in np.argsort(rank)] == [Fate.FINISHED] * 2 + [Fate.SURPLUS] * 2
    assert outcome.duration_ns == 11 * SECOND_NS
    assert outcome.cost.train_s[np.argsort(rank)] == pytest.approx([5.0, 10.0, 10.5, 10.5])


@pytest.mark.parametrize("k", [1, 2, 3])
def test_over_commitment_ends_with_the_first_k_where_sending_takes_no_time(k: int) -> None:
    """The last one wanted finishes in the very moment in which its round is closed."""
    phones = [profile(epoch_s=float(i), upload=None, device=f"d{i}") for i in (1, 2, 3, 4)]
    place = world(fleet(phones, [100] * 4))
    outcome = engine(Everybody(), place=place, devices=4, k=k, candidates=4, over_commit=4 / k).play()
    rank = np.argsort(place.fleet.profile[outcome.clients])
    assert [outcome.fates[i] for i in rank] == [Fate.FINISHED] * k + [Fate.SURPLUS] * (4 - k)
    assert outcome.duration_ns == (5 * k * SECOND_NS) + SECOND_NS // 2


def test_over_commitment_is_not_rounded_up_by_the_floating_point() -> None:
    assert 50 * 1.1 > 55
    place = world(fleet([profile()], [100] * 60))
    outcome = engine(place=place, devices=60, k=50, candidates=60, over_commit=1.1).play()
    assert np.count_nonzero(outcome.chosen) == 55


def test_over_commitment_takes_exactly_k_of_equals() -> None:
    place = world(fleet([profile()], [100] * 6))
    e = engine(Everybody(), place=place, devices=6, k=2, candidates=6, over_commit=3.0)
    outcome = e.play()
    assert list(outcome.fates) == [Fate.FINISHED] * 2 + [Fate.SURPLUS] * 4
    assert outcome.cost.upload_s == pytest.approx(np.full(6, 0.5))


def test_a_client_whose_loss_is_not_a_number_is_dropped_and_reported() -> None:
    for selector in (Everybody(), Prober()):
        trainer = TinyTrainer(4, 0, poisoned=(1,))
        e = engine(selector, trainer=trainer, k=4, candidates=4, rounds=3)
        outcomes = play(e)
        for outcome in outcomes:
            assert outcome.fates[1] is Fate.DIVERGED
            assert np.isnan(outcome.reports.loss[1])
            assert outcome.cost.probe_s[1] + outcome.cost.train_s[1] > 0
        assert np.isfinite(e.weights).all()
        assert outcomes[-1].accuracy > 0.5


def test_devices_without_data_stay_registered_and_count_for_nothing() -> None:
    trainer = TinyTrainer(4, 0)
    trainer.shards[2] = trainer.shards[2][:0]
    e = engine(Everybody(), trainer=trainer, k=4, candidates=4, rounds=2, aggregation=Aggregation.UNIFORM)
    outcome = e.play()
    assert outcome.fates[2] is Fate.FINISHED
    assert outcome.cost.train_s[2] == 0.0
    assert outcome.cost.download_s[2] == 0.5
    assert np.isnan(outcome.reports.loss[2])
    assert np.isfinite(e.weights).all()


def test_a_round_of_devices_without_data_leaves_the_model() -> None:
    trainer = TinyTrainer(3, 0)
    trainer.shards = [shard[:0] for shard in trainer.shards]
    e = engine(Everybody(), trainer=trainer, k=3, candidates=3, rounds=1)
    before = e.weights.copy()
    assert e.play().reward == 0.0
    np.testing.assert_array_equal(e.weights, before)


def test_batteries_end_rounds_and_come_back() -> None:
    hours = [(h * HOUR_S, 0.2) for h in range(25)]
    users = people(3, battery=hours, charging=[(3600, 7200)])
    place = placed(users, "recorded", battery=Battery(capacity_j=100, charge_w=1))
    e = engine(Everybody(), place=place, devices=3, k=3, candidates=3, rounds=3)
    first, second, third = play(e)
    assert set(first.fates) == {Fate.FINISHED}  # 15.5 J of the 20 that are there
    assert set(second.fates) == {Fate.BATTERY}
    assert second.energy_j == pytest.approx(3 * 4.5, rel=1e-4)
    assert third.duration_ns > 3500 * SECOND_NS  # nobody is there until the chargers are connected


def test_a_policy_asks_for_the_level_that_training_has_left() -> None:
    """60 % recorded, 15.5 % spent: below the limit of 50 % until the charger has paid it back."""
    hours = [(h * HOUR_S, 0.6) for h in range(25)]
    users = people(3, battery=hours, charging=[(3600, 7200)])
    phone = Battery(capacity_j=100, charge_w=1)
    place = placed(users, "battery >= 50 % and not charging", battery=phone)
    e = engine(Everybody(), place=place, devices=3, k=3, candidates=3, rounds=2)
    first, second = play(e)
    assert set(first.fates) == set(second.fates) == {Fate.FINISHED}
    idle_ns = second.duration_ns - round(second.costs[Accounting.HONEST].time_s * 1e9)
    assert second.start_ns + idle_ns == 7200 * SECOND_NS


class Profiler(Everybody):
    name = "profiler"
    profiling = Profiling.EPOCH
    needs = frozenset({"epoch_s"})


def test_profiling_is_charged_as_round_0() -> None:
    class Uploader(Profiler):
        profiling = Profiling.UPDATE
        needs_weights = True

    for selector, extra_s in ((Profiler(), 0.0), (Uploader(), 0.5)):
        e = engine(selector, rounds=2)
        zero, one, _ = play(e)
        assert zero.round == 0
        assert len(zero.clients) == 10
        assert set(zero.fates) == {Fate.PROFILED}
        first_s, first_j = e.world.fleet.first_epoch(np.arange(10))
        assert zero.duration_ns * 1e-9 == pytest.approx((0.5 + first_s).max() + extra_s, abs=1e-8)
        assert zero.costs[Accounting.HONEST].energy_j == pytest.approx((0.25 + first_j + extra_s / 2).sum())
        assert zero.accuracy_gain == 0.0
        assert one.start_ns == zero.duration_ns
        assert not np.isnan(e.reported.fields["epoch_s"]).any()
    assert zero.reports.weights is not None
    assert np.isfinite(zero.reports.weights).all()


def test_profiling_is_no_probe_for_a_choice_and_counts_alike_in_every_accounting() -> None:
    zero = engine(Profiler(), rounds=1).play()
    assert zero.round == 0
    assert set(zero.costs.values()) == {zero.costs[Accounting.HONEST]}


def test_a_deadline_ends_the_profiling_too() -> None:
    """An epoch takes 20 s on the slow ones; whoever is not done after 5 s has told nothing."""
    phones = [profile(device="fast"), profile(epoch_s=20.0, device="slow")]
    e = engine(Profiler(), place=world(fleet(phones, [100] * 4)), devices=4, candidates=4, deadline_s=5.0)
    outcome = e.play()
    slow = e.world.fleet.profile == 1
    assert set(np.array(outcome.fates)[slow]) == {Fate.DEADLINE}
    assert set(np.array(outcome.fates)[~slow]) == {Fate.PROFILED}
    assert outcome.duration_ns == 5 * SECOND_NS
    assert outcome.cost.probe_s[slow] == pytest.approx(4.5)
    assert np.isnan(e.reported.fields["epoch_s"]).tolist() == slow.tolist()


def test_who_only_measures_an_epoch_reports_no_transfer() -> None:
    """Registration tells download and upload; profiling without upload must not cut that to the download."""

    class Tiered(Profiler):
        needs = frozenset({"epoch_s", "comm_s", "local_accuracy"})

    e = engine(Tiered(), rounds=2)
    e.play()
    assert e.reported.fields["comm_s"] == pytest.approx(1.0)
    assert np.isnan(e.reported.fields["local_accuracy"]).all()
    assert not np.isnan(e.reported.fields["epoch_s"]).any()


def test_a_state_in_memory_does_not_move_with_the_run() -> None:
    class Counting(Everybody):
        needs = frozenset({"loss", "check_ins", "times_chosen"})

    e = engine(Counting(), rounds=3)
    e.play()
    state = e.state_dict()
    before = state["reported"]["times_chosen"].tolist(), state["check_ins"].tolist()
    e.play()
    assert (state["reported"]["times_chosen"].tolist(), state["check_ins"].tolist()) == before


def test_a_loss_probe_is_a_forward_pass() -> None:
    class Asker(Everybody):
        name = "asker"
        probe = Probe.LOSS
        needs = frozenset({"global_loss"})

    e = engine(Asker(), rounds=1)
    outcome = e.play()
    epoch_s, _ = e.world.fleet.epoch(outcome.clients)
    assert outcome.cost.probe_s == pytest.approx(epoch_s / 3, abs=1e-8)
    assert outcome.cost.train_s[outcome.chosen] == pytest.approx(5 * epoch_s[outcome.chosen], abs=1e-8)
    assert outcome.reports.global_loss == pytest.approx(np.full(6, np.log(10)))


def test_a_batch_probe_is_a_forward_pass_over_one_batch() -> None:
    class Asker(Everybody):
        name = "asker"
        probe = Probe.BATCH
        needs = frozenset({"global_loss"})

    e = engine(Asker(), rounds=1)
    outcome = e.play()
    epoch_s, _ = e.world.fleet.epoch(outcome.clients)
    share = 32 / e.world.fleet.data_size[outcome.clients] / 3
    assert outcome.cost.probe_s == pytest.approx(epoch_s * share, abs=1e-8)


def test_who_asks_for_the_loss_of_the_model_pays_for_it() -> None:
    class Curious(Everybody):
        needs = frozenset({"global_loss"})

    with_loss, without = engine(Curious(), rounds=1).play(), engine(Everybody(), rounds=1).play()
    assert with_loss.cost.train_s == pytest.approx(without.cost.train_s * (5 + 1 / 3) / 5)
    assert with_loss.reports.epoch_s == pytest.approx(without.reports.epoch_s)


def test_partial_work_is_charged_for_its_epochs() -> None:
    class Partial(Everybody):
        def epochs(self, view, chosen):
            return np.arange(1, len(chosen) + 1)

    outcome = engine(Partial(), rounds=1).play()
    full = engine(Everybody(), rounds=1).play()
    assert outcome.cost.train_s == pytest.approx(full.cost.train_s * np.array([1, 2, 3]) / 5)
    assert outcome.reports.epoch_s == pytest.approx(full.reports.epoch_s)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (lambda c: np.array([99]), "no candidates"),
        (lambda c: c[[0, 0]], "twice"),
        (lambda c: c[:5], "chose 5 devices where 3"),
    ],
)
def test_a_selector_that_misbehaves_is_named(answer, problem: str) -> None:
    class Bad(FedAvg):
        name = "bad"

        def select(self, view, candidates, k, rng):
            return answer(candidates)

    with pytest.raises(JoulefleetError, match=problem) as caught:
        engine(Bad(), devices=10).play()
    assert "'bad'" in caught.value.message


def test_impossible_rules_are_refused() -> None:
    with pytest.raises(ConfigError, match="more than the fleet"):
        engine(k=11, candidates=11)
    with pytest.raises(ConfigError, match="fewer than the 3"):
        engine(candidates=2)
    with pytest.raises(ConfigError, match="which no view has"):
        engine(type("S", (FedAvg,), {"needs": frozenset({"speed"})})())
    with pytest.raises(ConfigError, match="no server could know"):
        engine(type("S", (FedAvg,), {"needs": frozenset({"true_epoch_s"})})())
    with pytest.raises(ConfigError, match="which no outcome has"):
        engine(type("S", (FedAvg,), {"learns_from": frozenset({"credits"})})())


def test_an_invented_fleet_is_at_most_scaled() -> None:
    imported = profile(provenance=Provenance(origin=Origin.IMPORTED))
    assert fleet([imported], [100] * 4).origin is Origin.IMPORTED
    assert fleet([imported], [100] * 4, speed_spread=0.1).origin is Origin.SCALED
    assert fleet([imported], [200] * 4).origin is Origin.SCALED
    assert fleet([profile()], [200] * 4).origin is Origin.LITERATURE
    with pytest.raises(ConfigError, match="at least one device profile"):
        fleet([], [1])


def test_a_mix_of_profiles() -> None:
    phones = [profile(device="a"), profile(device="b")]
    state = fleet(phones, [100] * 10, mix={"a": 3, "b": 1})
    assert np.bincount(state.profile).tolist() == [8, 2]
    with pytest.raises(ConfigError, match="names c"):
        fleet(phones, [100] * 10, mix={"c": 1})
    with pytest.raises(ConfigError, match="no device any share"):
        fleet(phones, [100] * 10, mix={"a": 0})


def test_what_was_not_measured_is_listed() -> None:
    def gaps(**absent: None) -> str:
        phone = profile(battery=Battery(capacity_j=100, charge_w=1), **absent)
        return " ".join(fleet([phone], [100], energy="gross").costs.gaps)

    assert gaps() == ""
    for name, text in (("idle_power_w", "idle power"), ("wait_power_w", "waiting"), ("upload", "upload")):
        assert text in gaps(**{name: None})


def test_energy_of_the_wanted_kind_or_none() -> None:
    state = fleet([profile()], [100], energy="gross")
    assert state.first_epoch(np.arange(1))[1] == pytest.approx([5.0])
    bare = profile()
    bare = bare.model_copy(update={"epoch": bare.epoch.model_copy(update={"marginal_j": None})})
    with pytest.raises(DataQualityError, match="no marginal energy of its epoch") as caught:
        fleet([bare], [100])
    assert "gross" in caught.value.hint
    with pytest.raises(DataQualityError, match="how a load changes its gross energy"):
        fleet([bare], [100], energy="gross")
    assert len(fleet([bare.model_copy(update={"load_curve": ()})], [100], energy="gross")) == 1
    with pytest.raises(DataQualityError, match="no idle power, so its waiting has no marginal energy"):
        fleet([profile(idle_power_w=None)], [100])
