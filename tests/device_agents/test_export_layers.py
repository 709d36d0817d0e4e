"""Layers beyond those of our own models, in the exported step: what a user's own model may be made of."""

import logging

import numpy as np
import pytest

from device_agents.onnx_export.step import export_step
from device_agents.workloads import OnnxRuntimeTrainer, TorchTrainer, initial_state, synthetic_shard
from device_agents.workloads.flops import FLOAT_BYTES, count_task
from device_agents.workloads.own_code import OwnCode
from device_agents.workloads.tasks import Task
from joulefleet.errors import JoulefleetError
from tests.conftest import FULL_COUNTS

BATCH = 4
HEAD = """
import torch
from torch import nn
from torch.nn import Sequential as S, functional as F


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.out = nn.Linear(8, 24), nn.Linear(8, 3)

    def forward(self, x):
        q, k, v = self.into(x).chunk(3, -1)
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).mean(1))


class Last(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer, self.out = layer, nn.Linear(5, 3)

    def forward(self, x):
        return self.out(self.layer(x)[0][:, -1])


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.back = nn.Embedding(9, 4, padding_idx=0), nn.Linear(4, 9, bias=False)
        self.back.weight = self.token.weight
        self.register_buffer("mask", torch.arange(6)[:, None] < 5)

    def forward(self, x):
        return self.back(F.normalize(self.token(x), dim=-1) * self.mask).mean(1)


"""
ACTIVATIONS = (
    "GELU()", "SiLU()", "LeakyReLU()", "ELU()", "Softplus()", "Hardswish()", "PReLU()", "Mish()", "ReLU6()",
    "LogSigmoid()", "GELU('tanh')",
)  # fmt: skip
OF_IMAGES = (
    "GroupNorm(2, 4)", "LayerNorm([4, 6, 6])", "InstanceNorm2d(4, affine=True)", "RMSNorm(6)",
    "ConvTranspose2d(4, 4, 2, 2)", "BatchNorm2d(4, affine=False)", "PixelShuffle(2)",
    "utils.parametrizations.weight_norm(nn.Conv2d(4, 4, 3))",
    "utils.parametrizations.spectral_norm(nn.Conv2d(4, 4, 3))",
)  # fmt: skip
SIZES = {"PixelShuffle(2)": 144, "ConvTranspose2d(4, 4, 2, 2)": 576} | {
    layer: 64 for layer in OF_IMAGES if "Conv2d(4, 4, 3)" in layer
}
SEQUENCE, IMAGES, TOKENS, NUMBERS = (5, 8), (3, 6, 6), (6,), (8,)
MODELS: dict[str, tuple[tuple[int, ...], str]] = {
    **{a: (NUMBERS, f"S(nn.Linear(8, 6), nn.{a}, nn.Linear(6, 3))") for a in ACTIVATIONS},
    **{
        layer: (
            IMAGES,
            f"S(nn.Conv2d(3, 4, 3, 1, 1), nn.{layer}, nn.Flatten(), nn.Linear({SIZES.get(layer, 144)}, 3))",
        )
        for layer in OF_IMAGES
    },
    "conv1d": (
        SEQUENCE,
        "S(nn.Conv1d(5, 4, 3, 2), nn.BatchNorm1d(4), nn.AvgPool1d(3), nn.Flatten(), nn.Linear(4, 3))",
    ),
    "attention": (SEQUENCE, "Attention()"),
    "transformer": (
        SEQUENCE,
        "S(nn.TransformerEncoderLayer(8, 2, 8, 0, batch_first=True), nn.Flatten(), nn.Linear(40, 3))",
    ),
    "gru": (SEQUENCE, "Last(nn.GRU(8, 5, batch_first=True))"),
    "tied weights": (TOKENS, "Tied()"),
}
# One of each kind; the rest with the full counts.
CHOSEN = list(MODELS) if FULL_COUNTS else [
    "GELU()", "LogSigmoid()", "ELU()", "GroupNorm(2, 4)", "InstanceNorm2d(4, affine=True)",
    "ConvTranspose2d(4, 4, 2, 2)", "conv1d", "transformer", "attention", "tied weights",
]  # fmt: skip


@pytest.fixture(autouse=True)
def no_trace_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """See `test_export_steps`."""
    trace_log = logging.getLogger("torch.__trace")
    monkeypatch.setattr(trace_log, "propagate", True)
    monkeypatch.setattr(trace_log, "handlers", [])


def task_of(shape: tuple[int, ...], model: str) -> Task:
    code = OwnCode("own.py", f"{HEAD}def model():\n    return {model}\n")
    tokens = 9 if shape == TOKENS else 0
    return Task("own", "", "own", shape, classes=tokens or 3, vocabulary=tokens, learning_rate=0.1, code=code)


@pytest.mark.parametrize("name", CHOSEN)
def test_two_steps_are_those_of_torch(name: str) -> None:
    task = task_of(*MODELS[name])
    start, shard = initial_state(task, 1), synthetic_shard(task, BATCH, np.random.default_rng(2))
    graph = OnnxRuntimeTrainer(task, {BATCH: export_step(task, BATCH)}, start, *shard)
    torch = TorchTrainer(task, start, *shard)
    everything = np.arange(BATCH)
    for _ in range(2):
        np.testing.assert_allclose(graph.step(everything), torch.step(everything), rtol=1e-4, atol=1e-5)
    found, expected = graph.state(), torch.state()
    assert list(found) == list(expected)
    assert any(not np.allclose(expected[key], start[key], atol=1e-3) for key in start)
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-3, atol=2e-5, err_msg=key)


def test_tied_weights_are_one() -> None:
    task = task_of(TOKENS, "Tied()")
    assert list(initial_state(task, 0)) == ["mask", "token.weight"]
    assert count_task(task).bytes == FLOAT_BYTES * 9 * 4  # a mask is not worth sending


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            "lambda t: torch.erfinv(t / 9)",
            r"the training step uses prims\.erf_inv\.default, which has no ONNX form",
        ),
        ("nn.Hardshrink() if torch.rand(1).item() < 2 else None", r"own\.py:\d+: "),
    ],
)
def test_what_has_no_graph_is_named_with_its_task(line: str, reason: str) -> None:
    model = f"""Odd()


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, x):
        layer = {line}
        return self.layer(layer(x))
"""
    with pytest.raises(
        JoulefleetError, match=f"task 'own' has no training step for onnxruntime: {reason}"
    ) as caught:
        export_step(task_of(NUMBERS, model), BATCH)
    assert "torch backend" in str(caught.value.hint)
