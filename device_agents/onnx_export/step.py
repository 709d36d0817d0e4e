"""One training step as a function of its inputs, traced: forward, loss, backward, SGD with momentum."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from device_agents.onnx_export.arithmetic import numpy_dtype
from device_agents.onnx_export.decompositions import table
from device_agents.onnx_export.graph import OnnxGraph, Value
from device_agents.onnx_export.ops import CONVERTERS
from device_agents.workloads.losses import loss_of
from device_agents.workloads.models import build, state_tensors
from device_agents.workloads.own_code import blame
from device_agents.workloads.random_operations import Generators
from joulefleet.errors import ConfigError, JoulefleetError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
    from torch.fx import Graph, Node

    from device_agents.workloads.tasks import Task


@dataclass(frozen=True, slots=True)
class TracedStep:
    """A step as a graph of aten operators, with the names that `backend_onnxruntime` knows its ends by."""

    graph: Graph
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def export_step(task: Task, batch_size: int, dtype: str = "float32") -> bytes:
    """The ONNX file of a task's training step for one batch size.

    Raises:
        ConfigError: The batch is too small for the task, or the number type is unknown.
        JoulefleetError: The model uses an operator that has no ONNX form here.
    """
    traced = trace_step(task, batch_size, dtype)
    try:
        return write_onnx(traced.graph, traced.inputs, traced.outputs)
    except Exception as error:
        raise _not_exported(task, error) from error


def trace_step(task: Task, batch_size: int, dtype: str = "float32") -> TracedStep:
    """Trace one step; the shapes are fixed, weights and data are not in the graph."""
    import torch
    from torch.func import functionalize
    from torch.fx.experimental.proxy_tensor import make_fx

    if batch_size < max(1, task.smallest_batch):
        raise ConfigError(f"task {task.name!r} does not train on batches of {batch_size}")
    if dtype not in ("float32", "float64"):
        raise ConfigError(f"number type {dtype!r} is neither float32 nor float64")
    with Generators().kept(), _without_fused_kernels():
        model = build(task).to(getattr(torch, dtype))
        named = _example_inputs(model, task, batch_size, getattr(torch, dtype))
        step, outputs = _functional_step(model, loss_of(task))
        tracer = make_fx(
            functionalize(step, remove="mutations"), decomposition_table=table(), tracing_mode="fake"
        )
        traced: list[Any] = []
        # The tracer computes nothing, so torch's own draws move no generator; they become inputs.
        try:
            drawn = Generators(model).drawn_by(lambda: traced.append(tracer(*named.values())))
        except Exception as error:
            raise _not_exported(task, error) from error
        if drawn:
            raise JoulefleetError(
                f"task {task.name!r}: its model draws from a generator that is not torch's, and a graph "
                "would repeat one draw for ever",
                hint="draw with torch (torch.rand, dropout), or train it with the torch backend",
            )
        return TracedStep(traced[0].graph, tuple(named), outputs)


def _not_exported(task: Task, error: Exception) -> Exception:
    """What to say of a model of the user's own that has no graph; ours have one, or a fault."""
    if task.code is None:
        return error
    if isinstance(error, JoulefleetError):
        reason, hint = str(error), f"train it with the torch backend; or {error.hint}"
    else:
        # What the tracer refuses has many types. After their first line torch's messages are about internals.
        reason = blame(task.code, error).splitlines()[0]
        hint = (
            "a graph cannot follow what depends on the values of tensors (item, tolist, an if); compute it "
            "with tensors, or train it with the torch backend"
        )
    return JoulefleetError(f"task {task.name!r} has no training step for onnxruntime: {reason}", hint=hint)


def _example_inputs(model: nn.Module, task: Task, batch_size: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """Every input of the step by name; only shapes and types matter."""
    import torch

    kind = torch.int64 if task.vocabulary else dtype
    return {
        "x": torch.empty((batch_size, *task.input_shape), dtype=kind),
        "y": torch.empty((batch_size, *task.target_shape), dtype=torch.int64 if task.classes else dtype),
        "learning_rate": torch.empty((), dtype=dtype),
        "momentum": torch.empty((), dtype=dtype),
        **{f"state/{name}": value.detach() for name, value in state_tensors(model).items()},
        **{f"velocity/{name}": torch.empty_like(value) for name, value in model.named_parameters()},
    }


def _functional_step(
    model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor]
) -> tuple[Callable[..., list[Tensor]], tuple[str, ...]]:
    """The step over the flat inputs of `_example_inputs`, and the names of its results."""
    from torch.func import functional_call, grad_and_value

    state_names = list(state_tensors(model))  # the other names of tied weights follow
    parameter_names = [name for name, _ in model.named_parameters()]

    def step(x: Tensor, y: Tensor, learning_rate: Tensor, momentum: Tensor, *rest: Tensor) -> list[Tensor]:
        state = dict(zip(state_names, rest, strict=False))
        velocity = dict(zip(parameter_names, rest[len(state) :], strict=True))
        parameters = {name: state[name] for name in parameter_names}

        def mean_loss(parameters: dict[str, Tensor]) -> tuple[Tensor, tuple[Tensor, dict[str, Tensor]]]:
            # Copies, because batch normalisation updates its running statistics in place.
            buffers = {name: value.clone() for name, value in state.items() if name not in parameters}
            losses = loss(functional_call(model, {**parameters, **buffers}, (x,)), y)
            return losses.mean(), (losses, buffers)

        gradients, (_, (losses, buffers)) = grad_and_value(mean_loss, has_aux=True)(parameters)
        # torch.optim.SGD with dampening 0, no Nesterov, no weight decay. Its buffer starts as the first
        # gradient, which is what zeros give here.
        velocity = {name: momentum * velocity[name] + gradients[name] for name in parameter_names}
        updated = {name: parameters[name] - learning_rate * velocity[name] for name in parameter_names}
        new_state = {**updated, **buffers}
        return [losses, *(new_state[name] for name in state_names), *velocity.values()]

    changed = [*(f"state/{name}" for name in state_names), *(f"velocity/{name}" for name in parameter_names)]
    return step, ("losses", *(f"next/{name}" for name in changed))


@contextmanager
def _without_fused_kernels() -> Iterator[None]:
    """Keep oneDNN's fused LSTM layer and flash attention, which have no ONNX form, out of the trace."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    mkldnn: Any = torch.backends.mkldnn
    enabled = mkldnn.enabled
    mkldnn.enabled = False
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        mkldnn.enabled = enabled


def write_onnx(traced: Graph, inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
    """Convert a functional aten graph of static shapes.

    Args:
        traced: What `make_fx` gave; its nodes carry ``meta["val"]``.
        inputs: Names for its placeholders, in order.
        outputs: Names for its results, in order.

    Raises:
        JoulefleetError: It has an operator that has no ONNX form here.
    """
    from torch.fx.node import map_arg

    graph = OnnxGraph()
    known: dict[Node, Any] = {}
    names = iter(inputs)
    for node in traced.nodes:
        if node.op == "placeholder":
            known[node] = _values(node, next(names))
            graph.input(known[node])
        elif node.op == "output":
            for name, result in zip(outputs, node.args[0], strict=True):
                graph.output(name, known[result])
        elif node.target is operator.getitem:
            known[node] = known[node.args[0]][node.args[1]]
        elif node.users:  # an operator without readers may be one that ONNX does not need
            args, kwargs = map_arg((node.args, node.kwargs), known.__getitem__)
            known[node] = _values(node, _converter(node)(graph, *args, **kwargs))
    return graph.serialise()


def _converter(node: Node) -> Any:
    try:
        return CONVERTERS[str(node.target)]
    except KeyError:
        raise JoulefleetError(
            f"the training step uses {node.target}, which has no ONNX form here",
            hint="add a converter in device_agents/onnx_export/ops.py, or a decomposition",
        ) from None


def _values(node: Node, names: str | tuple[str, ...]) -> Any:
    """The node's result with the shapes and types that the tracer saw."""
    seen = node.meta["val"]
    if isinstance(names, str):
        return Value(names, tuple(seen.shape), numpy_dtype(seen.dtype))
    return tuple(
        Value(name, tuple(part.shape), numpy_dtype(part.dtype))
        for name, part in zip(names, seen, strict=True)
    )
