# ruff: noqa: FBT003 - aten takes its flags by position
"""What replaces torch's fused kernels, against those kernels, on shapes that no model here has."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from device_agents.onnx_export import decompositions, windows
from joulefleet.errors import JoulefleetError

aten = torch.ops.aten
MASK = [True, True, True]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def random(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


@dataclass(frozen=True)
class Layer:
    batch: int
    groups: int
    inputs: int
    outputs: int
    size: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    @property
    def out(self) -> list[int]:
        axes = zip(self.size, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        return [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in axes]

    def tensors(self, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        x = random(self.batch, self.groups * self.inputs, *self.size, dtype=dtype, seed=1)
        weight = random(self.groups * self.outputs, self.inputs, *self.kernel, dtype=dtype, seed=2)
        grad = random(self.batch, self.groups * self.outputs, *self.out, dtype=dtype, seed=3)
        return x, weight, grad

    @property
    def arguments(self) -> tuple[object, ...]:
        return list(self.stride), list(self.padding), list(self.dilation), False, [0, 0], self.groups


def pairs(low: int, high: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(low, high), st.integers(low, high))


layers = st.builds(
    Layer,
    batch=st.integers(1, 3),
    groups=st.integers(1, 3),
    inputs=st.integers(1, 3),
    outputs=st.integers(1, 3),
    size=pairs(1, 7),
    kernel=pairs(1, 4),
    stride=pairs(1, 3),
    padding=pairs(0, 3),
    dilation=pairs(1, 2),
)


@given(layer=layers)
@settings(deadline=None, max_examples=60)
def test_a_convolution_as_matrix_products(layer: Layer) -> None:
    assume(min(layer.out) > 0)
    x, weight, _ = layer.tensors(torch.float64)
    bias = random(weight.shape[0], seed=4)
    ours = decompositions.convolution(x, weight, bias, *layer.arguments)
    torch.testing.assert_close(ours, aten.convolution(x, weight, bias, *layer.arguments))


@given(layer=layers, dtype=st.sampled_from([torch.float64, torch.float32]))
@settings(deadline=None, max_examples=120)
def test_a_convolutions_gradients(layer: Layer, dtype: torch.dtype) -> None:
    """float64 takes the form made of products; float32 the other one, except for few outputs."""
    assume(min(layer.out) > 0)
    x, weight, grad = layer.tensors(dtype)
    sizes = [weight.shape[0]]
    ours = decompositions.convolution_backward(grad, x, weight, sizes, *layer.arguments, MASK)
    theirs = aten.convolution_backward(grad, x, weight, sizes, *layer.arguments, MASK)
    tolerance = 1e-10 if dtype == torch.float64 else 1e-4
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance)


def test_gradients_that_nobody_wants_are_not_computed() -> None:
    layer = Layer(1, 1, 2, 2, (3, 3), (2, 2), (1, 1), (0, 0), (1, 1))
    x, weight, grad = layer.tensors(torch.float64)
    ours = decompositions.convolution_backward(grad, x, weight, None, *layer.arguments, [False, True, False])
    assert [part is None for part in ours] == [True, False, True]


@given(size=pairs(4, 9), kernel=pairs(1, 3), stride=pairs(1, 3), padded=st.booleans())
@settings(deadline=None, max_examples=40)
def test_pooling(
    size: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int], padded: bool
) -> None:
    x = random(2, 3, *size)
    padding = [k // 2 if padded else 0 for k in kernel]
    window = (list(kernel), list(stride), padding)

    mean = aten.avg_pool2d(x, *window)
    torch.testing.assert_close(windows.average_pool(x, *window), mean)
    grad = random(*mean.shape, seed=1)
    torch.testing.assert_close(
        windows.average_pool_backward(grad, x, *window, False, True, None),
        aten.avg_pool2d_backward(grad, x, *window, False, True, None),
    )

    _, indices = aten.max_pool2d_with_indices(x, *window, [1, 1])
    torch.testing.assert_close(
        windows.max_pool_backward(grad, x, *window, [1, 1], False, indices),
        aten.max_pool2d_with_indices_backward(grad, x, *window, [1, 1], False, indices),
    )


@given(size=pairs(1, 9), out=pairs(1, 9))
@settings(deadline=None, max_examples=40)
def test_adaptive_pooling(size: tuple[int, int], out: tuple[int, int]) -> None:
    x, grad = random(2, 3, *size), random(2, 3, *out, seed=1)
    torch.testing.assert_close(windows.adaptive_average_pool(x, out), aten._adaptive_avg_pool2d(x, out))
    torch.testing.assert_close(
        windows.adaptive_average_pool_backward(grad, x), aten._adaptive_avg_pool2d_backward(grad, x)
    )


@pytest.mark.parametrize("shape", [(4, 3, 5, 2), (6, 3)])
def test_batch_normalisation_with_its_running_statistics(shape: tuple[int, ...]) -> None:
    x, grad = random(*shape) * 2 + 3, random(*shape, seed=1)
    weight, bias = random(3, seed=2), random(3, seed=3)
    running = [(random(3, seed=4), random(3, seed=5).abs()) for _ in range(2)]
    ours = decompositions.batch_norm(x, weight, bias, *running[0], True, 0.1, 1e-5)
    theirs = aten.native_batch_norm(x, weight, bias, *running[1], True, 0.1, 1e-5)
    torch.testing.assert_close(ours, tuple(theirs))
    torch.testing.assert_close(running[0], running[1])
    saved = ours[1:]
    torch.testing.assert_close(
        decompositions.batch_norm_backward(grad, x, weight, *running[0], *saved, True, 1e-5, MASK),
        tuple(aten.native_batch_norm_backward(grad, x, weight, *running[1], *saved, True, 1e-5, MASK)),
    )


def test_activations_loss_and_embedding() -> None:
    grad, x = random(4, 5), random(4, 5, seed=1)
    for ours, theirs, y in (
        (decompositions.sigmoid_backward, aten.sigmoid_backward, x.sigmoid()),
        (decompositions.tanh_backward, aten.tanh_backward, x.tanh()),
    ):
        torch.testing.assert_close(ours(grad, y), theirs(grad, y))
    torch.testing.assert_close(
        decompositions.threshold_backward(grad, x.relu(), 0), aten.threshold_backward(grad, x.relu(), 0)
    )
    y = x.log_softmax(1)
    torch.testing.assert_close(
        decompositions.log_softmax_backward(grad, y, 1, x.dtype),
        aten._log_softmax_backward_data(grad, y, 1, x.dtype),
    )
    indices = torch.tensor([[0, 2], [2, 6]])  # a repeated row adds up
    rows = random(2, 2, 3)
    torch.testing.assert_close(
        decompositions.embedding_backward(rows, indices, 7, -1, False),
        aten.embedding_dense_backward(rows, indices, 7, -1, False),
    )


def test_what_is_not_written_out_is_refused_by_name() -> None:
    x = random(2, 3, 4, 4)
    vector = random(3)
    with pytest.raises(JoulefleetError, match="batch normalisation without") as caught:
        decompositions.batch_norm(x, vector, vector, vector, vector, False, 0.1, 1e-5)
    assert "decompositions.py" in caught.value.hint
    with pytest.raises(JoulefleetError, match="average pooling that counts"):
        windows.average_pool(x, [2, 2], [2, 2], [1, 1], False, False)
    cube = random(2, 3, 4, 4, 4)
    with pytest.raises(JoulefleetError, match="a convolution of more than two dimensions"):
        decompositions.convolution_backward(
            cube, cube, cube, None, [1] * 3, [0] * 3, [1] * 3, False, [0] * 3, 1, [True, True, False]
        )
    with pytest.raises(JoulefleetError, match="an embedding with frequency scaling"):
        decompositions.embedding_backward(x, torch.zeros(2, dtype=torch.int64), 7, -1, True)
