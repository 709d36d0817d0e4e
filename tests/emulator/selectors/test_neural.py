"""The network, its gradients and losses, against torch and against brute force."""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from emulator.selectors.neural.adam import Adam
from emulator.selectors.neural.learner import Learner, LearnerOptions
from emulator.selectors.neural.mlp import Mlp
from emulator.selectors.neural.normalise import robust_log_z
from emulator.selectors.neural.pairs import imitation_loss, rank_loss
from emulator.selectors.neural.policy import Demonstrations
from emulator.selectors.neural.vdn import Transition, advantages, best_value, td_slopes
from joulefleet.errors import ConfigError


def torch_twin(network: Mlp) -> torch.nn.Sequential:
    layers: list[torch.nn.Module] = []
    for weight, bias in zip(network.weights, network.biases, strict=True):
        linear = torch.nn.Linear(*weight.shape)
        linear.weight.data = torch.from_numpy(weight.T.copy())
        linear.bias.data = torch.from_numpy(bias.copy())
        layers += [linear, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def torch_gradients(twin: torch.nn.Sequential) -> list[np.ndarray]:
    linears = [layer for layer in twin if isinstance(layer, torch.nn.Linear)]
    return [layer.weight.grad.numpy().T for layer in linears] + [layer.bias.grad.numpy() for layer in linears]


def test_outputs_and_gradients_are_torchs() -> None:
    network = Mlp.made((6, 64, 64, 2), default_rng(1))
    twin = torch_twin(network)
    x = default_rng(2).normal(size=(5000, 6)).astype(np.float32)
    slope = default_rng(3).normal(size=(5000, 2)).astype(np.float32)
    out = twin(torch.from_numpy(x))
    np.testing.assert_allclose(network(x), out.detach().numpy(), rtol=1e-4, atol=1e-5)
    out.backward(torch.from_numpy(slope))
    for own, theirs in zip(
        network.gradients(network.activations(x), slope), torch_gradients(twin), strict=True
    ):
        np.testing.assert_allclose(own, theirs, rtol=1e-3, atol=1e-3)


def test_adam_is_torchs() -> None:
    start = default_rng(0).normal(size=(4, 3)).astype(np.float32)
    own, theirs = start.copy(), torch.nn.Parameter(torch.from_numpy(start.copy()))
    adam, reference = Adam([own], 0.01, max_norm=None), torch.optim.Adam([theirs], 0.01)
    for step in range(30):
        gradient = default_rng(step).normal(size=(4, 3)).astype(np.float32)
        adam.step([own], [gradient])
        theirs.grad = torch.from_numpy(gradient)
        reference.step()
    np.testing.assert_allclose(own, theirs.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_a_long_gradient_is_shortened() -> None:
    adam = Adam([np.zeros(2, np.float32)], 0.1, max_norm=1.0)
    assert adam.step([np.zeros(2, np.float32)], [np.array([3.0, 4.0], np.float32)]) == pytest.approx(5.0)
    np.testing.assert_allclose(adam.state_dict()["mean"][0], [0.06, 0.08], rtol=1e-5)


def test_weights_of_another_shape_are_refused() -> None:
    network = Mlp.made((6, 64, 2), default_rng(0))
    with pytest.raises(ConfigError, match="do not fit"):
        network.load_state_dict(Mlp.made((5, 64, 2), default_rng(0)).state_dict())


@pytest.mark.parametrize("every_pair", [False, True])
def test_rank_loss_is_cross_entropy_of_pair_probabilities(every_pair: bool) -> None:
    rng = default_rng(5)
    score, goal = rng.normal(size=(2, 9)).astype(np.float32)
    chosen = np.arange(9) < 3
    loss, slope = rank_loss(score, goal, chosen, every_pair=every_pair)
    f, g = torch.tensor(score, requires_grad=True), torch.tensor(goal)
    pairs = [
        (i, j) for i in range(9) for j in range(9) if (i != j if every_pair else chosen[i] and not chosen[j])
    ]
    terms = [
        torch.nn.functional.binary_cross_entropy_with_logits(f[i] - f[j], torch.sigmoid(g[i] - g[j]))
        for i, j in pairs
    ]
    expected = torch.stack(terms).mean()
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    np.testing.assert_allclose(slope, f.grad.numpy(), rtol=1e-4, atol=1e-6)


@given(
    scores=st.lists(st.floats(-20, 20, width=32), min_size=2, max_size=12),
    chosen=st.integers(1, 11),
    shift=st.floats(-5, 5, width=32),
)
@settings(deadline=None, max_examples=50)
def test_rank_loss_is_flat_where_the_probabilities_agree(
    scores: list[float], chosen: int, shift: float
) -> None:
    score = np.array(scores, np.float32)
    picks = np.arange(len(score)) < min(chosen, len(score) - 1)
    # Only differences count, so a target moved as a whole is the same target.
    _, slope = rank_loss(score, score + np.float32(shift), picks, every_pair=False)
    np.testing.assert_allclose(slope, 0.0, atol=1e-5)


def test_imitation_loss_is_weighted_cross_entropy() -> None:
    score = default_rng(1).normal(size=20).astype(np.float32)
    expert = np.arange(20) < 4
    loss, slope = imitation_loss(score, expert, pairwise=False)
    f = torch.tensor(score, requires_grad=True)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(
        f, torch.tensor(expert, dtype=torch.float32), pos_weight=torch.tensor(4.0)
    )
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    np.testing.assert_allclose(slope, f.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_pairwise_imitation_is_ranknet_with_hard_labels() -> None:
    score = default_rng(1).normal(size=8).astype(np.float32)
    expert = np.arange(8) < 3
    loss, _ = imitation_loss(score, expert, pairwise=True)
    pairs = score[~expert][None, :] - score[expert][:, None]
    assert loss == pytest.approx(float(np.logaddexp(0, pairs).mean()), rel=1e-4)


@given(
    q=st.lists(st.tuples(st.floats(-9, 9, width=16), st.floats(-9, 9, width=16)), min_size=1, max_size=10),
    k=st.integers(0, 10),
)
@settings(deadline=None, max_examples=100)
def test_best_joint_value_is_brute_forces(q: list[tuple[float, float]], k: int) -> None:
    values = np.array(q, np.float32)
    k = min(k, len(values))
    brute = max(
        sum(values[i, int(i in picks)] for i in range(len(values)))
        for picks in combinations(range(len(values)), k)
    )
    assert best_value(values, k) == pytest.approx(float(brute), abs=1e-4)


def test_free_cohort_takes_whoever_gains() -> None:
    assert best_value(np.array([[0, 1], [2, -1], [0, 0]], np.float32), None) == 3.0


@given(
    q=st.lists(st.tuples(st.floats(-9, 9, width=16), st.floats(-9, 9, width=16)), min_size=1, max_size=7),
    most=st.integers(1, 7),
)
@settings(deadline=None, max_examples=100)
def test_best_value_of_a_free_cohort_is_brute_forces(q: list[tuple[float, float]], most: int) -> None:
    values = np.array(q, np.float32)
    brute = max(
        best_value(values, k) for k in range(1, min(most, len(values)) + 1)
    )  # of exactly k, which is held against brute force above
    assert best_value(values, None, most) == pytest.approx(brute, abs=1e-4)


def test_a_free_cohorts_reward_counts_once_whatever_its_size() -> None:
    """Q_tot = reward * most in both rounds: no TD error in either, though one chose 1 device and one 4."""
    state, target = np.zeros((6, 6), np.float32), Mlp.made((6, 8, 2), default_rng(0))
    q = np.full((6, 2), 0.3 * 5 / 6, np.float32)
    batch = [Transition(state, np.arange(6) < n, 0.3, None, None, 5) for n in (1, 4)]
    loss, _ = td_slopes([q, q], batch, target, 0.9)
    assert loss == pytest.approx(0.0, abs=1e-10)


def test_td_slopes_are_the_gradient_of_the_td_loss() -> None:
    rng = default_rng(4)
    target = Mlp.made((6, 8, 2), rng)
    batch = [
        Transition(rng.normal(size=(n, 6)).astype(np.float32), np.arange(n) < 2, r, following, 2)
        for n, r, following in (
            (5, 0.3, rng.normal(size=(4, 6)).astype(np.float32)),
            (7, -1.2, None),
        )
    ]
    q = [rng.normal(size=(len(t.state), 2)).astype(np.float32) for t in batch]
    loss, slopes = td_slopes(q, batch, target, 0.9)
    tensors = [torch.tensor(v, requires_grad=True) for v in q]
    errors = []
    for values, seen in zip(tensors, batch, strict=True):
        goal = seen.reward
        if seen.next_state is not None:
            goal += 0.9 * best_value(target(seen.next_state), 2) / 2
        taken = torch.where(torch.tensor(seen.action), values[:, 1], values[:, 0]).sum() / 2
        errors.append((taken - goal) ** 2)
    expected = torch.stack(errors).mean()
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-4)
    for own, values in zip(slopes, tensors, strict=True):
        np.testing.assert_allclose(own, values.grad.numpy(), rtol=1e-4, atol=1e-5)


@given(unit=st.floats(1e-6, 1e6), seed=st.integers(0, 100), n=st.integers(2, 60))
@settings(deadline=None, max_examples=50)
def test_normalisation_knows_no_units_and_no_order(unit: float, seed: int, n: int) -> None:
    rng = default_rng(seed)
    x = rng.lognormal(sigma=2.0, size=n)
    order = rng.permutation(n)
    z = robust_log_z([x])
    np.testing.assert_allclose(robust_log_z([x * unit]), z, atol=1e-4)
    np.testing.assert_array_equal(robust_log_z([x[order]]), z[order])
    assert np.abs(z).max() <= 3.0


def test_normalisation_of_odd_columns() -> None:
    constant, missing, mostly = np.full(5, 7.0), np.full(5, np.nan), np.array([1.0, 1, 1, 1, 9])
    z = robust_log_z([constant, missing, mostly, np.array([1.0, np.nan, 3, 2, 4]), np.zeros(5)])
    assert (z[:, [0, 1, 4]] == 0).all()
    assert z[4, 2] > z[0, 2]
    assert z[1, 3] == pytest.approx(z[3, 3])


def test_infinity_is_larger_than_any_number() -> None:
    x = np.array([1.0, 2.0, 3.0, 4.0, np.inf])
    z = robust_log_z([x, np.where(x < 3, x, np.inf), np.full(5, np.inf), np.where(x < 3, np.nan, x)])
    assert np.isfinite(z).all()
    assert z[4, 0] == 3.0
    assert (np.diff(z[:, 0]) >= 0).all()
    assert z[0, 1] <= z[1, 1] < z[2, 1]
    assert (z[:, 2] == 0).all()


def learner_after(rewards: tuple[float, float], **options: object) -> np.ndarray:
    """Scores of five devices after one round that chose the first two, and one that chose the last two."""
    learner = Learner(Mlp.made((6, 16, 2), default_rng(0)), LearnerOptions(rate=1e-2, **options), None)
    state = np.eye(5, 6, dtype=np.float32)
    for reward, chosen in zip(rewards, ((0, 1), (3, 4)), strict=True):
        learner.keep(Transition(state, np.isin(np.arange(5), chosen), reward, None, 2), default_rng(0))
    before = learner.network(state)
    for number in range(1, 60):
        learner.learn(number, default_rng(number))
    after = learner.network(state)
    return (after[:, 1] - after[:, 0]) - (before[:, 1] - before[:, 0])


def test_credited_ranking_raises_the_devices_of_the_better_round() -> None:
    moved = learner_after((1.0, -1.0), discount=0.0)
    assert moved[:2].min() > moved[3:].max()


def kept_round(learner: Learner, reward: float, chosen: int = 2) -> Transition:
    seen = Transition(np.eye(5, 6, dtype=np.float32), np.arange(5) < chosen, reward, None, 2)
    learner.keep(seen, default_rng(0))
    return seen


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), float("-inf")])
def test_a_reward_that_is_no_number_teaches_nothing(reward: float) -> None:
    learner = Learner(Mlp.made((6, 16, 2), default_rng(0)), LearnerOptions(), None)
    for value in (1.0, reward, -1.0):
        kept_round(learner, value)
    learner.learn(1, default_rng(0))
    assert all(np.isfinite(values).all() for values in learner.network.parameters())
    assert learner.state_dict()["rewards"].tolist() == [1.0, -1.0]


def test_no_updates_are_possible() -> None:
    learner = Learner(Mlp.made((6, 16, 2), default_rng(0)), LearnerOptions(updates=0), None)
    before = learner.network.copy()
    kept_round(learner, 1.0)
    learner.learn(5, default_rng(0))
    assert all(map(np.array_equal, learner.network.parameters(), before.parameters()))


@pytest.mark.parametrize(("target", "counts"), [("credited", True), ("literal", False)])
def test_the_reward_is_in_the_rank_target_only_if_credited(target: str, counts: bool) -> None:
    """As printed, the target is the target network's own value of what was done (item A9)."""
    learner = Learner(Mlp.made((6, 16, 2), default_rng(0)), LearnerOptions(rank_target=target), None)
    seen, _ = kept_round(learner, 1.0), kept_round(learner, -1.0)
    q = learner.network(seen.state)
    score, goal = learner._scores(q, seen)
    expected = q[:, 1] - q[:, 0] if counts else np.where(seen.action, q[:, 1], q[:, 0])
    np.testing.assert_allclose(score, expected, rtol=1e-6)
    # The target network is still the same one: what it differs by is the standardised reward.
    np.testing.assert_allclose(goal - score, seen.action * float(counts), atol=1e-6)


@pytest.mark.parametrize("count", range(1, 9))
def test_equal_rewards_earn_no_credit(count: int) -> None:
    learner = Learner(Mlp.made((6, 16, 2), default_rng(0)), LearnerOptions(), None)
    for _ in range(count):
        kept_round(learner, 0.1)  # the standard deviation of three of these is not 0
    assert learner._standardised(0.1) == 0.0


def test_all_pairs_are_more_than_mixed_ones() -> None:
    """With one target per device, mixed pairs of equals cancel where all pairs do not."""
    found = []
    for pairs in ("mixed", "all"):
        options = LearnerOptions(pairs=pairs, rank_target="literal")
        learner = Learner(Mlp.made((6, 16, 2), default_rng(0)), options, None)
        kept_round(learner, 1.0, chosen=5)  # everyone: there is no mixed pair
        learner.learn(1, default_rng(0))
        found.append(learner.ranking_loss)
    assert found[0] == 0.0
    assert found[1] > 0.0


def test_demonstrations_are_replayed_less_and_less() -> None:
    states = default_rng(0).normal(size=(8, 5, 6)).astype(np.float32)
    demos = Demonstrations(states, np.tile(np.arange(5) < 2, (8, 1)))
    options = LearnerOptions(demo_share=0.5, demo_rounds=10, batch=16)
    learner = Learner(Mlp.made((6, 16, 2), default_rng(0)), options, demos)
    shown = [len(learner._demonstrated(number, default_rng(0))) for number in (1, 6, 11, 50)]
    assert shown == [8, 4, 0, 0]
    moved = []
    for replayed in (demos, None):
        learner = Learner(Mlp.made((6, 16, 2), default_rng(0)), options, replayed)
        kept_round(learner, 0.0)
        for number in range(1, 6):
            learner.learn(number, default_rng(number))
        score = advantages(learner.network(states.reshape(-1, 6))).reshape(8, 5)
        moved.append(np.mean([imitation_loss(s, np.arange(5) < 2, pairwise=False)[0] for s in score]))
    assert moved[0] < moved[1]


def test_large_rounds_are_kept_within_bounds() -> None:
    learner = Learner(Mlp.made((6, 4, 2), default_rng(0)), LearnerOptions(max_others=50), None)
    state = default_rng(0).normal(size=(5000, 6)).astype(np.float32)
    learner.keep(Transition(state, np.arange(5000) < 10, 1.0, state, 10), default_rng(0))
    kept = learner.state_dict()["cache"][0]
    assert len(kept["state"]) == 60
    assert kept["action"].sum() == 10
    assert len(kept["next_state"]) == 60


def test_a_baseline_is_taken_off_every_reward() -> None:
    """By hand: (2 - 0.5) of a last round against values of 1.5, so nothing is left to learn."""
    state, target = np.zeros((4, 6), np.float32), Mlp.made((6, 8, 2), default_rng(0))
    q = np.zeros((4, 2), np.float32)
    q[:2, 1] = 1.5
    last = Transition(state, np.arange(4) < 2, 2.0, None, None)
    assert td_slopes([q], [last], target, 0.9, 0.5)[0] == pytest.approx(0.0, abs=1e-10)
    assert td_slopes([q], [last], target, 0.9)[0] == pytest.approx(0.25)


def _learner(**options: object) -> Learner:
    return Learner(Mlp.made((6, 8, 2), default_rng(0)), LearnerOptions(**options), None)


def test_the_mean_of_the_rewards_is_the_baseline() -> None:
    """Rewards of -9 and -11: without a baseline picks are pushed down by 10, with it by none."""
    state = np.zeros((4, 6), np.float32)
    losses = {}
    for baseline in ("none", "mean"):
        learner = _learner(baseline=baseline, rank_weight=0.0, updates=1, batch=64, discount=0.0)
        for reward in (-9.0, -11.0):
            learner.keep(Transition(state, np.arange(4) < 2, reward, None, None), default_rng(1))
        learner.learn(1, default_rng(2))
        losses[baseline] = learner.td_loss
    assert losses["none"] == pytest.approx(101.0, rel=0.1)
    assert losses["mean"] == pytest.approx(1.0, rel=0.2)


@pytest.mark.parametrize("credit", ["round", "device"])
def test_credit_of_a_device_is_its_own(credit: str) -> None:
    """Rounds of 0 and 2: mean 1, standard deviation 1. A straggler of the good round has -1 of its own."""
    learner = _learner(credit=credit)
    state = default_rng(3).normal(size=(3, 6)).astype(np.float32)
    action = np.array([True, True, False])
    bad = Transition(state, action, 0.0, None, None)
    good = Transition(state, action, 2.0, None, None, credits=np.array([2.0, -1.0, 0.0]))
    learner.keep(bad, default_rng(0))
    learner.keep(good, default_rng(0))
    _, goal = learner._scores(learner.network(state), good)
    added = goal - advantages(learner.network(state))
    expected = [1.0, -2.0, 0.0] if credit == "device" else [1.0, 1.0, 0.0]
    np.testing.assert_allclose(added, expected, atol=1e-6)


def test_an_energy_that_came_out_below_zero_counts_as_none() -> None:
    """Marginal energies are measured less idling: noise can turn a small one negative."""
    np.testing.assert_array_equal(
        robust_log_z([np.array([-0.3, 1.0, 2.0, 4.0])]), robust_log_z([np.array([0.0, 1.0, 2.0, 4.0])])
    )
    assert np.isfinite(robust_log_z([np.array([-0.3, -0.2, -0.1, np.nan])])).all()
