"""Random operations of a model: dropout, random augmentation, a forward pass that draws.

A model may draw from torch's, numpy's or Python's global generator, or from one that is its attribute.
All of them are seeded before every step, each from its own bits of the step's entropy, so that what a step
draws is a function of which step it is and of nothing else.
"""

from __future__ import annotations

import hashlib
import pickle
import random
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

SEEDED = "seeded for each epoch and batch"
"""How a model's draws are handled on a device, for the capture."""

_TORCH_BITS, _NUMPY_BITS = 2**63 - 1, 2**32 - 1  # what their seeds may have


def step_entropy(seed: int, epoch: int, batch: int) -> int:
    """128 bits for one step of a job on a device; the formula is that of ``joulefleet.seeds``."""
    name = repr((int(seed), "random operations", int(epoch), int(batch))).encode()
    return int.from_bytes(hashlib.sha256(name).digest()[:16], "big")


@dataclass(frozen=True)
class _Source:
    """One generator: whose it is, and how it is seeded, read and put back."""

    name: str
    seed: Callable[[int], Any]
    read: Callable[[], Any]
    write: Callable[[Any], Any]


class Generators:
    """Every generator that a model may draw from.

    Args:
        model: Its own generators are found among the attributes of its modules; none without it.
    """

    def __init__(self, model: nn.Module | None = None) -> None:
        self._sources = [*_global_sources(), *_held_sources(model)]

    def seed(self, entropy: int) -> None:
        """Begin a step."""
        for source in self._sources:
            source.seed(entropy)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Leave all of them afterwards as they were before."""
        states = [source.read() for source in self._sources]
        try:
            yield
        finally:
            for source, state in zip(self._sources, states):
                source.write(state)

    def drawn_by(self, work: Callable[[], Any]) -> tuple[str, ...]:
        """Whose generators ``work`` draws from: ``torch``, ``numpy``, ``python``, ``own``."""
        before = [pickle.dumps(source.read()) for source in self._sources]
        work()
        moved = [
            source.name
            for source, state in zip(self._sources, before)
            if pickle.dumps(source.read()) != state
        ]
        return tuple(dict.fromkeys(moved))


def _global_sources() -> list[_Source]:
    import torch

    return [
        _of_torch("torch", torch.default_generator),
        _Source(
            "numpy",
            lambda entropy: np.random.seed(_for_numpy(entropy)),  # noqa: NPY002 - somebody draws from it
            np.random.get_state,
            np.random.set_state,
        ),
        _Source("python", random.seed, random.getstate, random.setstate),
    ]


def _held_sources(model: nn.Module | None) -> list[_Source]:
    found: dict[int, _Source] = {}
    for module in () if model is None else model.modules():
        for value in vars(module).values():
            source = _held(value)
            if source is not None:
                found[id(value)] = source
    return list(found.values())


def _held(value: Any) -> _Source | None:
    import torch

    if isinstance(value, torch.Generator):
        return _of_torch("own", value)
    if isinstance(value, np.random.Generator):
        return _of_numpy(value.bit_generator)
    if isinstance(value, np.random.RandomState):
        return _Source(
            "own", lambda entropy: value.seed(_for_numpy(entropy)), value.get_state, value.set_state
        )
    # A SystemRandom has no seed; what it gives is the operating system's.
    if isinstance(value, random.Random) and not isinstance(value, random.SystemRandom):
        return _Source("own", value.seed, value.getstate, value.setstate)
    return None


def _of_torch(name: str, generator: Any) -> _Source:
    return _Source(
        name,
        lambda entropy: generator.manual_seed(entropy & _TORCH_BITS),
        lambda: generator.get_state().numpy().copy(),
        lambda state: generator.set_state(_tensor(state)),
    )


def _of_numpy(bits: Any) -> _Source:
    def write(state: Any) -> None:
        bits.state = state

    return _Source("own", lambda entropy: write(type(bits)(entropy).state), lambda: bits.state, write)


def _for_numpy(entropy: int) -> int:
    """Other bits than torch's: both have the same Mersenne twister, and would draw the same numbers."""
    return (entropy >> 64 ^ entropy >> 32) & _NUMPY_BITS


def _tensor(state: Any) -> Any:
    import torch

    return torch.from_numpy(state)
