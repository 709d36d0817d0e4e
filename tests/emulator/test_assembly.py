"""From a scenario and a seed to a world: what the seed alone decides, and what is refused at once."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulator.fleet.network import TransferSource
from emulator.round.budgets import budgets_by_rule
from emulator.runs.assembly import Assembly, assemble
from emulator.scenario.model import (
    FleetSection,
    ProtocolSection,
    Scenario,
    SelectorSection,
    TaskSection,
    TracesSection,
    TrainerSection,
)
from joulefleet.errors import ConfigError
from tests.emulator.worlds import (
    HOUR_S,
    SECOND_NS,
    Prober,
    engine,
    fleet,
    profile,
    replay,
    trace_set,
    user,
    world,
)


def seeded(selector: str, seed: int) -> Assembly:
    scenario = Scenario(
        name="seeded",
        fleet=FleetSection(
            devices=12,
            speed_spread=0.3,
            traces=TracesSection(policy="idle", at_end="wrap", start="12:00", users=6, days=2),
        ),
        task=TaskSection(name="digits-softmax", partition="dir_client"),
        protocol=ProtocolSection(k=2),
        selector=SelectorSection(name=selector),
        trainer=TrainerSection(workers=1),
    )
    made = assemble(scenario, seed)
    made.engine.trainer.close()
    return made


def what_the_seed_decides(made: Assembly) -> dict[str, Any]:
    place = made.engine.world
    there = [place.conditions.eligible(hour * HOUR_S * SECOND_NS) for hour in range(0, 40, 3)]
    return {
        "profiles": place.fleet.profile.tolist(),
        "speeds": place.fleet.slowness.tolist(),
        "who is there": np.array(there).tolist(),
        "partition": made.facts["partition"]["sha256"],
        "initial weights": made.engine.weights.tolist(),
    }


def test_the_seed_fixes_the_world_for_every_selector() -> None:
    plain, probing = (what_the_seed_decides(seeded(name, 5)) for name in ("fedavg", "fedrank"))
    assert plain == probing
    other = what_the_seed_decides(seeded("fedavg", 6))
    assert [name for name in plain if plain[name] == other[name]] == []


def surrogate(selector: str = "fedavg", **fleet_settings: Any) -> Scenario:
    return Scenario(
        name="stand-in",
        fleet=FleetSection(devices=2, **fleet_settings),
        task=TaskSection(name="digits-mlp"),
        protocol=ProtocolSection(k=2, rounds=1),
        selector=SelectorSection(name=selector),
        trainer=TrainerSection(kind="surrogate"),
    )


def test_the_surrogate_sends_a_model_of_the_real_size(tmp_path: Path) -> None:
    """One megabit per second both ways."""
    folder = trace_set(tmp_path / "set", [user(rates=[(0, 1e6, 1e6), (86400, 1e6, 1e6)])])
    scenario = surrogate(network="trace", traces=TracesSection(source=str(folder), at_end="wrap"))
    stand_in = assemble(scenario, 0)
    cost = stand_in.engine.play().cost
    trained = assemble(scenario.model_copy(update={"trainer": TrainerSection(workers=1)}), 0)
    trained.engine.trainer.close()
    size = trained.engine.weights.nbytes
    assert stand_in.facts["model_bytes"] == trained.facts["model_bytes"] == size
    for seconds in (cost.download_s, cost.upload_s):
        assert seconds == pytest.approx(np.full(2, size * 8 / 1e6))


@pytest.mark.parametrize(
    ("selector", "what"),
    [("class_coverage_oracle", "labels"), ("fed_cbs_exact", "labels"), ("favor", "weights")],
)
def test_the_surrogate_refuses_methods_that_need_real_training(selector: str, what: str) -> None:
    with pytest.raises(ConfigError, match=f"'{selector}' chooses by the devices' {what}") as caught:
        assemble(surrogate(selector), 0)
    assert "trainer.kind" in caught.value.hint


def test_a_policy_about_levels_that_nobody_recorded_is_refused(tmp_path: Path) -> None:
    """The charger was recorded, so levels would be modelled: but no policy reads those."""
    people = [user("a", charging=[(0, 86400)]), user("b", charging=[])]
    chosen = {"policy": "battery >= 30 %", "at_end": "wrap"}
    folder = trace_set(tmp_path / "chargers", people)
    with pytest.raises(ConfigError, match="asks for the battery level, but none was recorded") as caught:
        assemble(surrogate(traces=TracesSection(source=str(folder), **chosen)), 0)
    assert "modelled" in caught.value.hint
    read = [*people, user("c", battery=[(0, 0.9), (86400, 0.9)])]
    folder = trace_set(tmp_path / "levels", read)
    assert assemble(surrogate(traces=TracesSection(source=str(folder), **chosen)), 0)


def test_registration_tells_the_speed_of_the_moment_and_nothing_of_later() -> None:
    """Nothing moves for the first 5 s: that is no reason to count 7 s of waiting as the speed of the link."""
    state = fleet([profile()], [100] * 3)
    users = [
        user("stalled", rates=[(0, 0.0, 0.0), (5, 8e6, 8e6), (86400, 8e6, 8e6)]),
        user("slow", rates=[(0, 1e6, 4e6), (86400, 1e6, 4e6)]),
        user("dead", rates=[(0, 0.0, 0.0), (86400, 0.0, 0.0)]),
    ]
    place = world(state, replay(users), link=TransferSource.TRACE, model_bytes=1_000_000)
    made = engine(Prober(), place=place, devices=3, candidates=3)
    assert made.reported.fields["comm_s"] == pytest.approx([1.0, 8.0 + 2.0, 1.0])
    time_s, energy_j = budgets_by_rule(place, 3, 5, 0, np.random.default_rng(0))
    assert time_s == pytest.approx(10.0 + 10.0)
    assert energy_j == pytest.approx(3 * 15.0 + 0.5 + 5.0 + 0.5)
