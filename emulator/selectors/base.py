"""The seam to client selection: `Selector`, and the registry of all that are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from emulator.outcome import RoundOutcome
from emulator.view import ServerView
from fedjoule.registry import Registry

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Selector(Protocol):
    """Chooses who trains. It sees what was reported to the server, never the truth.

    Attributes:
        name: Registered name.
        probes: Whether candidates run the first epoch before the choice.
        needs: Further facts the engine must supply, and charges for.
        privileged: Uses what no server could know; such oracles are shown as such everywhere.
    """

    name: ClassVar[str]
    probes: ClassVar[bool]
    needs: ClassVar[frozenset[str]]
    privileged: ClassVar[bool]

    def candidates(self, view: ServerView, m: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """At most ``m`` eligible devices to consider; those of a probing method run the probe epoch."""

    def select(
        self, view: ServerView, candidates: NDArray[np.int64], k: int, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """At most ``k`` of the candidates, unique; ``view`` holds their probe reports by now."""

    def observe(self, outcome: RoundOutcome) -> None:
        """Learn from how the round went."""

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on later exactly as if nothing had happened."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a state from `state_dict`."""


SELECTORS: Registry[Callable[[], Selector]] = Registry(
    what="selector",
    group="fedjoule.selectors",
    builtin={
        "fedavg": ("emulator.selectors.fedavg:FedAvg", "Uniformly random clients (McMahan et al. 2017)")
    },
)
