"""The models against somebody else's: torchvision's with the same weights, or the textbook's formulas."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from device_agents.workloads.models import MODELS, build, initial_state, load_state, state_arrays
from device_agents.workloads.models.lenet5 import LeNet5
from device_agents.workloads.models.lstm import CharacterLSTM
from device_agents.workloads.models.resnet18 import ResNet18
from device_agents.workloads.models.shufflenetv2 import ShuffleNetV2
from device_agents.workloads.models.vgg16 import VGG16
from device_agents.workloads.tasks import TASKS, batch_sizes, find_task, synthetic_shard
from emulator.data.vision import torchvision


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def parameters_of(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def share_random_weights(ours: nn.Module, theirs: nn.Module) -> None:
    """Give two models without storage the very same tensors."""
    generator = torch.Generator().manual_seed(0)
    state = {}
    for name, value in theirs.state_dict().items():
        if not value.is_floating_point():
            state[name] = torch.zeros(value.shape, dtype=value.dtype)
        else:
            fan_in = value[0].numel() if value.dim() > 1 else 1
            spread = torch.empty(value.shape).uniform_(-1, 1, generator=generator) * (3 / fan_in) ** 0.5
            state[name] = spread.abs() + 0.5 if "running_var" in name else spread
    ours.load_state_dict(state, assign=True)
    # Its own running statistics, which training mode changes; the weights are shared.
    theirs.load_state_dict(
        {k: v.clone() if "running" in k or "tracked" in k else v for k, v in state.items()}, assign=True
    )


def assert_same_function(ours: nn.Module, theirs: nn.Module, shape: tuple[int, ...]) -> None:
    """Outputs in both modes; training mode first, because it changes the running statistics of both."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        found = []
        for model in (ours, theirs):
            torch.manual_seed(2)  # the same units drop out
            found.append(model.train()(x))
        torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(ours.eval()(x), theirs.eval()(x), rtol=1e-5, atol=1e-6)


def test_resnet18_is_torchvisions() -> None:
    with torch.device("meta"):
        ours, theirs = ResNet18(10), torchvision().models.resnet18(num_classes=10)
    share_random_weights(ours, theirs)  # refuses other names or shapes
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert_same_function(ours, theirs, (4, 3, 40, 32))


def test_shufflenetv2_is_torchvisions() -> None:
    with torch.device("meta"):
        ours, theirs = ShuffleNetV2(200), torchvision().models.shufflenet_v2_x1_0(num_classes=200)
    share_random_weights(ours, theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert_same_function(ours, theirs, (4, 3, 64, 64))


def test_vgg16_is_torchvisions() -> None:
    with torch.device("meta"):
        ours, theirs = VGG16(10), torchvision().models.vgg16(num_classes=10)
    share_random_weights(ours, theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert_same_function(ours, theirs, (2, 3, 40, 32))
    assert [module.p for module in ours.modules() if isinstance(module, nn.Dropout)] == [0.5, 0.5]


def test_vgg16_with_a_linear_head_keeps_torchvisions_convolutions() -> None:
    ours = VGG16(10, head="linear")
    with torch.device("meta"):
        theirs = torchvision().models.vgg16(num_classes=10).features
    assert [(k, v.shape) for k, v in ours.features.state_dict().items()] == [
        (k, v.shape) for k, v in theirs.state_dict().items()
    ]
    assert parameters_of(ours) == 14_719_818
    assert ours(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_the_cifar_stem_keeps_the_resolution() -> None:
    model = ResNet18(10, stem="cifar")
    sizes = []
    model.layer1.register_forward_hook(lambda _module, _inputs, output: sizes.append(output.shape))
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert sizes == [(2, 64, 32, 32)]


def test_vgg16_of_the_papers_task_has_the_published_head_at_an_eighth_of_the_width() -> None:
    ours = build(TASKS["cinic10-vgg16"])
    assert parameters_of(ours) == 14_714_688 + 2 * (512 * 512 + 512) + 5_130
    kinds = [type(layer) for layer in ours.classifier]
    with torch.device("meta"):
        assert kinds == [type(layer) for layer in torchvision().models.vgg16(num_classes=10).classifier]
    assert [layer.p for layer in ours.modules() if isinstance(layer, nn.Dropout)] == [0.5, 0.5]
    assert parameters_of(build(TASKS["cinic10-vgg16-linear"])) == 14_719_818


@pytest.mark.parametrize(("model", "option"), [(ResNet18, {"stem": "imagenet"}), (VGG16, {"head": "none"})])
def test_an_unknown_variant_is_refused(model: type[nn.Module], option: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="is neither 'torchvision' nor"):
        model(10, **option)


def test_lenet5_pools_before_relu_without_changing_function_or_gradient() -> None:
    model = LeNet5(10).double()
    assert parameters_of(model) == 61_706

    def textbook(x: Tensor) -> Tensor:
        for convolution in (model.conv1, model.conv2):
            x = nn.functional.max_pool2d(nn.functional.relu(convolution(x)), 2)
        x = nn.functional.relu(model.fc1(x.flatten(1)))
        return model.fc3(nn.functional.relu(model.fc2(x)))

    x = torch.randn(4, 1, 28, 28, dtype=torch.float64)
    torch.testing.assert_close(model(x), textbook(x))
    parameters = list(model.parameters())
    ours = torch.autograd.grad(model(x).square().sum(), parameters)
    theirs = torch.autograd.grad(textbook(x).square().sum(), parameters)
    torch.testing.assert_close(ours, theirs)


def test_the_lstm_is_the_textbooks() -> None:
    model = CharacterLSTM(80).double()
    assert parameters_of(model) == 819_920
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    tokens = np.random.default_rng(0).integers(0, 80, (3, 7))

    def sigmoid(x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-x))

    inputs = [state["embedding.weight"][tokens[:, t]] for t in range(7)]
    for layer in ("l0", "l1"):
        w_ih, w_hh = state[f"lstm.weight_ih_{layer}"], state[f"lstm.weight_hh_{layer}"]
        bias = state[f"lstm.bias_ih_{layer}"] + state[f"lstm.bias_hh_{layer}"]
        hidden = cell = np.zeros((3, 256))
        outputs = []
        for x in inputs:
            i, f, g, o = np.split(x @ w_ih.T + hidden @ w_hh.T + bias, 4, axis=1)
            cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
            hidden = sigmoid(o) * np.tanh(cell)
            outputs.append(hidden)
        inputs = outputs
    expected = inputs[-1] @ state["fc.weight"].T + state["fc.bias"]
    with torch.no_grad():
        np.testing.assert_allclose(model(torch.from_numpy(tokens)).numpy(), expected, rtol=1e-10)


@pytest.mark.parametrize("name", TASKS)
def test_every_task_builds_and_fits_its_data(name: str) -> None:
    task = find_task(name)
    assert (task.batch_size, task.learning_rate, task.momentum, task.local_epochs) == (32, 0.01, 0.9, 5)
    x, y = synthetic_shard(task, 3, np.random.default_rng(0))
    assert x.dtype == task.input_dtype
    assert x.shape == (3, *task.input_shape)
    assert y.max() < task.classes
    model = build(task)
    assert model.training
    assert model(torch.from_numpy(x)).shape == (3, task.classes)
    has_batch_norm = any(isinstance(module, nn.BatchNorm2d) for module in model.modules())
    assert task.smallest_batch == (2 if has_batch_norm else 1)


def test_every_model_has_a_task() -> None:
    assert {task.model for task in TASKS.values()} == set(MODELS)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="no task called 'mnist'; known: mnist-lenet5, "):
        find_task("mnist")
    with pytest.raises(ValueError, match="no model called 'lenet'; known: lenet5, "):
        build(replace(TASKS["mnist-lenet5"], model="lenet"))


def test_initial_states_depend_on_the_seed_only() -> None:
    task = TASKS["mnist-lenet5"]
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, again, other = initial_state(task, 1), initial_state(task, 1), initial_state(task, 2)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["fc1.weight"], other["fc1.weight"])


def test_a_state_goes_in_and_comes_out_unchanged_and_unshared() -> None:
    task = TASKS["mnist-lenet5"]
    state, model = initial_state(task, 1), build(task)
    load_state(model, state)
    copy = state_arrays(model)
    assert all(np.array_equal(state[name], copy[name]) for name in state)
    with torch.no_grad():
        model.fc1.weight.zero_()
    assert state["fc1.weight"].any()
    assert copy["fc1.weight"].any()
    with pytest.raises(RuntimeError, match=r"Missing key.*fc1\.weight"):
        load_state(model, {name: value for name, value in state.items() if name != "fc1.weight"})


@pytest.mark.parametrize(
    ("samples", "smallest", "expected"),
    [
        (64, 1, [32, 32]),
        (70, 2, [32, 32, 6]),
        (65, 1, [32, 32, 1]),
        (65, 2, [32, 32]),
        (1, 2, []),
        (0, 1, []),
    ],
)
def test_the_last_batch_is_smaller_or_left_out(samples: int, smallest: int, expected: list[int]) -> None:
    task = replace(TASKS["mnist-lenet5"], smallest_batch=smallest)
    assert batch_sizes(task, samples) == expected
