"""The seam to client selection: `Selector`, what a method declares of itself, and what the engine asks it.

It stands with the round, which asks; the methods are in `emulator.selectors`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from emulator.round.outcome import RoundOutcome
from emulator.round.view import Ids, ServerView


class Probe(StrEnum):
    """What candidates do before the choice; the engine runs it and charges it."""

    NONE = "none"
    """Nothing: the choice rests on what is already known."""
    LOSS = "loss"
    """Receive the model and report its loss on their own data: a forward pass (``global_loss``)."""
    BATCH = "batch"
    """As ``loss``, on one mini-batch only: cheaper and noisier."""
    EPOCH = "epoch"
    """Receive the model and train the first local epoch, which counts for those who go on."""


class Profiling(StrEnum):
    """What every device does once before the first round; charged as round 0."""

    NONE = "none"
    EPOCH = "epoch"
    """One local epoch, so that its duration is known (TiFL)."""
    UPDATE = "update"
    """One local epoch, and its weights are uploaded (Favor)."""


class Family(StrEnum):
    """How a method chooses, as the listing groups them."""

    RANDOM = "random"
    HEURISTIC = "heuristic"
    LEARNING = "learning"
    EXPERT = "expert"
    CONTROL = "control"


class Selector:
    """Chooses who trains. It sees what was reported to the server, never the truth.

    Subclass it, set the class attributes, implement `select`. Options are keyword arguments of the
    constructor with plain values, so that a scenario file can give them. All randomness comes from the
    generators that the engine hands in, one per round: a selector owns no generator.

    Examples:
        >>> class Fastest(Selector):
        ...     name, family, probe = "fastest", Family.HEURISTIC, Probe.EPOCH
        ...     needs = frozenset({"epoch_s"})
        ...
        ...     def select(self, view, candidates, k, rng):
        ...         return candidates[np.argsort(view.epoch_s[candidates], kind="stable")[:k]]

    Attributes:
        name: Registered name.
        family: How it chooses.
        paper: Where it was published.
        deviations: Where this implementation differs from the publication, in one line.
        probe: What candidates do before the choice.
        probe_optional: Whether nobody is probed in a round with no more candidates than are wanted: a probe
            would decide nothing, and everybody would wait for it.
        profiling: What every device does once.
        needs: Names of the `ServerView` fields it reads beside ``eligible`` and ``data_size``.
        learns_from: Names of optional fields of `RoundOutcome` that it reads: ``device_rewards``.
        needs_weights: Whether outcomes must carry the uploaded and the global weights.
        needs_accuracy: Whether it counts with an accuracy from 0 to 1, which not every task has.
        privileged: Uses what no server could know; such oracles are shown as such everywhere.
        surrogate: Stands in for a method whose description was not published; shown as such everywhere.
        most_devices: The largest fleet that it can serve; ``None`` for any.
        option_defaults: Options that the constructor passes on without naming them, and what they are then.
        proximal_mu: Weight of the proximal term in the local objective (FedProx).
        given_options: What its constructor was given; tables tell variants of one method apart by it.
        policy_sha256: Hash of the policy file that it begins with, of the package or its own; ``None`` if it
            begins without.
    """

    name: ClassVar[str]
    family: ClassVar[Family]
    paper: ClassVar[str] = ""
    deviations: ClassVar[str] = ""
    probe: ClassVar[Probe] = Probe.NONE
    probe_optional: ClassVar[bool] = False
    profiling: ClassVar[Profiling] = Profiling.NONE
    needs: ClassVar[frozenset[str]] = frozenset()
    learns_from: ClassVar[frozenset[str]] = frozenset()
    needs_weights: ClassVar[bool] = False
    needs_accuracy: ClassVar[bool] = False
    privileged: ClassVar[bool] = False
    surrogate: ClassVar[bool] = False
    most_devices: ClassVar[int | None] = None
    option_defaults: ClassVar[Mapping[str, Any]] = {}
    proximal_mu: float = 0.0
    given_options: Mapping[str, Any] = MappingProxyType({})
    policy_sha256: str | None = None

    def __init_subclass__(cls, **further: Any) -> None:
        """Whatever a method's constructor does with its options, the object knows what they were."""
        super().__init_subclass__(**further)
        if "__init__" in vars(cls):
            cls.__init__ = _noting_options(cls.__init__)  # type: ignore[method-assign]

    def candidates(self, view: ServerView, m: int, rng: np.random.Generator) -> Ids:
        """Eligible devices to consider, unique.

        By default ``m`` at random for a method that probes, since each costs something, else everyone.
        """
        ids = view.eligible_ids
        if self.probe is Probe.NONE or m >= len(ids):
            return ids
        return np.sort(rng.choice(ids, m, replace=False))

    def probe_count(self, m: int, k: int) -> int:
        """How many candidates a method that probes has probed at most, where the scenario says ``m``."""
        return m

    def select(self, view: ServerView, candidates: Ids, k: int, rng: np.random.Generator) -> Ids:
        """At most ``k`` of the candidates, unique; ``view`` holds their probe reports by now.

        Candidates whose probe failed are no longer among them. With fewer than ``k``, all of them.
        """
        raise NotImplementedError

    def epochs(self, view: ServerView, chosen: Ids) -> NDArray[np.int64]:
        """Local epochs for each of the chosen, the probe included; all of them by default."""
        return np.full(len(chosen), view.local_epochs)

    def observe(self, view: ServerView, outcome: RoundOutcome) -> None:
        """Learn from how the round went; ``view`` holds what was reported in it."""

    def metrics(self) -> dict[str, float]:
        """Numbers about itself for the log of this round, such as losses; the same names every round."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on later exactly as if nothing had happened.

        Plain containers, numbers, strings and numpy arrays only: it is stored without pickle.
        """
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a state from `state_dict`."""


def _noting_options(constructor: Callable[..., None]) -> Callable[..., None]:
    names = list(inspect.signature(constructor).parameters)[1:]

    @functools.wraps(constructor)
    def noting(self: Selector, *values: Any, **options: Any) -> None:
        if "given_options" not in vars(self):  # a parent's constructor is given what this one makes of it
            self.given_options = dict(zip(names, values, strict=False)) | options
        constructor(self, *values, **options)

    return noting
