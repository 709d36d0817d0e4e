"""The emulator as a Gymnasium environment, for people who bring their own reinforcement learning.

One step is one round: the observation holds what the candidates reported from their probe, the action says
whom to train. ``gymnasium.make("emulator.environment:joulefleet-emulator-v0", scenario="quick")`` makes one.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from emulator.round.engine import Engine
from emulator.round.outcome import RoundOutcome
from emulator.round.phases import OpenRound
from emulator.round.selector import Family, Probe, Selector
from emulator.round.view import Ids, ServerView
from emulator.runs.assembly import assemble
from emulator.scenario.load import load_scenario
from emulator.scenario.model import Scenario
from emulator.selectors.fedrank.selector import FEATURES, device_states
from emulator.selectors.neural.normalise import CLIP
from joulefleet.errors import ConfigError, MissingExtra, NobodyLeft
from joulefleet.install_hint import install_hint

try:
    import gymnasium
    from gymnasium import spaces
except ImportError as problem:
    raise MissingExtra("the environment needs gymnasium", hint=install_hint("train")) from problem

ID = "joulefleet-emulator-v0"
LARGEST = 1e12
"""Observations are cut here: a space has to have bounds."""

Observation = dict[str, NDArray[Any]]


class ExternalAgent(Selector):
    """Stands in for whoever acts on the environment."""

    name: ClassVar[str] = "outside"
    family: ClassVar[Family] = Family.LEARNING
    probe: ClassVar[Probe] = Probe.EPOCH
    needs: ClassVar[frozenset[str]] = frozenset(FEATURES) - {"data_size"}

    def select(self, view: ServerView, candidates: Ids, k: int, rng: np.random.Generator) -> Ids:
        """Never asked."""
        raise NotImplementedError("the environment chooses")


class EmulatorEnv(gymnasium.Env[Observation, NDArray[Any]]):
    """A federated run in which an agent chooses.

    Observation: ``state``, one row per candidate with the columns of `FEATURES`; ``present``, 1 for rows that
    are candidates (they come first); ``round``, that which the choice is for; ``budget_left``, what is left
    of the run's seconds and joules (T and E of the reward, once per round), negative if more was spent.
    Action: with ``scores`` one number per row, of which the K highest present ones are trained; with ``ids``
    K row numbers, of which those absent or repeated are left out. Reward: that of the scenario. An episode is
    truncated after the last round, whose observation is that of the round after; it is terminated if no
    device is left.

    Args:
        scenario: Itself, its file, or the name of a preset; its own selector is not used.
        action: What an action is.
        normalised: Whether ``state`` is as FedRank's networks see it (each column by its median and spread,
            -3 to 3), ``round`` the share of rounds played, and ``budget_left`` a share, -1 to 1.
    """

    def __init__(
        self,
        scenario: Scenario | str = "quick",
        *,
        action: Literal["scores", "ids"] = "scores",
        normalised: bool = False,
    ) -> None:
        self.scenario = scenario if isinstance(scenario, Scenario) else load_scenario(scenario)
        if action not in ("scores", "ids"):
            raise ConfigError(f"action is {action!r}", hint="'scores' or 'ids'")
        self._action, self._normalised = action, normalised
        rows, k = self.scenario.candidates, self.scenario.protocol.k
        low, high, most = (-CLIP, CLIP, 1.0) if normalised else (0.0, LARGEST, LARGEST)
        parts: dict[str, spaces.Space[Any]] = {
            "state": spaces.Box(low, high, (rows, len(FEATURES)), np.float64),
            "present": spaces.MultiBinary(rows),
            "round": spaces.Box(0.0, most, (1,), np.float64),
            "budget_left": spaces.Box(-most, most, (2,), np.float64),
        }
        self.observation_space = spaces.Dict(parts)  # type: ignore[assignment]
        self.action_space = (
            spaces.Box(-1.0, 1.0, (rows,), np.float32)
            if action == "scores"
            else spaces.MultiDiscrete([rows] * k)
        )
        self._engine: Engine | None = None
        self._opened: OpenRound | None = None
        self._spent = np.zeros(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """A new run. The same seed gives the same run; without one the runs differ."""
        super().reset(seed=seed)
        self.close()
        run_seed = int(self.np_random.integers(2**31)) if seed is None else seed
        self._engine = engine = assemble(self.scenario, run_seed, selector=ExternalAgent()).engine
        self._spent = np.zeros(2)
        self._opened = engine.open_round()
        return self._observation(engine), {"seed": run_seed, "candidates": self._opened.candidates}

    def step(self, action: NDArray[Any]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Train whom the action chooses, and probe the candidates of the next round.

        Raises:
            ConfigError: The action is of another shape, or holds something that is no number.
        """
        engine, opened = self._engine, self._opened
        if engine is None or opened is None:
            raise RuntimeError("call reset before step")
        chosen = self._chosen(np.asarray(action), opened.candidates)
        epochs = np.full(len(chosen), engine.rules.local_epochs)
        outcome = engine.close_round(opened, chosen, epochs)
        cost = outcome.costs[engine.reward_rules.accounting]
        self._spent += (cost.time_s, cost.energy_j)
        truncated, terminated = engine.done, False
        try:
            # After the last round, too: an agent that is cut off there may ask what would have come.
            self._opened = engine.open_round()
        except NobodyLeft:
            self._opened, terminated = None, True
        found = self._observation(engine), outcome.reward, terminated, truncated, self._info(outcome)
        if truncated:
            self._opened = None
        return found

    def close(self) -> None:
        """End the workers of the trainer."""
        if self._engine is not None:
            self._engine.trainer.close()
            self._engine = None

    def _chosen(self, action: NDArray[Any], candidates: Ids) -> Ids:
        shape = self.action_space.shape
        if action.shape != shape or action.dtype.kind not in "iuf":
            raise ConfigError(
                f"the action is of {action.dtype.name} in the shape {action.shape}",
                hint=f"numbers in the shape {shape}",
            )
        if not np.isfinite(action).all():
            raise ConfigError("the action holds NaN or infinity", hint="look after the agent's network")
        if self._action == "scores":
            order = np.argsort(-action[: len(candidates)], kind="stable")
            rows = order[: self.scenario.protocol.k]
        else:
            if (action < 0).any() or (action != action.astype(np.int64)).any():
                raise ConfigError("the action holds what is no row", hint="whole numbers from 0 on")
            rows = np.unique(action[action < len(candidates)]).astype(np.int64)
        return np.sort(candidates[rows])

    def _observation(self, engine: Engine) -> Observation:
        rows = self.scenario.candidates
        state, present = np.zeros((rows, len(FEATURES))), np.zeros(rows, np.int8)
        if self._opened is not None and len(ids := self._opened.candidates):
            view = self._opened.view
            if self._normalised:
                state[: len(ids)] = device_states(view, ids)
            else:
                known = np.column_stack([getattr(view, name)[ids].astype(np.float64) for name in FEATURES])
                state[: len(ids)] = np.clip(np.nan_to_num(known), 0.0, LARGEST)
            present[: len(ids)] = 1
        rounds, budgets = engine.rules.rounds, engine.reward_rules.budgets
        whole = rounds * np.array([budgets.time_s, budgets.energy_j])
        left = whole - self._spent
        if self._normalised:
            round_number, left = engine.round / rounds, np.clip(left / whole, -1.0, 1.0)
        else:
            round_number, left = engine.round + 1, np.clip(left, -LARGEST, LARGEST)
        return {
            "state": state,
            "present": present,
            "round": np.array([round_number], np.float64),
            "budget_left": left,
        }

    def _info(self, outcome: RoundOutcome) -> dict[str, Any]:
        return {
            "round": outcome.round,
            "accuracy": outcome.accuracy,
            "virtual_time_s": (outcome.start_ns + outcome.duration_ns) * 1e-9,
            "costs": {
                a.value: {"time_s": c.time_s, "energy_j": c.energy_j} for a, c in outcome.costs.items()
            },
            "chosen": outcome.clients[outcome.chosen],
            "candidates": None if self._opened is None else self._opened.candidates,
        }


if ID not in gymnasium.registry:
    gymnasium.register(ID, entry_point=f"{__name__}:EmulatorEnv")
