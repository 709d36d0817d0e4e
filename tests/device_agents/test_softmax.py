import numpy as np
import pytest

from device_agents.workloads.softmax import Softmax, synthetic_shard


def test_a_step_follows_the_gradient() -> None:
    """One full-batch step against a numerical gradient of the mean cross-entropy."""
    rng = np.random.default_rng(0)
    model = Softmax(features=4, classes=3, learning_rate=0.5, batch_size=100)
    x, y = rng.random((20, 4)), rng.integers(0, 3, 20)
    start = rng.normal(size=model.initial().shape)

    def loss(parameters: np.ndarray) -> float:
        w = parameters.reshape(5, 3)
        logits = x @ w[:-1] + w[-1]
        p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        return float(-np.log(p[np.arange(20), y]).mean())

    after, seen = model.epoch(start, x, y, rng)
    eye = np.eye(len(start)) * 1e-6
    gradient = np.array([(loss(start + e) - loss(start - e)) / 2e-6 for e in eye])
    assert seen == pytest.approx(loss(start), rel=1e-12)
    assert after == pytest.approx(start - 0.5 * gradient, abs=1e-8)


def test_it_learns_and_does_not_touch_its_input() -> None:
    rng = np.random.default_rng(1)
    model = Softmax(features=2, classes=2)
    x = rng.normal(size=(400, 2))
    y = (x[:, 0] > 0).astype(np.int64)
    start = model.initial()
    after = start
    for _ in range(5):
        after, _ = model.epoch(after, x, y, rng)
    assert model.accuracy(after, x, y) > 0.97
    assert not start.any()


def test_synthetic_data_has_the_right_shape() -> None:
    x, y = synthetic_shard(7, Softmax(), np.random.default_rng(0))
    assert x.shape == (7, 64)
    assert set(y) <= set(range(10))
