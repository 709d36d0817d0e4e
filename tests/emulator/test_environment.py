"""The Gymnasium environment: its spaces, how episodes end, what it refuses, and the loop in the docs."""

import re
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from emulator.environment import EmulatorEnv
from emulator.round.outcome import Accounting
from emulator.scenario.model import (
    FleetSection,
    ProtocolSection,
    RewardSection,
    Scenario,
    TracesSection,
    TrainerSection,
)
from joulefleet.errors import ConfigError
from tests.conftest import REPOSITORY

NAME = "emulator.environment:joulefleet-emulator-v0"
SMALL = Scenario(
    name="small",
    fleet=FleetSection(devices=10, speed_spread=0.3),
    protocol=ProtocolSection(rounds=3, k=3, candidates=6),
    reward=RewardSection(time_budget_s=2.0, energy_budget_j=30.0),
    trainer=TrainerSection(kind="surrogate"),
)


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("action", ["scores", "ids"])
def test_gymnasium_finds_nothing_wrong(action: str, normalised: bool) -> None:
    env = gymnasium.make(NAME, scenario=SMALL, action=action, normalised=normalised)
    check_env(env.unwrapped, skip_render_check=True)
    observation, info = env.reset(seed=3)
    assert observation["present"].sum() == len(info["candidates"]) == 6
    env.close()


def test_the_end_of_the_rounds_cuts_an_episode_off() -> None:
    env = EmulatorEnv(SMALL)
    observation, _ = env.reset(seed=0)
    assert observation["round"].tolist() == [1]
    assert observation["budget_left"].tolist() == [6.0, 90.0]
    ends, spent = [], np.zeros(2)
    for number in (2, 3, 4):
        observation, _, terminated, truncated, info = env.step(env.action_space.sample())
        cost = info["costs"][Accounting.HONEST.value]
        spent += (cost["time_s"], cost["energy_j"])
        assert observation["round"].tolist() == [number]
        assert observation["budget_left"] == pytest.approx(np.array([6.0, 90.0]) - spent)
        assert env.observation_space.contains(observation)
        ends.append((terminated, truncated))
    assert ends == [(False, False), (False, False), (False, True)]
    # What would have come next is there for who wants to estimate its value.
    assert observation["present"].sum() == 6
    with pytest.raises(RuntimeError, match="reset before step"):
        env.step(env.action_space.sample())


def test_nobody_left_ends_it() -> None:
    """What was recorded ends at midnight, long before the rounds do."""
    evening = TracesSection(users=3, days=1, at_end="stop", start="20:00")
    env = EmulatorEnv(SMALL.model_copy(update={
        "fleet": FleetSection(devices=3, traces=evening),
        "protocol": ProtocolSection(rounds=40, k=3, candidates=3, local_epochs=2000),
    }))  # fmt: skip
    env.reset(seed=0)
    terminated = truncated = False
    while not (terminated or truncated):
        observation, _, terminated, truncated, _ = env.step(np.zeros(3, np.float32))
    assert (terminated, truncated) == (True, False)
    assert observation["present"].sum() == 0


def test_normalised_numbers_are_shares() -> None:
    env = EmulatorEnv(SMALL, normalised=True)
    observation, _ = env.reset(seed=0)
    assert np.abs(observation["state"]).max() <= 3.0
    assert observation["state"][:6].std() > 0
    assert (observation["round"].tolist(), observation["budget_left"].tolist()) == ([0.0], [1.0, 1.0])
    observation, *_ = env.step(env.action_space.sample())
    assert observation["round"] == pytest.approx([1 / 3])
    assert (observation["budget_left"] < 1.0).all()


@pytest.mark.parametrize(
    ("kind", "action", "said"),
    [
        ("scores", [np.nan] * 6, "NaN or infinity"),
        ("scores", [0.0] * 5 + [np.inf], "NaN or infinity"),
        ("scores", [0.0] * 5, "in the shape"),
        ("scores", ["a"] * 6, "in the shape"),
        ("ids", [0, 1, -1], "no row"),
        ("ids", [0, 1, 0.5], "no row"),
        ("ids", [0, 1, np.nan], "NaN or infinity"),
        ("ids", [0], "in the shape"),
    ],
)
def test_what_is_no_action_is_refused(kind: Any, action: list[Any], said: str) -> None:
    env = EmulatorEnv(SMALL, action=kind)
    env.reset(seed=0)
    with pytest.raises(ConfigError, match=said):
        env.step(np.array(action))
    env.step(env.action_space.sample())  # nothing was played


def test_the_loop_of_the_page_runs_and_learns_something() -> None:
    page = (REPOSITORY / "docs" / "reinforcement-learning.md").read_text(encoding="utf-8")
    (loop,) = re.findall(r"```python\n(import gymnasium.*?)```", page, re.DOTALL)
    found: dict[str, Any] = {}
    exec(loop, found)  # the page's own words
    assert len(found["returns"]) == found["EPISODES"]
    assert found["weights"].any()
