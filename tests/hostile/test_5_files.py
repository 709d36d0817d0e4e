"""Class 5: trace, profile, recording and policy files, caches and checkpoints. Bombs of each kind."""

import gzip
import io
import json
import pickle
import resource
import shutil
import struct
import time
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import emulator
from emulator.runs.checkpoint import load_checkpoint, save_checkpoint
from emulator.runs.result import is_finished
from emulator.selectors.neural.policy import read_policy
from joulefleet.config import ClosedModel, load_toml
from joulefleet.errors import ConfigError, DataQualityError, JoulefleetError, StorageError
from joulefleet.records import read_json
from joulefleet.runstore import TableWriter, iter_batches, read_journal, read_table
from power.importers.files import import_recording
from traces import TraceSet, import_traces
from traces.readers import ImportReport, ReaderOptions
from traces.readers.files.plain_pickle import dict_items
from traces.readers.generic import ParquetTable


class Anything(ClosedModel):
    a: object = None


def peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


@pytest.fixture(autouse=True)
def _in_bounds() -> Iterable[None]:
    """No attack may take half a gigabyte or 20 s to be refused."""
    before, began_s = peak_mb(), time.monotonic()
    yield
    assert peak_mb() - before < 512
    assert time.monotonic() - began_s < 20


# JSON and TOML


@pytest.mark.parametrize(
    "text",
    ids=[1, 2, 3],
    argvalues=["[" * 100_000, '{"a":' * 5_000 + "1" + "}" * 5_000, "[" * 200 + "]" * 200],
)
def test_deep_json_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(StorageError, match=r"x\.json"):
        read_json(tmp_path / "x.json")
    (tmp_path / "x.jsonl").write_text('{"a":' + text + "}\n")
    with pytest.raises(StorageError, match=r"x\.jsonl"):
        list(read_journal(tmp_path / "x.jsonl"))


def test_a_number_of_thousands_of_digits_is_refused_in_our_words(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"a":' + "9" * 9_000 + "}")
    with pytest.raises(StorageError, match="thousands of digits"):
        read_json(tmp_path / "x.json")
    (tmp_path / "x.toml").write_text("a = " + "9" * 9_000)
    with pytest.raises(ConfigError, match="thousands of digits"):
        load_toml(tmp_path / "x.toml", Anything)


def test_a_record_of_any_size_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "x.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(StorageError, match="more than"):
        read_json(tmp_path / "x.json")
    (tmp_path / "x.toml").symlink_to(tmp_path / "x.json")
    with pytest.raises(ConfigError, match="more than"):
        load_toml(tmp_path / "x.toml", Anything)


TOMLS = {
    "lists": "a = " + "[" * 50_000,
    "tables": "a = " + "{b = " * 5_000,
    "dotted": "a" + ".a" * 20_000 + " = 1",
    "header": "[a" + ".a" * 20_000 + "]",
    "inline": "a = {b" + ' . "b"' * 20_000 + " = 1}",
}


@pytest.mark.parametrize("text", TOMLS.values(), ids=TOMLS)
def test_deep_toml_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"x\.toml"):
        load_toml(tmp_path / "x.toml", Anything)


# Pickles


def chunked(data: bytes) -> Callable[[], Iterable[bytes]]:
    return lambda: (data[i : i + 65536] for i in range(0, len(data), 65536))


def repeated(part: bytes, count: int, tail: bytes = b"us.") -> Callable[[], Iterable[bytes]]:
    """A dict with one long list of the same part; made on the way, as a gzip file would be unpacked."""

    def chunks() -> Iterable[bytes]:
        yield b"\x80\x04}K\x01("
        for _ in range(count):
            yield part
        yield tail

    return chunks


LONG_TEXT = b"X" + struct.pack("<I", 1 << 20) + b"x" * (1 << 20)


def test_a_pickle_of_long_texts_is_counted_in_bytes() -> None:
    with pytest.raises(DataQualityError, match="MB"):
        list(dict_items(repeated(LONG_TEXT, 2_500, b"ls.")))


def test_a_pickle_whose_memo_keeps_everything_is_counted_in_bytes() -> None:
    def chunks() -> Iterable[bytes]:
        yield b"\x80\x02}"
        for i in range(2_500):
            yield LONG_TEXT + b"r" + struct.pack("<I", i) + b"K\x01s"
        for i in range(2_500):
            yield b"j" + struct.pack("<I", i) + b"K\x01s"
        yield b"."

    with pytest.raises(DataQualityError, match="MB"):
        list(dict_items(chunks))


def test_integers_that_collide_take_no_longer_than_others() -> None:
    """Multiples of 2**61 - 1 have the hash 0: a dict of n of them takes n**2 steps."""
    colliding = {i * (2**61 - 1): 1 for i in range(2_000)}
    seconds = []
    for count in (5_000, 10_000):
        items = b"".join(
            b"\x8a\x0a" + (i * (2**61 - 1)).to_bytes(10, "little", signed=True) + b"K\x01"
            for i in range(count)
        )
        began_s = time.monotonic()
        found = list(dict_items(chunked(b"\x80\x02}(" + items + b"u.")))
        seconds.append(time.monotonic() - began_s)
        assert len(found) == count
    assert seconds[1] < 3 * seconds[0] + 0.5
    assert next(dict_items(chunked(pickle.dumps({"a": colliding}, 2))))[1] == colliding
    nested = pickle.dumps({"a": dict.fromkeys(range(5000), 1)}, 2)
    with pytest.raises(DataQualityError, match="numbers as keys"):
        list(dict_items(chunked(nested)))


def test_a_gzip_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traces.readers.files.sources.UNPACKED_BYTES", 4 << 20)
    bomb = tmp_path / "client_behave_trace"
    with gzip.open(bomb, "wb", compresslevel=9) as file:
        file.write(b"\x80\x04}(")
        for _ in range(20):
            file.write(b"N" * (1 << 20))
    with pytest.raises(DataQualityError, match=r"packed|MB"):
        import_traces("fedscale", bomb, tmp_path / "out")


# CSV, SQL


def test_a_csv_of_too_many_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(",".join(["a"] * 300_000) + "\n")
    with pytest.raises(DataQualityError, match="columns"):
        import_traces("csv", tmp_path / "x.csv", tmp_path / "out")


def test_a_parquet_of_too_many_columns_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traces.readers.generic.COLUMNS", 1000)
    pq.write_table(pa.table({f"c{i}": [1] for i in range(1001)}), tmp_path / "x.parquet")
    with pytest.raises(DataQualityError, match="1001 columns"):
        import_traces("csv", tmp_path / "x.parquet", tmp_path / "out")


def test_a_text_that_is_repeated_in_a_parquet_takes_its_memory_once(tmp_path: Path) -> None:
    """A megabyte, 60,000 times: 60 GB out of 1 MB."""
    users = pa.DictionaryArray.from_arrays(pa.array([0] * 60_000, pa.int32()), pa.array(["x" * (1 << 20)]))
    times = pa.array(range(60_000), pa.int64())
    pq.write_table(pa.table({"user": users.cast(pa.dictionary(pa.int32(), pa.string())), "time": times}),
                   tmp_path / "x.parquet", store_schema=False)  # fmt: skip
    table = ParquetTable(tmp_path / "x.parquet", ReaderOptions(), ImportReport())
    rows: list[int] = []
    table.each(lambda row: rows.append(len(row[0] or "")))
    assert rows == [1 << 20] * 60_000


def test_a_csv_without_line_ends_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("user,time,screen\n" + "x" * (8 << 20))
    with pytest.raises(DataQualityError, match="characters"):
        import_traces("csv", tmp_path / "x.csv", tmp_path / "out")


@pytest.mark.parametrize(
    "row", ids=[1, 2, 3], argvalues=["(" * 500_000, "('" + "x" * (4 << 20) + "'),", "(1," * 400_000]
)
def test_sql_rows_without_end_are_refused(tmp_path: Path, row: str) -> None:
    (tmp_path / "x.sql").write_text(f"INSERT INTO `screen_status` VALUES {row}")
    with pytest.raises(JoulefleetError):
        import_traces("livelab", tmp_path / "x.sql", tmp_path / "out")


@pytest.mark.parametrize("form", ["livelab", "csv", "aware"])
def test_a_device_is_no_file_of_traces(tmp_path: Path, form: str) -> None:
    """SQL has no limit on what stands between its statements: zeros went on for ever."""
    with pytest.raises(StorageError, match="is a device"):
        import_traces(form, Path("/dev/zero"), tmp_path / "out")


@pytest.mark.parametrize("form", ["auto", "powertool-csv", "powertool-binary"])
def test_a_device_is_no_file_of_a_meter(tmp_path: Path, form: str) -> None:
    with pytest.raises(StorageError, match="is no file"):
        import_recording(Path("/dev/zero"), tmp_path / "out", form=form)
    assert list(tmp_path.iterdir()) == []


# Archives of arrays, checkpoints


def npz(path: Path, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)


def header(shape: tuple[int, ...], descr: str = "<f8") -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": descr, "fortran_order": False, "shape": shape})  # type: ignore[no-untyped-call]
    return out.getvalue()


BOMBS = {
    "a header that asks for 8 TB": header((1 << 40,)),
    "negative": header((-1, 5)) + bytes(64),
    "objects": header((1,), "|O") + pickle.dumps([print]),
    "no header": b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535,
    "cut": header((100,)) + bytes(10),
    "nothing": b"",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_malformed_checkpoint_is_an_error_of_ours(tmp_path: Path, name: str) -> None:
    save_checkpoint(tmp_path, {"x": np.arange(5)})
    (state,) = (tmp_path / "checkpoint").glob("state-*.npz")
    npz(state, tree=BOMBS[name], a0=BOMBS[name])
    with pytest.raises(StorageError, match="not a whole checkpoint") as refused:
        load_checkpoint(tmp_path)
    assert "allow_pickle" not in str(refused.value) + refused.value.hint
    # Whoever forges the state forges the hash too.
    record = tmp_path / "checkpoint" / "checkpoint.json"
    import hashlib

    known = json.loads(record.read_text())
    known["state_sha256"] = hashlib.sha256(state.read_bytes()).hexdigest()
    record.write_text(json.dumps(known))
    with pytest.raises(StorageError, match="not a whole checkpoint") as refused:
        load_checkpoint(tmp_path)
    assert "pickle" not in str(refused.value) + refused.value.hint


TREES = [b"[" * 50_000, b"[1]", b'{"__array__":"zz"}', b'{"__items__":[[[],1]]}', b'{"x":1}', b"\xff"]


@pytest.mark.parametrize("tree", TREES, ids=range(len(TREES)))
def test_a_checkpoint_with_another_tree_is_an_error_of_ours(tmp_path: Path, tree: bytes) -> None:
    import hashlib

    save_checkpoint(tmp_path, {"x": 1})
    (state,) = (tmp_path / "checkpoint").glob("state-*.npz")
    np.savez(state, tree=np.frombuffer(tree, np.uint8))
    record = tmp_path / "checkpoint" / "checkpoint.json"
    known = json.loads(record.read_text())
    known["state_sha256"] = hashlib.sha256(state.read_bytes()).hexdigest()
    record.write_text(json.dumps(known))
    with pytest.raises(StorageError, match="not a whole checkpoint"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("name", BOMBS)
def test_a_malformed_matrix_of_availability_is_an_error_of_ours(tmp_path: Path, name: str) -> None:
    npz(tmp_path / "x.npz", available=BOMBS[name], start=BOMBS[name], step_minutes=BOMBS[name])
    with pytest.raises(DataQualityError, match="npz") as refused:
        import_traces("availability", tmp_path / "x.npz", tmp_path / "out")
    assert "pickle" not in str(refused.value)


def test_a_zip_bomb_of_availability_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traces.readers.availability.MAX_BYTES", 1 << 24)
    npz(tmp_path / "x.npz", available=header((1 << 23,)) + bytes(1 << 26))
    with pytest.raises(DataQualityError):
        import_traces("availability", tmp_path / "x.npz", tmp_path / "out")


SCENARIO = """
name = "small"
checkpoint_every = 1
[fleet]
devices = 20
[protocol]
rounds = 4
k = 3
candidates = 6
[selector]
name = "oort"
[trainer]
kind = "surrogate"
"""


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four emulations, interrupted in the second round of the first."""
    tmp_path = tmp_path_factory.mktemp("stopped")
    (tmp_path / "x.toml").write_text(SCENARIO)
    seen = 0

    def stop(outcome: object) -> None:
        nonlocal seen
        seen += 1
        if seen == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        emulator.run_all(
            tmp_path / "x.toml",
            selectors=["oort", "fedavg"],
            seeds=[0, 1],
            out=tmp_path / "runs",
            on_round=stop,
        )
    (run,) = (tmp_path / "runs").iterdir()
    return run


@pytest.mark.parametrize("damage", ["state", "record", "shape", "emulation.json", "table"])
def test_a_damaged_emulation_does_not_stop_the_others(stopped: Path, tmp_path: Path, damage: str) -> None:
    run = Path(shutil.copytree(stopped, tmp_path / "run"))
    first = run / "oort_s0"
    if damage == "state":
        next(first.glob("checkpoint/state-*.npz")).write_bytes(b"PK nonsense")
    elif damage == "record":
        (first / "checkpoint" / "checkpoint.json").write_text("{}")
    elif damage == "table":
        stored = pa.Table.from_batches(list(iter_batches(first / "rounds.arrows")))
        texts = stored.set_column(0, "round", pa.array(["one"] * len(stored)))
        with pa.ipc.new_stream(first / "rounds.arrows", texts.schema) as stream:
            stream.write_table(texts)
    elif damage == "shape":
        save_checkpoint(first, {"round": 1, "selector": {}, "fleet": np.arange(3)})
    else:
        (first / "emulation.json").write_text("[" * 100_000)
    with pytest.raises(StorageError, match="1 of 4 emulations are damaged") as refused:
        emulator.resume(run)
    assert "oort_s0" in refused.value.hint
    assert all(is_finished(run / name) for name in ("oort_s1", "fedavg_s0", "fedavg_s1"))
    # Without what is damaged the run comes to its end.
    shutil.rmtree(first)
    assert len(emulator.resume(run).results) == 4


# Tables


def test_a_text_stored_once_and_repeated_without_end_is_not_unpacked(tmp_path: Path) -> None:
    once = pa.array(["x" * 1_000_000])
    column = pa.DictionaryArray.from_arrays(np.zeros(200_000, np.int32), once)
    pq.write_table(pa.table({"a": column}), tmp_path / "t.parquet", store_schema=False)
    assert (tmp_path / "t.parquet").stat().st_size < 2_000_000
    with pytest.raises(StorageError, match="MB"):
        read_table(tmp_path, "t")


def test_a_parquet_of_run_lengths_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("joulefleet.runstore.table.TABLE_BYTES", 64 << 20)
    pq.write_table(pa.table({"a": np.zeros(20_000_000)}), tmp_path / "t.parquet")
    assert (tmp_path / "t.parquet").stat().st_size < 1_000_000
    with pytest.raises(StorageError, match=r"GB|MB"):
        read_table(tmp_path, "t")


def stored_stream(folder: Path, options: object = None) -> Path:
    path = folder / "t.arrows"
    table = pa.table({"a": np.arange(1000), "b": [f"n{i}" for i in range(1000)]})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema, options=options) as writer:
        writer.write_table(table)
    return path


def test_packed_batches_are_refused_before_they_are_unpacked(tmp_path: Path) -> None:
    path = stored_stream(tmp_path, pa.ipc.IpcWriteOptions(compression="zstd"))
    with pytest.raises(StorageError, match="packed"):
        list(iter_batches(path))
    plain = stored_stream(tmp_path)
    assert sum(batch.num_rows for batch in iter_batches(plain)) == 1000


def test_lengths_in_a_stream_that_cannot_be_never_crash(tmp_path: Path) -> None:
    """Every 32-bit place of the metadata set to lengths beyond the file: rows, buffers, offsets, bodies."""
    path = stored_stream(tmp_path)
    whole = path.read_bytes()
    for at in range(0, 1200, 4):
        for value in (0x7FFFFFFF, 0x10000000):
            path.write_bytes(whole[:at] + struct.pack("<I", value) + whole[at + 4 :])
            rows = 0
            try:
                for batch in iter_batches(path):
                    rows += len(batch.to_pylist())
            except StorageError:
                rows = 0
            assert rows <= 1000, "more rows than there are"


def test_a_table_of_ours_still_reads(tmp_path: Path) -> None:
    schema = pa.schema([("x", pa.int64()), ("name", pa.string()), ("ok", pa.bool_())])
    with TableWriter(tmp_path, "t", schema) as table:
        table.append({"x": [1, None], "name": ["a", None], "ok": [True, False]})
    assert read_table(tmp_path, "t").schema.equals(schema)
    assert read_table(tmp_path, "t").to_pylist() == [
        {"x": 1, "name": "a", "ok": True},
        {"x": None, "name": None, "ok": False},
    ]


TABLES: dict[str, tuple[str, str, object]] = {
    "facts that are deep": ("users", "facts", "[" * 50_000),
    "facts that are a list": ("users", "facts", "[1]"),
    "facts with a number of 9,000 digits": ("users", "facts", '{"a":' + "9" * 9_000 + "}"),
    "a count that is a word": ("users", "n_apps", "x"),
    "a count that is nothing": ("users", "n_screen", None),
    "a network of no kind": ("network", "kind", None),
    "a network that is a number": ("network", "kind", 5),
    "times that are words": ("intervals", "start_ns", "now"),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_trace_set_with_another_column_is_an_error_of_ours(tmp_path: Path, name: str) -> None:
    table, column, value = TABLES[name]
    rows = "u,1600000000,on,wifi\nu,1600000100,off,wifi\nu,1600000200,on,none\n"
    (tmp_path / "x.csv").write_text("user,time,screen,network\n" + rows)
    import_traces("csv", tmp_path / "x.csv", tmp_path / "set")
    place = tmp_path / "set" / f"{table}.parquet"
    stored = pq.read_table(place)
    at, count = stored.schema.get_field_index(column), stored.num_rows
    assert count
    pq.write_table(stored.set_column(at, column, pa.array([value] * count)), place)
    with pytest.raises(StorageError, match=rf"{table}\.parquet: column '{column}'") as refused:
        list(TraceSet(tmp_path / "set"))
    assert "set_int_max_str_digits" not in str(refused.value)


# Policies


def safetensors(metadata: object, body: bytes = b"", size: int | None = None) -> bytes:
    text = metadata if isinstance(metadata, bytes) else json.dumps(metadata).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + body


ONE = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
MANY = {"dtype": "F32", "shape": [1 << 60], "data_offsets": [0, 4]}
POLICIES = {
    "header of 2**63 bytes": safetensors({}, size=1 << 63),
    "header of 90 MB that is not there": safetensors({}, size=90 << 20),
    "deep header": safetensors(b'{"__metadata__":' + b"[" * 50_000),
    "shape of 2**60": safetensors({"weight0": MANY}, bytes(4)),
    "overlapping": safetensors(dict.fromkeys("ab", ONE), bytes(4)),
    "no manifest": safetensors({"__metadata__": {}}),
    "manifest of another type": safetensors({"__metadata__": {"manifest": "[]"}}),
    "nothing": b"",
    "list": safetensors([1, 2]),
}  # fmt: skip


@pytest.mark.parametrize("name", POLICIES)
def test_a_malformed_policy_is_an_error_of_ours(name: str) -> None:
    with pytest.raises(StorageError, match="not a policy file"):
        read_policy(POLICIES[name], "x")


def test_layers_that_do_not_fit_are_found_when_they_are_read() -> None:
    from safetensors.numpy import save

    from emulator.selectors.neural.policy import any_policy, packaged_policies

    good = any_policy(packaged_policies()[0])
    manifest = {"manifest": good.manifest.model_dump_json()}
    for arrays in (
        {"weight0": np.zeros(3, np.float32), "bias0": np.zeros(3, np.float32)},
        {"weight0": np.zeros((3, 2), np.float32), "bias0": np.zeros(3, np.float32)},
        {"weight0": np.zeros((3, 2), np.int64), "bias0": np.zeros(2, np.float32)},
        {},
    ):
        with pytest.raises(StorageError, match="layers"):
            read_policy(save(arrays, manifest), "x")
