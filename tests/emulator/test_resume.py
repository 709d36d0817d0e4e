"""A run that is stopped, however, and continued gives the same log, byte by byte."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from emulator.runs import emulation
from emulator.runs.batch import plan, play, reopen, run, start
from emulator.runs.checkpoint import load_checkpoint, save_checkpoint
from emulator.runs.emulation import NOTED_LATER
from emulator.runs.opening import read_index
from emulator.runs.tables import has_rounds
from emulator.scenario.model import Scenario
from joulefleet.config import parse_toml
from joulefleet.errors import ConfigError, StorageError
from joulefleet.runstore import RunStore
from power.profile.model import save_profile
from tests.emulator.worlds import profile

SURROGATE = """
name = "resumed"

[fleet]
devices = 60
speed_spread = 0.3

[protocol]
rounds = 60
k = 5
candidates = 12

[selector]
name = "oort"

[trainer]
kind = "surrogate"
"""
TRAINED = """
name = "resumed"

[fleet]
devices = 8

[task]
name = "digits-softmax"
learning_rate = 0.1

[protocol]
rounds = 4
k = 3
candidates = 5
local_epochs = 2

[selector]
name = "tifl"

[trainer]
kind = "cpu"
workers = 1
"""
TABLES = ("rounds.parquet", "clients.parquet", "devices.parquet")


class Stopped(BaseException):
    """As if the process had been told to end."""


def logs(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in TABLES}


def test_a_trained_run_continues_bit_by_bit(tmp_path: Path) -> None:
    scenario = parse_toml(TRAINED, Scenario, name="test")
    whole = run(scenario, out=tmp_path / "whole")
    index = plan(scenario, ["tifl"], [0])
    for stop_after in (0, 2):
        path = stopped(tmp_path / f"{stop_after}", index, stop_after)
        continued, found = reopen(path)
        with continued:
            (result,) = play(continued, found)
        assert logs(result.path) == logs(whole.path)
        assert result.record.test_accuracy == whole.record.test_accuracy
        assert result.record.facts == whole.record.facts


def stopped(root: Path, index, stop_after: int) -> Path:
    def stop(_, outcome) -> None:
        if outcome.round >= stop_after:
            raise Stopped

    started = start(root, index, "")
    with pytest.raises(Stopped), started:
        play(started, index, stop)
    return started.path


@pytest.mark.parametrize("table", ["rounds", "clients", "overhead"])
def test_a_run_whose_table_a_power_cut_has_shortened_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """The checkpoint is of round 4; of one table the last rounds had not reached the disk."""
    monkeypatch.setattr(emulation, "CHECKPOINT_PERIOD_S", 0.0, raising=False)
    scenario = parse_toml(SURROGATE.replace("rounds = 60", "rounds = 6"), Scenario, name="test")
    whole = run(scenario, out=tmp_path / "whole")
    path = stopped(tmp_path / "cut", plan(scenario, ["oort"], [0]), 4)
    stream = path / "oort_s0" / f"{table}.arrows"
    os.truncate(stream, stream.stat().st_size * 2 // 3)
    continued, found = reopen(path)
    with continued:
        (result,) = play(continued, found)
    assert result.rounds["round"].tolist() == result.overhead["round"].tolist() == [1, 2, 3, 4, 5, 6]
    assert logs(result.path) == logs(whole.path)


def test_a_table_that_never_reached_the_disk_counts_as_cut(tmp_path: Path) -> None:
    scenario = parse_toml(TRAINED, Scenario, name="test")
    folder = stopped(tmp_path, plan(scenario, ["tifl"], [0]), 0) / "tifl_s0"  # after its profiling, round 0
    assert has_rounds(folder, 0)
    assert not has_rounds(folder, 1)
    (folder / "overhead.arrows").unlink()
    assert not has_rounds(folder, 0)


def test_tables_are_on_disk_before_the_checkpoint_that_relies_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulation, "CHECKPOINT_PERIOD_S", 0.0, raising=False)
    synced: dict[str, int] = {}
    fsync = os.fsync
    behind = []

    def noted(handle: int) -> None:
        fsync(handle)
        file = Path(f"/proc/self/fd/{handle}").resolve()
        synced[file.name] = os.fstat(handle).st_size
        if file.name.startswith(".state-"):
            streams = list(file.parents[1].glob("*.arrows"))
            assert len(streams) == 3
            behind.extend(one.name for one in streams if synced.get(one.name) != one.stat().st_size)

    monkeypatch.setattr(os, "fsync", noted)
    run(parse_toml(SURROGATE.replace("rounds = 60", "rounds = 3"), Scenario, name="test"), out=tmp_path)
    assert behind == []


def test_checkpoints_are_at_most_one_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of milliseconds are cheaper to play again than to store."""
    kept = []
    monkeypatch.setattr(emulation, "save_checkpoint", lambda _, state: kept.append(state["round"]))
    scenario = parse_toml(SURROGATE, Scenario, name="test")
    begin = time.monotonic()
    run(scenario, out=tmp_path)
    assert 1 <= len(kept) <= 1 + time.monotonic() - begin


def test_what_auto_became_is_kept(tmp_path: Path) -> None:
    """A continued run trains with what it began with, whatever this machine would choose."""
    scenario = parse_toml(TRAINED.replace('"cpu"', '"auto"'), Scenario, name="test")
    index = plan(scenario, ["fedavg"], [0])
    path = stopped(tmp_path, index, 2)
    record = json.loads((path / "fedavg_s0" / "emulation.json").read_text())
    other = "cpu" if record["facts"]["trainer"] == "batched" else "batched"
    record["facts"]["trainer"] = other
    (path / "fedavg_s0" / "emulation.json").write_text(json.dumps(record))
    continued, found = reopen(path)
    with continued:
        (result,) = play(continued, found)
    assert result.rounds["training"].tolist()[-1] == other


def test_two_workers_give_the_same_as_one(tmp_path: Path) -> None:
    text = TRAINED.replace("rounds = 4", "rounds = 2")
    one = run(parse_toml(text, Scenario, name="test"), out=tmp_path / "one")
    two = run(
        parse_toml(text.replace("workers = 1", "workers = 2"), Scenario, name="test"), out=tmp_path / "two"
    )
    assert logs(one.path) == logs(two.path)


@pytest.mark.parametrize("noted", [True, False])
def test_a_profile_file_with_other_content_does_not_go_on(tmp_path: Path, noted: bool) -> None:
    """Not even under the same name; a run that was begun before contents were noted cannot tell."""
    file = tmp_path / "phone.json"
    save_profile(profile(), file)
    text = SURROGATE.replace(
        "[protocol]", f"profiles = ['{file}']\n[task]\nname = 'digits-softmax'\n[protocol]"
    )
    text += "[reward]\ntime_budget_s = 10\nenergy_budget_j = 10\n"
    scenario = parse_toml(text.replace("rounds = 60", "rounds = 3"), Scenario, name="test")
    path = stopped(tmp_path / "runs", plan(scenario, ["fedavg"], [0]), 2)
    if not noted:
        record = json.loads((path / "fedavg_s0" / "emulation.json").read_text())
        for name in NOTED_LATER:
            record["facts"].pop(name, None)
        (path / "fedavg_s0" / "emulation.json").write_text(json.dumps(record))
    file.unlink()
    save_profile(profile(20.0, 30.0), file)
    refused = pytest.raises(ConfigError, match="other facts: profiles_sha256")
    continued, found = reopen(path)
    with refused if noted else contextlib.nullcontext(), continued:
        play(continued, found)


def emulate(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "harness", "emulate", *arguments, "--json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_in_the_middle(process: subprocess.Popen[str], root: Path, rng: random.Random) -> bool:
    """Kill once some amount was written; False if the run was faster."""
    wanted = rng.randrange(2_000, 60_000)
    while process.poll() is None:
        written = 0
        with contextlib.suppress(FileNotFoundError):  # a new run's folder is renamed once it is complete
            written = sum(file.stat().st_size for file in root.glob("*/*/clients.arrows"))
        if written > wanted:
            time.sleep(rng.random() * 0.02)
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
            return True
        time.sleep(0.001)
    process.communicate()
    return False


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_a_run_that_is_killed_continues_bit_by_bit(
    tmp_path: Path, campaign_count: Callable[[int, int], int], record_property: Callable[[str, object], None]
) -> None:
    file = tmp_path / "scenario.toml"
    file.write_text(SURROGATE)
    whole = run(str(file), out=tmp_path / "whole")
    rng = random.Random(7)
    kills = 0
    for attempt in range(campaign_count(1, 60)):
        root = tmp_path / f"killed{attempt}"
        process = emulate(str(file), "--root", str(root))
        for _ in range(2):
            kills += kill_in_the_middle(process, root, rng)
            (path,) = root.iterdir()
            if RunStore(root).list()[0].state == "complete":
                break
            process = emulate("--resume", str(path))
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, out + err
        assert logs(path / "oort_s0") == logs(whole.path)
    record_property("kills", kills)
    assert kills > 0


def test_a_complete_run_is_not_resumed_and_a_changed_one_neither(tmp_path: Path) -> None:
    scenario = parse_toml(SURROGATE.replace("rounds = 60", "rounds = 2"), Scenario, name="test")
    index = plan(scenario, ["fedavg"], [0])
    path = stopped(tmp_path, index, 1)
    record = json.loads((path / "index.json").read_text())
    record["scenario"]["protocol"]["k"] = 4
    (path / "index.json").write_text(json.dumps(record))
    with pytest.raises(ConfigError, match="another configuration"):
        reopen(path)
    record["scenario"]["protocol"]["k"] = 5
    (path / "index.json").write_text(json.dumps(record))
    continued, found = reopen(path)
    with continued:
        play(continued, found)
    with pytest.raises(StorageError, match="complete"):
        reopen(path)
    with pytest.raises(StorageError, match=r"no index\.json"):
        read_index(tmp_path)


def test_a_checkpoint_holds_plain_data_and_arrays(tmp_path: Path) -> None:
    state = {
        "a": [1, 2.5, None, True, "text", (1, (2, 3))],
        3: {"x": np.arange(6, dtype=np.int16).reshape(2, 3), (1, 2): np.float32(0.1)},
        "inf": [float("inf"), float("nan")],
        "empty": np.empty((0, 4), bool),
    }
    save_checkpoint(tmp_path, state)
    found = load_checkpoint(tmp_path)
    assert found["a"] == state["a"]
    assert found[3]["x"].dtype == np.int16
    np.testing.assert_array_equal(found[3]["x"], state[3]["x"])
    assert found[3][1, 2] == float(np.float32(0.1))
    assert found["inf"][0] == float("inf")
    assert np.isnan(found["inf"][1])
    assert found["empty"].shape == (0, 4)
    assert load_checkpoint(tmp_path / "elsewhere") is None


def test_a_checkpoint_refuses_what_only_pickle_could_store(tmp_path: Path) -> None:
    for value in (object(), {"a": np.array([object()])}, {1, 2}):
        with pytest.raises(TypeError, match="checkpoint"):
            save_checkpoint(tmp_path, {"x": value})
    save_checkpoint(tmp_path, {"x": 1})
    next((tmp_path / "checkpoint").glob("state-*.npz")).write_bytes(b"PK nonsense")
    with pytest.raises(StorageError, match="not a whole checkpoint"):
        load_checkpoint(tmp_path)
