"""``devices.parquet``: who the devices of a run were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import emulator
import joulefleet
from emulator.fleet.batteries import LEVELS
from emulator.runs.assembly import assemble
from emulator.runs.learners import data_of
from emulator.runs.replay import devices
from emulator.runs.result import Result
from emulator.scenario.load import load_scenario
from emulator.scenario.model import FleetSection, ProtocolSection, Scenario, TrainerSection
from joulefleet.config import parse_toml
from joulefleet.errors import DataQualityError
from tests.emulator.test_networks import K, phone
from tests.emulator.worlds import trace_set

PEOPLE = (phone("ann", (0, 8, K.WIFI), (8, 24, K.CELLULAR_4G)), phone("bob", (0, 24, K.WIFI)), phone("cyd"))
TRAINED = """
name = "who"
[fleet]
devices = 40
speed_spread = 0.1
[fleet.traces]
source = "{people}"
at_end = "wrap"
[task]
name = "digits-softmax"
partition = "{partition}"
options = {{ alpha = 0.1, samples_per_client = 12 }}
held_out = 0.25
[protocol]
rounds = 3
k = 4
local_epochs = 1
"""
PLAIN = Scenario(
    name="plain",
    fleet=FleetSection(devices=5),
    protocol=ProtocolSection(rounds=1, k=2),
    trainer=TrainerSection(kind="surrogate"),
)


def scenario(tmp_path: Path, partition: str = "dir_client") -> Scenario:
    people = trace_set(tmp_path / "people", PEOPLE)
    return parse_toml(TRAINED.format(people=people, partition=partition), Scenario, name="test")


def played(tmp_path: Path, made: Scenario) -> Result:
    return emulator.run(made, out=tmp_path / "runs")


def test_every_device_is_what_the_run_made_of_it(tmp_path: Path) -> None:
    """Against the parts of the world, asked one device at a time."""
    made = scenario(tmp_path)
    found = played(tmp_path, made).devices
    world = assemble(made, 0).engine.world
    data, holdings = data_of(made.task, 40, 0)
    networks = {"ann": "wifi, mobile", "bob": "wifi"}
    assert found["device"].tolist() == list(range(40))
    for row in found.itertuples():
        label = world.fleet.costs.names[world.fleet.profile[row.device]]
        assert (row.profile, row.phone) == (label, label.removesuffix("/softmax/digits/published"))
        assert row.slowness == world.fleet.slowness[row.device]
        assert row.data_size == 9, "a quarter of 12 is held out"
        user = PEOPLE[world.conditions.traces.map.user[row.device]].user
        assert row.user == user
        assert row.network == networks[user] if user in networks else np.isnan(row.network)
        labels = sorted({int(data.train.y[sample]) for sample in holdings.shard(row.device)})
        assert (row.labels, row.classes) == (" ".join(map(str, labels)), len(labels))
    assert found["phone"].nunique() > 20
    assert found["classes"].nunique() > 2
    assert set(found["user"]) == {"ann", "bob", "cyd"}


def test_of_samples_that_are_drawn_when_needed_only_participants_are_known(tmp_path: Path) -> None:
    result = played(tmp_path, scenario(tmp_path, "dir_client_lazy"))
    took_part = result.devices["device"].isin(result.clients["device"])
    assert 0 < took_part.sum() < 40
    for column in ("classes", "labels"):
        assert result.devices[column].notna().tolist() == took_part.tolist()


def test_a_very_large_fleet_lists_those_who_took_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = scenario(tmp_path)
    whole = played(tmp_path, made)
    monkeypatch.setattr(devices, "MOST", 39)
    some = played(tmp_path, made)
    met = np.unique(some.clients["device"])
    assert some.devices["device"].tolist() == met.tolist()
    assert some.devices.equals(whole.devices.iloc[met].reset_index(drop=True))
    monkeypatch.setattr(devices, "MOST", 40)
    assert len(played(tmp_path, made).devices) == 40


def test_rows_are_written_a_part_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = scenario(tmp_path)
    whole = played(tmp_path, made)
    monkeypatch.setattr(devices, "ROWS", 7)
    parts = played(tmp_path, made)
    assert pq.read_metadata(parts.path / "devices.parquet").num_row_groups == 6
    assert parts.devices.equals(whole.devices)


def test_without_traces_and_data_nothing_is_made_up(tmp_path: Path) -> None:
    found = joulefleet.emulate("quick", settings={"trainer.kind": ["surrogate"]}, out=tmp_path).devices
    assert found[["classes", "labels"]].isna().all(axis=None)
    assert found["user"].notna().all()
    assert played(tmp_path, PLAIN).devices[["user", "network"]].isna().all(axis=None)


def test_which_phones_drop_out_and_when(tmp_path: Path) -> None:
    """The line of docs/emulator.md, on several methods and seeds: no row is lost or doubled by it."""
    found = joulefleet.emulate("quick", selectors=["fedavg", "oort"], seeds=[0, 1], out=tmp_path)
    loaded = joulefleet.load_results(found.path)
    who = loaded.clients.merge(loaded.devices)
    assert len(who) == len(loaded.clients)
    assert who["phone"].notna().all()
    fates = who[who["fate"] != "finished"].groupby(["phone", "fate"])["round"].agg(list)
    assert sum(map(len, fates)) == (loaded.clients["fate"] != "finished").sum()


def test_a_run_of_before_says_that_it_has_none(tmp_path: Path) -> None:
    result = played(tmp_path, PLAIN)
    (result.path / "devices.parquet").unlink()
    loaded = joulefleet.load_results(result.run_path)
    assert len(loaded.rounds) == 1
    with pytest.raises(DataQualityError, match=r"no devices\.parquet: an earlier version ran it"):
        _ = loaded.devices


def test_batteries_are_looked_at_without_touching_them() -> None:
    """The levels of a round are those of all devices; who looks at them changes no bit of any debt."""
    made = load_scenario("quick").model_copy(update={"trainer": TrainerSection(kind="surrogate")})
    looked, left = (assemble(made, 0).engine for _ in range(2))
    everybody = np.arange(len(looked.world.fleet))
    for _ in range(4):
        before = looked.world.batteries.state_dict()
        assert set(looked.world.batteries.glance(looked.clock_ns + 7 * 10**12)) == set(LEVELS)
        after = looked.world.batteries.state_dict()
        assert all(np.array_equal(before[name], after[name]) for name in before)
        looked.play()
        left.play()
    at_ns = looked.clock_ns + 10**13
    assert left.world.batteries.state_dict()["debt_j"].any(), "somebody owes something"
    seen = looked.world.batteries.glance(at_ns)
    levels = [engine.world.batteries.level(at_ns, everybody) for engine in (looked, left)]
    assert levels[0].tolist() == levels[1].tolist()
    below = np.sort(levels[0])
    assert below[len(below) // 10 - 1] <= seen["battery_low"] <= below[len(below) // 10 + 1]
    assert seen["battery_median"] == np.median(levels[0])
