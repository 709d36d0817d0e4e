"""`[fleet.network]`: recordings of throughput beside usage, in whole emulations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import emulator
from emulator.fleet.network import TransferSource
from emulator.runs.batch import plan, play, reopen
from emulator.runs.fleet_inputs import conditions_of
from emulator.scenario.load import load_scenario
from emulator.scenario.model import FleetSection, Scenario
from harness.cli import run as command
from joulefleet.config import parse_toml
from joulefleet.errors import ConfigError, NobodyLeft
from tests.emulator.test_resume import logs, stopped
from tests.emulator.worlds import SECOND_NS, trace_set, user
from traces.merge import merge_traces, network_recordings
from traces.model import InteractionTrace, NetworkKind, NetworkSpans
from traces.storage.trace_set import TraceSet

K = NetworkKind
DAY_S = 86_400


def phone(name: str, *spans: tuple[float, float, NetworkKind], **more: object) -> InteractionTrace:
    """A day of a phone; networks as (from, to, kind) in hours."""
    hours = np.array([[a, b] for a, b, _ in spans]).reshape(-1, 2)
    edges = (hours * 3600 * SECOND_NS).astype(np.int64)
    network = NetworkSpans(edges[:, 0], edges[:, 1], [kind for _, _, kind in spans]) if spans else None
    return replace(user(name, **more), network=network)


def line(
    name: str, kind: NetworkKind | None, seconds: int, *rates: tuple[float, float, float]
) -> InteractionTrace:
    """A recording of throughput; readings as (at, down, up)."""
    made = user(name, hours=seconds / 3600, rates=rates)
    spans = None if kind is None else NetworkSpans([0], [made.end_ns], [kind])
    return replace(made, screen=None, apps=None, network=spans)


PEOPLE = (
    phone("ann", (0, 8, K.WIFI), (8, 12, K.OFFLINE), (12, 24, K.CELLULAR_4G)),
    phone("bob", (0, 24, K.NOT_WIFI)),
    phone("cyd"),
    phone("dot", (6, 18, K.WIFI)),
)
LINES = (
    line("w1", K.WIFI, 600, (0, 2e6, 1e6), (200, 8e6, float("nan"))),
    line("w2", K.ETHERNET, 450, (0, 5e6, 4e6)),
    line("m1", K.CELLULAR_3G, 300, (0, 4e5, 2e5), (100, 0, 0), (150, 9e5, 9e5)),
    line("m2", K.CELLULAR_5G, 700, (100, 3e7, 1e7)),
)
SCENARIO = """
name = "networks"
[fleet]
devices = 12
{network}
[fleet.traces]
source = "{people}"
at_end = "wrap"
{table}
[protocol]
rounds = 12
k = 4
deadline_s = 900
every_s = "1 h"
[selector]
name = "oort"
[trainer]
kind = "surrogate"
"""


def scenario(people: Path, network: str = "", table: str = "") -> Scenario:
    text = SCENARIO.format(people=people, network=network, table=table)
    return parse_toml(text, Scenario, name="test")


def paired(tmp_path: Path, people: Sequence[InteractionTrace] = PEOPLE) -> Scenario:
    net = trace_set(tmp_path / "net", LINES)
    return scenario(trace_set(tmp_path / "people", people), table=f'[fleet.network]\nsource = "{net}"')


def test_an_emulation_beside_networks_is_that_of_the_merged_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    beside = paired(tmp_path)
    names = [str(tmp_path / name) for name in ("people", "net", "both")]
    assert command(["traces", "merge", *names[:2], "--out", names[2], "--seed", "3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["users"], told["network_recordings"], told["seed"]) == (4, 4, 3)
    merged = scenario(tmp_path / "both", 'network = "trace"')
    one, other = (emulator.run(s, seed=3, out=tmp_path / "runs") for s in (beside, merged))
    assert logs(one.path) == logs(other.path)
    bits = 8 * one.record.facts["model_bytes"]
    met = {round(bits / seconds) for seconds in one.clients["download_s"]}
    assert met >= {8_000_000, 400_000, 30_000_000}, "rates of w1, m1 and m2"
    apart = emulator.run(beside, seed=4, out=tmp_path / "runs")
    assert logs(apart.path) != logs(one.path)
    assert one.record.facts["network"]["users"] == 4
    assert "network" not in other.record.facts


def test_transfers_take_what_the_paired_recording_says(tmp_path: Path) -> None:
    """By hand: one user on a fixed line of 5 Mbit/s down and 4 up; m1 stands for what is not asked."""
    people = trace_set(tmp_path / "people", [phone("dot", (0, 24, K.WIFI))])
    net = trace_set(tmp_path / "net", LINES[1:])
    made = scenario(people, table=f'[fleet.network]\nsource = "{net}"')
    result = emulator.run(made, out=tmp_path / "runs")
    bits = 8 * result.record.facts["model_bytes"]
    finished = result.clients[result.clients["fate"] == "finished"]
    assert len(finished) == 48
    assert finished["download_s"].to_numpy() == pytest.approx(bits / 5e6, rel=1e-6)
    assert finished["upload_s"].to_numpy() == pytest.approx(bits / 4e6, rel=1e-6)


def test_a_resumed_run_is_the_same(tmp_path: Path) -> None:
    made = paired(tmp_path)
    whole = emulator.run(made, out=tmp_path / "whole")
    path = stopped(tmp_path / "cut", plan(made, ["oort"], [0]), 5)
    continued, found = reopen(path)
    with continued:
        (result,) = play(continued, found)
    assert logs(result.path) == logs(whole.path)


def test_a_kind_that_the_set_lacks_ends_the_command_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trace_set(tmp_path / "people", PEOPLE)
    trace_set(tmp_path / "net", LINES[:2])
    text = SCENARIO.format(people="people", network="", table='[fleet.network]\nsource = "net"')
    (tmp_path / "mine.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    for more in ([], ["--dry-run"]):
        assert command(["emulate", "mine.toml", *more]) == 3
        said = " ".join(capsys.readouterr().err.split())
        assert "no recording of a mobile network, and 2 of 4 users need one, e.g. 'ann'" in said
        assert "2 of Wi-Fi or a fixed line, 0 of a mobile network" in said
    assert command(["traces", "merge", "people", "net", "--out", "both"]) == 3
    assert not (tmp_path / "both").exists()
    finished = [path for path in tmp_path.rglob("rounds*") if path.is_file()]
    assert not finished


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (
            '[fleet.network]\nsorce = "net"',
            "test: fleet.network.source: missing; fleet.network.sorce: unknown key",
        ),
        ("[fleet.network]", "test: fleet.network.source: missing"),
        ('[fleet.network]\nsource = "trace"', 'write network = "trace" in'),
        ("[fleet.network]\nsource = 3", "test: fleet.network.source: Input should be a valid string, got 3"),
    ],
)
def test_a_table_that_does_not_fit(tmp_path: Path, table: str, said: str) -> None:
    with pytest.raises(ConfigError) as found:
        scenario(tmp_path, table=table)
    assert said in f"{found.value.message} {found.value.hint}"


def test_recordings_are_given_to_users() -> None:
    alone = FleetSection(network={"source": "synthetic"})
    assert alone.link is TransferSource.TRACE
    with pytest.raises(ConfigError, match=r"without \[fleet\.traces\] there are none"):
        conditions_of(alone, 0)


def test_throughput_of_the_users_own_is_not_replaced(tmp_path: Path) -> None:
    own = [*PEOPLE, phone("eve", (0, 24, K.WIFI), rates=[(0, 1e6, 1e6)])]
    with pytest.raises(ConfigError, match=r"fleet\.network\.source: .*throughput of their own"):
        emulator.run(paired(tmp_path, own), out=tmp_path / "runs")


def test_a_week_in_which_nothing_was_recorded(tmp_path: Path) -> None:
    """Nobody needs a network, and nobody ever comes: the run says so."""
    from traces.model import Intervals

    empty = [replace(phone("nobody", hours=168), coverage=Intervals.none(), screen=None, apps=None)]
    with pytest.raises(NobodyLeft, match="no device"):
        emulator.run(paired(tmp_path, empty), out=tmp_path / "runs")


def test_which_networks_a_device_is_on(tmp_path: Path) -> None:
    found = emulator.run(paired(tmp_path), out=tmp_path / "runs").devices
    kinds = found.groupby("user")["network"].unique()
    assert kinds["ann"].tolist() == ["wifi, mobile"]
    assert kinds["bob"].tolist() == ["mobile"]
    assert kinds["dot"].tolist() == ["wifi"]
    assert found[found["user"] == "cyd"]["network"].isna().all()


def test_the_week_presets_have_networks() -> None:
    for name in ("week-in-use-digits", "week-in-use-mnist", "week-charging-digits", "week-charging-mnist"):
        assert load_scenario(name).fleet.model_dump()["network"] == {"source": "synthetic"}


def test_merged_with_generated_networks(tmp_path: Path) -> None:
    usage = TraceSet(trace_set(tmp_path / "people", PEOPLE))
    made = merge_traces(usage, network_recordings("synthetic"), tmp_path / "both", seed=0)
    assert {trace.user: len(trace.throughput or ()) for trace in made}["bob"] == DAY_S // 5 + 1
