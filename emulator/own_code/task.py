"""From a module with ``data`` and ``model`` to a `Task` and its data: tried before anything is trained."""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from types import ModuleType
from typing import TYPE_CHECKING, Any

from device_agents.workloads import (
    LOSSES,
    METRICS,
    OWN,
    Generators,
    Metric,
    OwnCode,
    Task,
    each_tensor,
    tensors_of,
)  # fmt: skip
from emulator.data.sources import DATA_SETS, DataSource, data_folder
from emulator.own_code.arrays import Arrays, data_set_of, read_arrays
from emulator.training.local import UNREPEATED, blaming
from joulefleet.errors import ConfigError, MissingExtra
from joulefleet.install_hint import install_hint

if TYPE_CHECKING:
    from torch import Tensor, nn

NUMBERS = {
    "batch_size": int,
    "local_epochs": int,
    "smallest_batch": int,
    "learning_rate": float,
    "momentum": float,
}
"""Settings of a `Task` that a file may give by the same name."""
_TRIED = 4  # samples that the model is tried on: more than one, so that a mean is told from a loss per sample


def make_task(code: OwnCode, module: ModuleType, name: str) -> Task | None:
    """The task that a module defines, tried on a few samples; ``None`` if it defines none.

    Raises:
        ConfigError: It cannot work; the message names the file and the line.
    """
    parts = [part for part in ("data", "model") if hasattr(module, part)]
    if not parts:
        return None
    if len(parts) == 1:
        missing = {"data": "model", "model": "data"}[parts[0]]
        raise ConfigError(f"{code.file}: has `{parts[0]}`, but no `{missing}`", hint="a task needs both")
    try:
        import torch  # noqa: F401 - whatever trains needs it
    except ModuleNotFoundError as error:
        raise MissingExtra("training needs torch", hint=install_hint("train")) from error
    return _TaskMaker(code, module, name).made()


class _TaskMaker:
    def __init__(self, code: OwnCode, module: ModuleType, name: str) -> None:
        self.code, self.module, self.name = code, module, name

    def made(self) -> Task:
        arrays = self._data(DataSource(data_folder(), download=True, seed=0))
        data = data_set_of(self.name, arrays, DataSource(data_folder(), download=False, seed=0))
        x, y = data.inputs(data.train.x[:_TRIED]), data.train.y[:_TRIED]
        tried = _Tried(self, x, y, arrays.classes)
        vocabulary = arrays.tokens
        task = Task(
            name=self.name,
            model=self.name,
            data_set=self.name,
            input_shape=data.input_shape,
            classes=tried.classes,
            vocabulary=vocabulary,
            loss=tried.loss_name,
            metric=tried.metric,
            own_metric=tried.own_metric,
            target_shape=tuple(y.shape[1:]),
            per_sample_loss=tried.per_sample,
            code=self.code,
            **self._settings(tried.normalises_batches),
        )

        def load(source: DataSource) -> Any:
            again = self._data(source) if self._takes_source() else arrays
            made = data_set_of(self.name, again, source, classes=task.classes)
            if made.input_shape != task.input_shape or made.train.y.shape[1:] != task.target_shape:
                raise self.wrong(
                    "data", f"gives samples of {made.input_shape}, at first of {task.input_shape}"
                )
            return made

        DATA_SETS.give(self.name, load, self.code.file)
        return task

    def wrong(self, part: str, what: str, hint: str = "") -> ConfigError:
        """An error of what a function of the file gave."""
        thing = getattr(self.module, part, None)
        line = getattr(getattr(thing, "__code__", None), "co_firstlineno", None)
        if line is None and inspect.isclass(thing) and thing.__module__ == self.module.__name__:
            line = next((n for n, text in enumerate(self.code.source.splitlines(), 1)
                         if text.startswith(f"class {thing.__name__}")), None)  # fmt: skip
        where = self.code.file if line is None else f"{self.code.file}:{line}"
        return ConfigError(f"{where}: {part} {what}", hint=hint)

    def _takes_source(self) -> bool:
        return bool(inspect.signature(self.module.data).parameters)

    def _data(self, source: DataSource) -> Arrays:
        if not callable(self.module.data):
            raise self.wrong("data", "is no function")
        with blaming(self.code), _seeded(source):
            found = self.module.data(source) if self._takes_source() else self.module.data()
        return read_arrays(found, self.wrong)

    def _settings(self, normalises_batches: bool) -> dict[str, Any]:
        known = {field.name: field.default for field in fields(Task)}
        found: dict[str, Any] = {"smallest_batch": 2} if normalises_batches else {}
        for name, kind in NUMBERS.items():
            value = getattr(self.module, name, None)
            if value is None:
                continue
            least = 0 if name == "momentum" else 1 if kind is int else 1e-12
            most = 1 if name == "momentum" else 1e6
            if isinstance(value, bool) or not isinstance(value, int if kind is int else int | float):
                raise self.wrong(name, f"is {value!r}", f"a number such as {known[name]}")
            if not least <= value <= most:
                raise self.wrong(name, f"is {value!r}", f"a number from {least:g} to {most:g}")
            found[name] = kind(value)
        return found


class _Tried:
    """The model, the loss and the metric on a few samples: what they give decides what kind of task it is."""

    def __init__(self, maker: _TaskMaker, x: Any, y: Any, classes: int) -> None:
        import torch

        self._maker, self._y = maker, torch.from_numpy(y)
        with blaming(maker.code), Generators().kept():
            if not callable(maker.module.model):
                raise maker.wrong(
                    "model", "is no function and no class", "as in `def model(): return nn.Linear(8, 1)`"
                )
            model = maker.module.model()
            self._check_module(model)
            self.normalises_batches = any(
                isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for m in model.modules()
            )
            with torch.inference_mode():
                model.eval()(torch.from_numpy(x))  # as it is scored
                self.output = model.train()(torch.from_numpy(x))
        self._check_output()
        self._check_repeats(model, torch.from_numpy(x))
        with blaming(maker.code), Generators().kept():
            self.output = model(torch.from_numpy(x))
        self.loss_name = self._named(
            "loss", LOSSES, "mse" if self._y.is_floating_point() else "cross_entropy"
        )
        self._check_shapes()
        self.classes = self._told_apart(classes)
        losses = self._check_loss()
        self._check_gradients(model, losses)
        self._find_metric()

    def _told_apart(self, seen: int) -> int:
        """As many as the model tells apart, where it does; at least those that occur."""
        if self._y.is_floating_point():
            return 0
        if self.loss_name != "cross_entropy":
            return seen
        outputs = int(self.output.shape[-1])
        if seen > outputs:
            raise self._maker.wrong(
                "model", f"gives {outputs} outputs, but the labels go from 0 to {seen - 1}",
                f"its last layer needs {seen} outputs",
            )  # fmt: skip
        return outputs

    def _check_module(self, model: Any) -> None:
        import torch

        wrong = self._maker.wrong
        if not isinstance(model, torch.nn.Module):
            raise wrong("model", f"gives {_kind(model)}, not a torch module")
        names = [(name, value) for name, value in model.named_parameters()]
        if not names:
            raise wrong("model", "has no parameters, so nothing can be learned")
        for name, value in names:
            if value.dtype != torch.float32:
                raise wrong("model", f"has {name} as {str(value.dtype)[6:]}", "parameters are float32")
            if not value.requires_grad:
                raise wrong("model", f"has {name} frozen (requires_grad is false)",
                            "what is not trained is a buffer: `self.register_buffer(...)`")  # fmt: skip

    def _check_repeats(self, model: nn.Module, x: Tensor) -> None:
        """The same batch after the same seeds, twice: no run of a model that differs could be repeated."""
        import torch

        generators = Generators(model)
        buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
        with blaming(self._maker.code), generators.kept(), torch.no_grad():
            found = []
            for _ in range(2):
                generators.seed(0)
                found.append([tensor.nan_to_num() for tensor in tensors_of(model(x))])
                for buffer, before in buffers:  # some are state, as of spectral normalisation
                    buffer.copy_(before)
        if not all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(*found, strict=True)):
            raise self._maker.wrong("model", "gives other numbers for the same batch and seeds", UNREPEATED)

    def _check_output(self) -> None:
        import torch

        output, count = self.output, len(self._y)
        if not isinstance(output, torch.Tensor):
            if not tensors_of(output):
                raise self._maker.wrong(
                    "model",
                    f"gives {_kind(output)} for a batch, not a tensor",
                    "a tuple, list or dictionary of tensors will do with a `loss` and a `metric` of your own",
                )
            return
        if output.dim() == 0 or len(output) != count or not output.is_floating_point():
            raise self._maker.wrong(
                "model",
                f"gives {_shape(output)} for a batch of {count} samples",
                "the first axis is the batch",
            )

    def _named(self, part: str, known: Any, default: str) -> str:
        import torch

        found = getattr(self._maker.module, part, default)
        if isinstance(found, str) and found in known:
            if not isinstance(self.output, torch.Tensor):
                raise self._maker.wrong(
                    "model",
                    f"gives {_kind(self.output)} for a batch, and {part} {found!r} takes one tensor",
                    f"write `def {part}(output, y)`: it gets what the model gives, as it is",
                )
            return found
        if callable(found):
            return OWN
        raise self._maker.wrong(
            part, f"is {found!r}", f"a function of (output, y), or one of {', '.join(known)}"
        )

    def _check_shapes(self) -> None:
        """What a named loss takes."""
        output, y = self.output, self._y
        if self.loss_name == "cross_entropy":
            if y.is_floating_point():
                raise self._maker.wrong(
                    "data", "gives numbers to predict (y is floating), and cross_entropy needs classes",
                    'whole numbers as y, or `loss = "mse"`',
                )  # fmt: skip
            if output.shape[:-1] != y.shape or output.dim() < 2:
                raise self._maker.wrong(
                    "model", f"gives {_shape(output)} for labels of {_shape(y)}",
                    f"one output per class: {_shape(y)[:-1]}, classes)",
                )  # fmt: skip
        elif self.loss_name in LOSSES:
            if not y.is_floating_point():
                raise self._maker.wrong(
                    "data", f"gives y as whole numbers, and {self.loss_name} predicts numbers",
                    "`y.astype('float32')`",
                )  # fmt: skip
            if output.numel() != y.numel():
                raise self._maker.wrong("model", f"gives {_shape(output)} for targets of {_shape(y)}")

    def _check_loss(self) -> Tensor:
        import torch

        own = self.loss_name == OWN
        with blaming(self._maker.code):
            losses = (self._maker.module.loss if own else LOSSES[self.loss_name])(self.output, self._y)
        wrong, count = self._maker.wrong, len(self._y)
        if not isinstance(losses, torch.Tensor) or losses.shape not in ((), (count,)):
            raise wrong(
                "loss", f"gives {_shape(losses)} for a batch of {count} samples",
                "one number per sample, as with `reduction=\"none\"` and a mean over the other axes",
            )  # fmt: skip
        if not torch.isfinite(losses).all():
            raise wrong(
                "loss",
                "is not finite before any training (nan or infinite)",
                "look at the data and the model",
            )
        if not losses.requires_grad:
            raise wrong("loss", "does not depend on the model's parameters", "was it detached?")
        self.per_sample = losses.dim() == 1
        return losses

    def _check_gradients(self, model: nn.Module, losses: Tensor) -> None:
        import torch

        with blaming(self._maker.code):
            found = torch.autograd.grad(losses.mean(), list(model.parameters()), allow_unused=True)
        for (name, _), gradient in zip(model.named_parameters(), found, strict=True):
            if gradient is None:
                raise self._maker.wrong("model", f"never uses {name}, so it cannot be learned", "remove it")

    def _find_metric(self) -> None:
        import torch

        wrong, module = self._maker.wrong, self._maker.module
        default = "mae" if self._y.is_floating_point() else "accuracy"
        self.own_metric = self._named("metric", METRICS, default) == OWN
        if not self.own_metric:
            self.metric = METRICS[getattr(module, "metric", default)]
            numbers = self.metric.name in ("mae", "rmse", "r2")
            if numbers != self._y.is_floating_point():
                kind = "classes" if numbers else "numbers"
                raise wrong("metric", f"{self.metric.name!r} does not fit y, which is {kind}")
            if numbers and self.output.numel() != self._y.numel():
                raise wrong("model", f"gives {_shape(self.output)} for targets of {_shape(self._y)}, "
                            f"so there is no {self.metric.name}", "give a `metric` of your own")  # fmt: skip
            if self.metric.name == "perplexity" and self.loss_name != "cross_entropy":
                raise wrong("metric", "'perplexity' is that of `cross_entropy`")
            if self.metric.name == "accuracy" and self.output.shape[:-1] != self._y.shape:
                raise wrong("model", f"gives {_shape(self.output)} for labels of {_shape(self._y)}, "
                            "so there is no accuracy", "give a `metric` of your own")  # fmt: skip
            return
        name = module.metric.__name__ if hasattr(module.metric, "__name__") else "metric"
        if not name.isidentifier() or len(name) > 32:
            raise wrong("metric", f"is called {name!r}", "a plain name: it becomes a column")
        self.metric = Metric(
            name, higher_is_better=bool(getattr(module, "higher_is_better", True)), relative=True
        )
        with blaming(self._maker.code), torch.inference_mode():
            values = module.metric(each_tensor(self.output, lambda tensor: tensor.detach()), self._y)
        if not isinstance(values, torch.Tensor) or values.shape != (len(self._y),):
            raise wrong("metric", f"gives {_shape(values)} for a batch of {len(self._y)} samples",
                        "one number per sample; their mean is the metric")  # fmt: skip


def _kind(thing: Any) -> str:
    return f"a {type(thing).__name__}"


def _shape(thing: Any) -> str:
    shape = getattr(thing, "shape", None)
    return _kind(thing) if shape is None else str(tuple(shape))


@contextmanager
def _seeded(source: DataSource) -> Iterator[None]:
    """Random numbers that the user's function draws from the usual places follow from the seed."""
    import numpy as np
    import torch

    seed = int(source.rng("own data").integers(2**32))
    before, numpys = random.getstate(), np.random.get_state()  # noqa: NPY002 - they are theirs
    with torch.random.fork_rng(devices=[]):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(before)
            np.random.set_state(numpys)  # noqa: NPY002
