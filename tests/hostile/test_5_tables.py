"""Class 5: tables of a foreign folder whose columns are not ours. Every table that the product reads."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import emulator
from emulator.experiments.results import load_published
from harness.cli import run as joulefleet
from harness.rounds.host_load import HostLoad
from joulefleet.errors import JoulefleetError, StorageError
from joulefleet.runstore import RunStore, TableWriter, iter_batches
from power.energy.index import EnergyIndex
from power.recording import open_recording
from power.recording.redecode import raw_portions
from power.recording.tables import arrivals_schema
from tests.harness.stored_bench import stored_bench
from tests.power.synthetic import block, write_recording
from traces import TraceSet, import_traces
from traces.replay.flat_store import open_flat, write_flat

SCENARIO = """
name = "small"
[fleet]
devices = 12
[protocol]
rounds = 3
k = 3
[trainer]
kind = "surrogate"
"""
Damage = Callable[[pa.Table, str], pa.Table]


def other(make: Callable[[int], object], kind: pa.DataType | None = None) -> Damage:
    """The column with other values."""

    def damage(table: pa.Table, name: str) -> pa.Table:
        values = pa.array([make(i) for i in range(table.num_rows)], kind)
        return table.set_column(table.schema.get_field_index(name), name, values)

    return damage


TYPES: dict[str, Damage] = {
    "texts": other(lambda i: f"x{i}"),
    "bytes": other(lambda i: b"\xff\xfe"),
    "moments": other(lambda i: i, pa.timestamp("ns")),
    "decimals": other(lambda i: i, pa.decimal128(6)),
    "nothing but nulls": other(lambda i: None),
    "one null": lambda table, name: other(
        lambda i: None if i == 0 else table[name][i].as_py(), table.schema.field(name).type
    )(table, name),
    "gone": lambda table, name: table.drop_columns([name]),
    "twice": lambda table, name: table.append_column(name, table[name]),
}


def store(path: Path, table: pa.Table) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
        return
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        for batch in table.to_batches(10_000):
            stream.write_batch(batch)


def damaged(path: Path, name: str, damage: Damage) -> None:
    store(path, damage(pa.Table.from_batches(list(iter_batches(path))), name))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of each folder that has tables."""
    base = tmp_path_factory.mktemp("tables")
    stored_bench(base / "bench")
    (base / "small.toml").write_text(SCENARIO)
    emulator.run_all(base / "small.toml", selectors=["fedavg", "oort"], seeds=[0], out=base / "emulated")
    rows = "u,1600000000,on,wifi\nu,1600000100,off,wifi\nu,1600000200,on,none\n"
    (base / "x.csv").write_text("user,time,screen,network\n" + rows)
    import_traces("csv", base / "x.csv", base / "set")
    write_flat(TraceSet(base / "set"), base / "flat")
    with RunStore(base / "load").create("r", kind="bench") as run:
        table = {name: [1, 2, 3] for name in ("t_ns", "ticks", "idle", "steal")}
        with run.table("host_load-1", pa.schema([(name, pa.int64()) for name in table])) as log:
            log.append(table)
    return base


def recording_in(base: Path) -> Path:
    return sorted(base.rglob("recording.json"))[0].parent


def read_blocks(folder: Path) -> None:
    EnergyIndex(open_recording(recording_in(folder)))


def read_samples(folder: Path) -> None:
    for _ in open_recording(recording_in(folder)).blocks():
        pass


def read_arrivals(folder: Path) -> None:
    for _ in raw_portions(open_recording(recording_in(folder))):
        pass


def with_more_blocks(whole: Path) -> None:
    """Three batches in place of the one of so short a recording."""
    folder = recording_in(whole)
    shutil.rmtree(folder)
    parts = [block([1.0] * 100, first_index=at, dropped_before=100 if at else 0) for at in (0, 200, 400)]
    write_recording(folder, parts)


def with_arrivals(whole: Path) -> None:
    folder = recording_in(whole)
    (folder / "raw.bin").write_bytes(bytes(10))
    with TableWriter(folder, "arrivals", arrivals_schema()) as table:
        table.append({"end_offset": [4, 10], "arrival_ns": [1, 2]})


def read_emulation(table: str) -> Callable[[Path], None]:
    def read(folder: Path) -> None:
        for result in emulator.load_results(folder).results:
            getattr(result, table)

    return read


READERS: dict[str, tuple[str, str, Callable[[Path], object]]] = {
    "blocks": ("bench", "blocks.parquet", read_blocks),
    "samples": ("bench", "samples.arrows", read_samples),
    "arrivals": ("bench", "arrivals.parquet", read_arrivals),
    "rounds": ("emulated", "rounds.parquet", read_emulation("rounds")),
    "clients": ("emulated", "clients.parquet", read_emulation("clients")),
    "devices": ("emulated", "devices.parquet", read_emulation("devices")),
    "overhead": ("emulated", "overhead.parquet", read_emulation("overhead")),
    "users": ("set", "users.parquet", lambda folder: list(TraceSet(folder))),
    "intervals": ("set", "intervals.parquet", lambda folder: list(TraceSet(folder))),
    "network": ("set", "network.parquet", lambda folder: list(TraceSet(folder))),
    "flat users": ("flat", "users.parquet", open_flat),
    "host load": ("load", "host_load-1.parquet", lambda folder: HostLoad.read(next(folder.iterdir()))),
}
COSTS = {f"{part}_{unit}" for part in ("download", "probe", "wait", "train", "upload") for unit in "sj"}
FREE = {"accuracy", "test_accuracy", "devices_", "level_", "battery_"}
LEGAL: dict[str, dict[str, set[str]]] = {
    "blocks": {"one null": {"dropped_before"}},
    "clients": {"one null": {*COSTS, "loaded_s"}, "gone": {"loaded_s"}},
    "rounds": {
        "one null": {"time_s_", "energy_j", "wait_j", "reward", *FREE},
        "gone": FREE,
        "texts": {"training"},
    },
    "devices": {
        "one null": {"phone", "profile", "slowness", "data_size", "classes", "labels", "user", "network"},
        "texts": {"phone", "profile", "labels", "user", "network"},
    },
    "users": {
        "one null": {"time_zone", "device", "source", "licence", "facts"},
        "texts": {"user", "time_zone", "device", "source", "licence"},
    },
    "flat users": {"texts": {"user"}},
}
"""What may be so, by how columns begin: unknown costs, tasks with another metric, earlier versions."""


@pytest.mark.parametrize("reader", READERS)
def test_a_table_with_other_columns_is_refused_by_name(reader: str, made: Path, tmp_path: Path) -> None:
    kept, pattern, read = READERS[reader]
    whole = tmp_path / "whole"
    shutil.copytree(made / kept, whole)
    if reader == "arrivals":
        with_arrivals(whole)
    read(whole)
    file = sorted(whole.rglob(pattern))[0]
    if reader in ("blocks", "samples", "arrivals"):
        file = recording_in(whole) / pattern
    original, believed = file.read_bytes(), []
    for field in next(iter(iter_batches(file))).schema:
        for name, damage in TYPES.items():
            file.write_bytes(original)
            damaged(file, field.name, damage)
            refusal = refused(read, whole)
            if refusal is None:
                believed.append(f"{field.name}: {name}")
            else:
                assert file.name in refusal, name
                assert field.name in refusal or "not numbers" in refusal or reader == "flat users", refusal
    legal = LEGAL.get(reader, {})
    unlike = [one for one in believed if not one.startswith(tuple(legal.get(one.partition(": ")[2], ())))]
    assert unlike == []


def refused(read: Callable[[Path], object], folder: Path) -> str | None:
    try:
        read(folder)
    except JoulefleetError as error:
        return str(error)
    return None


ROUNDS = "emulated", "rounds.parquet", "cost_origin"
CLIENTS = "emulated", "clients.parquet", "device"
BLOCKS = "bench", "blocks.parquet", "power_ticks"
COMMANDS = {
    "compare RUN": ROUNDS,
    "compare RUN --format csv": CLIENTS,
    "report RUN": CLIENTS,
    "export RUN --format csv --out made": ROUNDS,
    "export RUN --format parquet --out made": CLIENTS,
    "figures RUN --out made": CLIENTS,
    "profile build RUN": BLOCKS,
    "export RUN --format perfetto --out made": BLOCKS,
    "bench show RUN JOB": BLOCKS,
    "meter show RECORDING": BLOCKS,
    "meter show RECORDING --csv made.csv": ("bench", "samples.arrows", "voltage_v"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_says_which_column(
    command: str,
    made: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    kept, pattern, column = COMMANDS[command]
    shutil.copytree(made / kept, tmp_path / kept)
    (run,) = (tmp_path / kept).iterdir()
    for file in run.rglob(pattern):
        damaged(file, column, TYPES["bytes"])
    recording = recording_in(run) if kept == "bench" else run
    words = {"RUN": str(run), "RECORDING": str(recording), "JOB": recording.name}
    monkeypatch.chdir(tmp_path)
    code = joulefleet([words.get(word, word) for word in command.split()])
    said = capfd.readouterr()
    told = " ".join((said.out + said.err).split())
    assert "unexpected" not in told
    assert "Traceback" not in told
    assert code, told
    assert column in told.replace(" ", ""), told


def test_arrays_of_another_kind_or_length_are_refused_by_name(made: Path, tmp_path: Path) -> None:
    for number, array in enumerate(sorted((made / "flat").glob("*.npy"))):
        stored = np.load(array)
        for attack, other_array in {
            "texts": stored.astype(str),
            "wide": stored.astype(np.complex128),
            "long": np.resize(stored, 3 * len(stored) + 1),
            "flat": stored.reshape(-1, 1),
        }.items():
            folder = tmp_path / f"{number}-{attack}"
            shutil.copytree(made / "flat", folder)
            np.save(folder / array.name, other_array)
            if attack == "long":  # whoever forges the array forges the record
                record = json.loads((folder / "flat.json").read_text())
                record["arrays"][array.stem] = len(other_array)
                (folder / "flat.json").write_text(json.dumps(record))
            with pytest.raises(StorageError, match=r"\.npy: "):
                open_flat(folder)
    record = json.loads((made / "flat" / "flat.json").read_text())
    del record["arrays"]["app"]
    (tmp_path / "0-texts" / "flat.json").write_text(json.dumps(record))
    with pytest.raises(StorageError, match="names other arrays: app"):
        open_flat(tmp_path / "0-texts")


Edit = Callable[[np.ndarray], object]
PUBLISHED_DATA = Path(__file__).parents[2] / "docs" / "results" / "data" / "aggregation-digits"


def put(row: int, value: float) -> Edit:
    """Another value in one row."""

    def edit(values: np.ndarray) -> np.ndarray:
        values[row] = value
        return values

    return edit


def negative(values: np.ndarray) -> np.ndarray:
    return put(-1, -1)(values)


def backwards(values: np.ndarray) -> np.ndarray:
    return values[::-1]


IMPOSSIBLE: dict[str, dict[str, list[Edit]]] = {
    "rounds": {
        "start_ns": [negative, backwards, lambda v: v // 2, put(1, 2**62)],
        "duration_ns": [negative, lambda v: v * 10, put(0, 2**63 - 1), put(2, 1)],
        "idle_ns": [put(-1, -300), put(-1, -(2**62)), put(2, 10**9), put(0, 2**62)],
        "eligible": [negative, put(0, 13), put(0, 2**31 - 1), put(0, 2)],
        "candidates": [negative, put(0, 2), put(0, 4)],
        "chosen": [negative, put(0, 4), put(0, 1)],
        "n_finished": [negative, put(0, 4), put(0, 0)],
        "n_rejected": [negative, put(0, 3)],
        "time_s_honest": [negative, put(0, 0.5), put(0, 1e9)],
        "time_s_free": [negative],
        "devices_changed": [negative],
        "test_accuracy": [put(0, 1.5), negative],
        "round": [put(0, 2)],
    },
    "clients": {
        "device": [put(1, 12), np.zeros_like],
        "chosen": [lambda v: ~v, put(0, 0)],
        "fate": [put(0, "left")],
        "train_s": [negative],
        "wait_s": [negative],
        "loaded_s": [negative],
        "loss_rms": [negative],
        "round": [put(0, 2)],
    },
    "devices": {
        "device": [negative, put(0, 12), put(0, 3)],
        "data_size": [negative],
        "slowness": [negative],
    },
    "overhead": {"selection_s": [negative], "round": [put(0, 2), backwards]},
    "blocks": {
        "first_tick": [backwards, lambda v: v + 10**6, put(1, 50)],
        "last_tick": [backwards, lambda v: v - 10**6, put(0, 250)],
        "first_index": [backwards, lambda v: v // 3],
        "offset": [backwards, lambda v: v * 0 + v[0]],
        "noise_w2": [negative],
        "step_w2": [negative],
    },
    "arrivals": {"end_offset": [backwards, put(0, -4)], "arrival_ns": [backwards, negative]},
    "host load": {"t_ns": [backwards], "ticks": [negative], "idle": [negative], "steal": [negative]},
}


@pytest.mark.parametrize("reader", IMPOSSIBLE)
def test_a_table_whose_values_cannot_be_is_refused_by_name(reader: str, made: Path, tmp_path: Path) -> None:
    """Of the right type and in range each for itself: times below zero or backwards, too high counts."""
    kept, pattern, read = READERS[reader]
    whole = tmp_path / "whole"
    shutil.copytree(made / kept, whole)
    {"arrivals": with_arrivals, "blocks": with_more_blocks}.get(reader, read)(whole)
    read(whole)
    file = sorted(whole.rglob(pattern))[0]
    if reader in ("blocks", "arrivals"):
        file = recording_in(whole) / pattern
    original, believed = file.read_bytes(), []
    for column, edits in IMPOSSIBLE[reader].items():
        for number, edit in enumerate(edits):
            file.write_bytes(original)
            damaged(file, column, edited(edit))
            refusal = refused(read, whole)
            if refusal is None:
                believed.append(f"{column} {number}")
            else:
                assert "unexpected" not in refusal, refusal
    assert believed == []


def edited(edit: Edit) -> Damage:
    def damage(table: pa.Table, name: str) -> pa.Table:
        field = table.schema.field(name)
        values = edit(np.array(table[name].to_numpy()))
        return table.set_column(table.schema.get_field_index(name), field, pa.array(values, field.type))

    return damage


def published_attacks() -> dict[str, Callable[[Path], object]]:
    def column(name: str, damage: Damage) -> Callable[[Path], object]:
        return lambda folder: damaged(folder / "rounds.parquet", name, damage)

    def records(text: str) -> Callable[[Path], object]:
        return lambda folder: (folder / "records.json").write_text(text)

    return {
        **{f"{name}, {how}": column(name, TYPES[how]) for name in ("run", "time_s_honest", "test_accuracy")
           for how in ("texts", "nothing but nulls", "gone", "twice")},
        "times below zero": column("time_s_honest", edited(negative)),
        "time that runs backwards": column("start_ns", edited(backwards)),
        "runs in another order": column("run", edited(backwards)),
        "more than all chosen": column("chosen", edited(put(0, 10**6))),
        "no JSON": records("[{"),
        "no list": records("7"),
        "nested": records("[" * 100_000),
        "another record": records('[{"variant": "a", "method": "b", "record": {"rounds": "x"}}]'),
        "a pipe": lambda folder: ((folder / "records.json").unlink(), os.mkfifo(folder / "records.json")),
    }  # fmt: skip


@pytest.mark.parametrize("attack", published_attacks().values(), ids=published_attacks().keys())
def test_published_data_of_another_lab_are_refused(attack: Callable[[Path], object], tmp_path: Path) -> None:
    """By somebody who had read `experiment table --from` only."""
    shutil.copytree(PUBLISHED_DATA, tmp_path / "published")
    attack(tmp_path / "published")
    with pytest.raises(JoulefleetError):
        load_published(tmp_path / "published")
