"""FedScale's pickles: read without being unpickled, and refused when they want more than data."""

from __future__ import annotations

import os
import pickle
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulefleet.errors import DataQualityError, StorageError
from tests.traces.importing import imported, seconds
from traces.readers.files.plain_pickle import dict_items

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


def items(raw: bytes, size: int = 1 << 20) -> list[tuple[Any, Any]]:
    return list(dict_items(lambda: (raw[at : at + size] for at in range(0, len(raw), size))))


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n\x1a"), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text("abc", max_size=3) | st.integers(), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(
    st.dictionaries(st.integers() | st.text("xyz", max_size=2), PLAIN, max_size=5),
    st.sampled_from(PROTOCOLS),
    st.integers(1, 60),
)
@settings(deadline=None)
def test_plain_data_of_every_protocol_comes_back(value: dict[Any, Any], protocol: int, size: int) -> None:
    found = items(pickle.dumps(value, protocol), size)
    assert dict(found) == value
    assert [type(entry) for _, entry in found] == [type(entry) for entry in value.values()]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_shared_and_repeated_parts_come_back(protocol: int) -> None:
    shared = [1.5, 2.5, 3.5]
    value = {key: {"active": shared, "model": "SM-G960", "again": shared} for key in range(3000)}
    assert dict(items(pickle.dumps(value, protocol))) == value


class Evil:
    """Unpickling it runs a program."""

    def __init__(self, target: Path) -> None:
        self._target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self._target}",)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_pickle_that_runs_code_is_refused(tmp_path: Path, protocol: int) -> None:
    mark = tmp_path / "run"
    raw = pickle.dumps({1: {"duration": Evil(mark)}}, protocol)
    source = tmp_path / "client_behave_trace"
    source.write_bytes(raw)
    with pytest.raises(DataQualityError, match=r"the pickle uses (STACK_)?GLOBAL: refused"):
        imported("fedscale", source)
    assert not mark.exists()
    pickle.loads(raw)  # the file is a real one: the ordinary way runs it
    assert mark.exists()


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"cos\nsystem\n(S'true'\ntR.", "GLOBAL"),
        (b"(S'true'\nios\nsystem\n.", "INST"),
        (b"(cos\nsystem\nS'true'\no.", "GLOBAL"),
        (b"Pid\n.", "PERSID"),
        (b"}(K\x01}bu.", "BUILD"),
        (b"\x80\x02}\x82\x01.", "EXT1"),
        (b"}(K\x01C\x01au.", "SHORT_BINBYTES"),
        (b"}(K\x01\x8fu.", "EMPTY_SET"),
        (pickle.dumps({1: {1, 2}}), "EMPTY_SET"),
        (pickle.dumps({1: np.float64(1)}), "GLOBAL"),
        (pickle.dumps({1: 1j}), "GLOBAL"),
        (pickle.dumps({1: b"x"}, 5), "BYTES"),
        (pickle.dumps({1: bytearray(b"x")}, 5), "BYTEARRAY8"),
    ],
)
def test_anything_but_plain_data_is_refused_by_name(raw: bytes, why: str) -> None:
    with pytest.raises(DataQualityError, match=rf"the pickle uses \w*{why}: refused"):
        items(raw)


RECURSIVE: dict[int, Any] = {}
RECURSIVE[1] = RECURSIVE


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "cut short"),
        (b"not a pickle", "not a pickle|uses|no number"),
        (pickle.dumps({i: [i] * 9 for i in range(99)})[:-40], "cut short"),
        (pickle.dumps([1, 2]), "holds a list"),
        (pickle.dumps(7), "holds a int"),
        (b".", "does not hold one dict"),
        (b"}}.", "does not hold one dict"),
        (b"}(.", "does not hold one dict"),
        (b"}K\x01s.", "malformed"),
        (b"}(K\x01u.", "malformed"),
        (b"}u.", "malformed"),
        (b"}a.", "malformed"),
        (b"}(]]u.", "malformed"),
        (b"}h\x09.", "malformed"),
        (b"}K\x01\x86.", "holds a tuple"),
        (pickle.dumps(RECURSIVE), "contains itself"),
        (b"}(X" + struct.pack("<I", 2**31) + b"x", "string of 2147483648 bytes"),
        (b"}(\x8d" + struct.pack("<Q", 2**60), "string of"),
        (b"}(\x8b" + struct.pack("<i", 2**30), "integer of"),
        (b"}(I" + b"1" * 100_000, "more than 65536 bytes"),
    ],
)
def test_broken_and_hostile_pickles_end_in_a_clear_error(raw: bytes, why: str) -> None:
    with pytest.raises(DataQualityError, match=why):
        items(raw)


@given(st.binary(max_size=60), st.sampled_from([b"", b"\x80\x04}(", b"}(K\x01]("]))
@settings(deadline=None)
def test_noise_is_an_error_or_plain_data(noise: bytes, begin: bytes) -> None:
    try:
        found = items(begin + noise)
    except DataQualityError:
        return
    assert isinstance(found, list)


def test_huge_memo_numbers_cost_nothing() -> None:
    # CPython's unpickler would allocate a table of 2^32 entries for this.
    assert items(b"}r\xff\xff\xff\xff(K\x01K\x02u.") == [(1, 2)]


def behaviour(**changes: object) -> dict[str, object]:
    entry = {
        "duration": 211625,
        "inactive": [100, 300],
        "finish_time": 518400,
        "active": [50, 200],
        "model": "CPH1801",
    }
    return {**entry, **changes}


def test_behaviour_becomes_availability(tmp_path: Path) -> None:
    source = tmp_path / "client_behave_trace"
    clients = {1: behaviour(), 2: behaviour(active=[], inactive=[]), 3: behaviour(active=[7], inactive=[7])}
    source.write_bytes(pickle.dumps(clients))
    traces, report = imported("fedscale", source)
    one, never = traces["1"], traces["2"]
    assert traces["3"].available is not None
    assert seconds(traces["3"].available.on) == []
    assert (one.start_ns, one.end_ns, one.relative_time) == (0, 518400 * 10**9, True)
    assert one.available is not None
    assert never.available is not None
    assert seconds(one.available.on) == [(50, 100), (200, 300)]
    assert one.available.known is None
    assert seconds(never.available.on) == []
    assert seconds(never.available.known) == [(0, 518400)]
    assert (one.device, dict(one.facts)) == ("CPH1801", {"duration_s": 211625})
    assert report.rows == 3
    assert "Lai" in one.source
    assert one.licence.startswith("Apache-2.0")


def test_capacity_alone_and_joined(tmp_path: Path) -> None:
    capacity = tmp_path / "client_device_capacity"
    capacity.write_bytes(pickle.dumps({1: {"computation": 162.0, "communication": 5648.5}}))
    facts = {"compute_ms_per_sample": 162.0, "network_kbps": 5648.5}
    traces, _ = imported("fedscale", capacity)
    assert dict(traces["1"].facts) == facts
    assert traces["1"].available is None
    with pytest.raises(StorageError, match="has no client_behave_trace"):
        imported("fedscale", tmp_path)
    (tmp_path / "client_behave_trace").write_bytes(pickle.dumps({1: behaviour(), 2: behaviour()}))
    traces, report = imported("fedscale", tmp_path)
    assert dict(traces["1"].facts) == {"duration_s": 211625, **facts}
    assert dict(traces["2"].facts) == {"duration_s": 211625}
    assert report.bytes_read == pytest.approx(sum(path.stat().st_size for path in tmp_path.iterdir()), abs=2)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (7, "client 1 is not a dict"),
        (behaviour(active=[1]), "1 times in 'active', 2 in 'inactive'"),
        (behaviour(active="ab"), "'active' is not a list"),
        (behaviour(active=[1, "x"]), "'active' is a str, not a number"),
        (behaviour(active=[1, -5]), "'active' -5 is not a number from 0"),
        (behaviour(active=[1, float("nan")]), "'active' nan is not a number"),
        (behaviour(finish_time=None), "'finish_time' is a NoneType"),
        ({"computation": 1.0}, "'communication' is a NoneType"),
    ],
)
def test_bad_clients_are_counted(tmp_path: Path, entry: object, problem: str) -> None:
    source = tmp_path / "client_behave_trace"
    source.write_bytes(pickle.dumps({1: entry, "2": behaviour()}))
    traces, report = imported("fedscale", source, max_bad_rows=1)
    assert list(traces) == ["2"]
    assert (report.rows, report.bad_rows) == (2, 1)
    assert problem in report.examples[0].problem
    assert report.examples[0].line == 1


def test_nothing_is_an_error(tmp_path: Path) -> None:
    source = tmp_path / "client_behave_trace"
    source.write_bytes(pickle.dumps({}))
    with pytest.raises(DataQualityError, match="there is no client"):
        imported("fedscale", source)


def test_the_same_client_twice_is_a_bad_row(tmp_path: Path) -> None:
    source = tmp_path / "client_behave_trace"
    source.write_bytes(pickle.dumps({1: behaviour(), "1": behaviour(active=[], inactive=[])}))
    traces, report = imported("fedscale", source, max_bad_rows=1)
    assert traces["1"].available is not None
    assert len(traces["1"].available.on) == 2
    assert "there twice" in report.examples[0].problem


@pytest.mark.campaign
def test_as_many_clients_as_fedscale_has(tmp_path: Path, campaign_count: Any, record_property: Any) -> None:
    clients = campaign_count(3_000, 107_749)
    rng = random.Random(1)
    value = {}
    for client in range(clients):
        times = sorted(rng.sample(range(518400), 2 * rng.randrange(30)))
        value[client] = behaviour(active=times[::2], inactive=times[1::2], model=f"SM-{client % 700}")
    source = tmp_path / "client_behave_trace"
    source.write_bytes(pickle.dumps(value))
    traces, report = imported("fedscale", source)
    record_property("clients", clients)
    record_property("pickle_bytes", source.stat().st_size)
    assert report.bad_rows == 0
    for client, entry in value.items():
        available = traces[str(client)].available
        assert available is not None
        assert available.on.start_ns.tolist() == [t * 10**9 for t in entry["active"]]  # type: ignore[attr-defined]
        assert available.on.end_ns.tolist() == [t * 10**9 for t in entry["inactive"]]  # type: ignore[attr-defined]


def shared(depth: int) -> list[Any]:
    """Few bytes in a pickle, but two to the power of ``depth`` lists when they are written out."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value, value]
    return value


def nested(depth: int) -> bytes:
    """A list in a list in a list, which Python's own pickler is too recursive to write."""
    return b"]" * depth + b"a" * (depth - 1)


@pytest.mark.parametrize("name", ["finish_time", "duration", "active"])
def test_a_small_pickle_takes_little_memory(tmp_path: Path, name: str) -> None:
    source = tmp_path / "client_behave_trace"
    source.write_bytes(pickle.dumps({1: behaviour(**{name: shared(200)}), 2: behaviour()}))
    assert source.stat().st_size < 2000
    traces, report = imported("fedscale", source, max_bad_rows=1)
    assert list(traces) == ["2"]
    assert f"'{name}' is a list, not a number" in report.examples[0].problem


def test_a_deep_pickle_is_a_bad_row(tmp_path: Path) -> None:
    source = tmp_path / "client_behave_trace"
    entry = b"}(U\x06activeU\x00U\x08inactiveU\x00U\x0bfinish_time" + nested(100_000) + b"u"
    source.write_bytes(b"}(K\x01" + entry.replace(b"U\x00", b"]") + b"u.")
    _, report = imported("fedscale", source, max_bad_rows=1)
    assert "'finish_time' is a list" in report.examples[0].problem


@pytest.mark.parametrize(
    ("key", "problem"), [(rb"V\ud800" + b"\n", "is not valid text"), (b"X\x00\x00\x00\x00", "is empty")]
)
def test_names_that_are_none_are_bad_rows(tmp_path: Path, key: bytes, problem: str) -> None:
    source = tmp_path / "client_device_capacity"
    entry = b"}(U\x0bcomputationK\x05U\x0dcommunicationK\x07u"
    source.write_bytes(b"}(" + key + entry + b"K\x02" + entry + b"u.")
    traces, report = imported("fedscale", source, max_bad_rows=1)
    assert list(traces) == ["2"]
    assert problem in report.examples[0].problem


def test_a_pipe_is_refused_because_it_is_read_twice(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(StorageError, match="read more than once"):
        imported("fedscale", pipe)
