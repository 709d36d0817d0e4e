"""Trace sets and their flat form on disk: what goes in comes out, and damage is told."""

from __future__ import annotations

import csv
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from joulefleet.errors import ConfigError, DataQualityError, StorageError
from joulefleet.printable import csv_cell
from joulefleet.provenance import Origin, Provenance
from tests.traces import brute
from traces.model import (
    AppSessions,
    BatteryPoints,
    Fact,
    InteractionTrace,
    Intervals,
    NetworkKind,
    NetworkSpans,
)
from traces.replay.devices import DAY_NS, FleetRecipe, map_devices, one_device_per_user
from traces.replay.flat import flatten
from traces.replay.flat_store import open_flat, write_flat
from traces.replay.fleet import TraceFleet, TraceQuery, TraceState
from traces.replay.intensity import default_table, load_table
from traces.storage.csv_export import export_csv
from traces.storage.trace_set import ImportRecord, TraceSet, new_trace_set

EMULATED = Provenance(origin=Origin.EMULATED)


def store(out: Path, recorded: list[InteractionTrace]) -> TraceSet:
    with new_trace_set(out) as new:
        for trace in recorded:
            new.add(trace)
        new.describe(EMULATED, imported=ImportRecord(format="test", source="nowhere", rows=3))
    return TraceSet(out)


def assert_same(a: object, b: object, where: str = "") -> None:
    """Field by field, through dataclasses and arrays."""
    if is_dataclass(a):
        assert type(a) is type(b), where
        for field in fields(a):
            assert_same(getattr(a, field.name), getattr(b, field.name), f"{where}.{field.name}")
    elif isinstance(a, np.ndarray):
        np.testing.assert_array_equal(a, b, where)
        assert a.dtype == b.dtype, where
    else:
        assert a == b, where


def without_unused_apps(trace: InteractionTrace) -> InteractionTrace:
    """As it is read back: only apps that ran, in the order they first did."""
    if trace.apps is None:
        return trace
    used = list(dict.fromkeys(trace.apps.app.tolist()))
    categories = tuple(trace.apps.categories[i] for i in used) if trace.apps.categories else ()
    cpu = trace.apps.cpu
    return replace(
        trace,
        apps=replace(
            trace.apps,
            app=np.array([used.index(i) for i in trace.apps.app.tolist()], np.int32),
            names=tuple(trace.apps.names[i] for i in used),
            categories=categories if any(categories) else (),
            cpu=None if cpu is None or np.all(np.isnan(cpu)) else cpu,
        ),
    )


@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(brute.traces(), min_size=1, max_size=4))
def test_a_set_reads_back_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, recorded: list[InteractionTrace]
) -> None:
    named = [
        replace(trace, user=f"=u{i}\n", device="ä", time_zone="Asia/Kolkata", facts={"x_ms": 1.5, "y": "z"})
        for i, trace in enumerate(recorded)
    ]
    found = store(tmp_path_factory.mktemp("set") / "s", named)
    assert len(found) == len(named)
    for before, after in zip(named, found, strict=True):
        assert_same(without_unused_apps(before), after)


def long_trace(user: str, days: int = 3, seed: int = 0) -> InteractionTrace:
    rng = np.random.default_rng(seed)
    edges = np.sort(rng.choice(days * 86_400, 200, replace=False)) * 10**9
    on = Intervals(edges[::2], edges[1::2])
    return InteractionTrace(
        user,
        0,
        days * DAY_NS,
        screen=Fact(on),
        plugged=Fact(Intervals(edges[:-1:7], edges[1::7][: len(edges[:-1:7])])),
        apps=AppSessions(on.start_ns, on.end_ns, rng.integers(0, 3, len(on)).astype(np.int32), brute.APPS),
        network=NetworkSpans(edges[:-1], edges[1:], rng.integers(0, 9, len(edges) - 1).astype(np.int8)),
        battery=BatteryPoints(edges, rng.random(len(edges))),
        relative_time=True,
    )


def test_many_rows_stream_through_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traces.storage.trace_set._FLUSH_ROWS", 150)
    monkeypatch.setattr("joulefleet.runstore.table._ROW_GROUP_ROWS", 333)
    recorded = [long_trace(f"u{i}", seed=i) for i in range(20)]
    found = store(tmp_path / "s", recorded)
    for before, after in zip(recorded, found, strict=True):
        assert_same(without_unused_apps(before), after)
    assert found.record.tables["battery"].rows == 20 * 200
    assert found.verify() == []


def test_a_user_may_come_only_once_and_a_failed_set_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataQualityError, match="'u' comes twice"):
        store(tmp_path / "s", [long_trace("u"), long_trace("u")])
    with pytest.raises(DataQualityError, match="not a single trace"):
        store(tmp_path / "s", [])
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    store(tmp_path / "s", [long_trace("u")])
    with pytest.raises(StorageError, match="exists already"):
        store(tmp_path / "s", [long_trace("v")])
    with pytest.raises(StorageError, match="exists already"):
        write_flat([long_trace("u")], tmp_path / "s")


def test_damage_is_told(tmp_path: Path) -> None:
    found = store(tmp_path / "s", [long_trace("u")])
    battery = tmp_path / "s" / "battery.parquet"
    battery.write_bytes(battery.read_bytes()[:-100])
    assert found.verify() == ["battery"]
    with pytest.raises(StorageError, match="cannot be read back"):
        list(found)
    (tmp_path / "s" / "manifest.json").unlink()
    with pytest.raises(StorageError, match="not a trace set"):
        TraceSet(tmp_path / "s")


def test_a_manifest_of_another_version_is_refused(tmp_path: Path) -> None:
    store(tmp_path / "s", [long_trace("u")])
    manifest = tmp_path / "s" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"schema_version": 1', '"schema_version": 2', 1))
    with pytest.raises(ConfigError, match="schema_version 2"):
        TraceSet(tmp_path / "s")


def test_the_flat_form_on_disk_equals_the_one_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zones = ("", "Asia/Shanghai", "Europe/Berlin")
    recorded = [replace(long_trace(f"u{i}", days=1 + i, seed=i), time_zone=zones[i % 3]) for i in range(7)]
    whole = flatten(recorded)
    assert whole.time_zones == zones
    monkeypatch.setattr("traces.replay.flat.BLOCK_USERS", 2)  # written in four parts
    written = write_flat(recorded, tmp_path / "flat")
    assert_same(whole, written)
    assert_same(whole, open_flat(tmp_path / "flat"))
    assert not written.level.flags.writeable
    assert written.level.base is not None  # a view of the mapped file, not a copy


def test_damage_to_the_flat_form_is_told(tmp_path: Path) -> None:
    write_flat([long_trace("u")], tmp_path / "flat")
    array = tmp_path / "flat" / "flags.npy"
    data = array.read_bytes()
    array.write_bytes(data[:-10])
    with pytest.raises(StorageError, match=r"flags\.npy"):
        open_flat(tmp_path / "flat")
    array.unlink()
    np.save(array, np.zeros(3, np.uint16))
    with pytest.raises(StorageError, match="the record says"):
        open_flat(tmp_path / "flat")
    np.save(array, np.array([{"code": 1}], object), allow_pickle=True)
    with pytest.raises(StorageError, match="not readable as an array"):
        open_flat(tmp_path / "flat")


def test_damage_to_the_users_of_the_flat_form_is_told(tmp_path: Path) -> None:
    write_flat([long_trace("u"), long_trace("v")], tmp_path / "flat")
    users = tmp_path / "flat" / "users.parquet"
    users.write_bytes(users.read_bytes()[:-20])
    with pytest.raises(StorageError, match=r"users\.parquet: is damaged"):
        open_flat(tmp_path / "flat")
    pq.write_table(pa.table({"name": ["u", "v"]}), users)
    with pytest.raises(StorageError, match=r"users\.parquet: has no column 'user'"):
        open_flat(tmp_path / "flat")
    pq.write_table(pa.table({"user": ["u"]}), users)
    with pytest.raises(StorageError, match=r"users\.parquet: 1 users, the record says 2"):
        open_flat(tmp_path / "flat")


def test_the_flat_form_refuses_errors_and_nothing(tmp_path: Path) -> None:
    bad = InteractionTrace("bob", 0, 100, screen=Fact(Intervals([9], [4])), relative_time=True)
    with pytest.raises(DataQualityError, match="'bob'"):
        write_flat([long_trace("u"), bad], tmp_path / "flat")
    with pytest.raises(DataQualityError, match="no trace"):
        write_flat([], tmp_path / "flat")
    assert list(tmp_path.iterdir()) == []


def test_users_are_dealt_evenly_and_the_seed_decides() -> None:
    flat = flatten([long_trace(f"u{i}") for i in range(7)])
    a = map_devices(flat, FleetRecipe(devices=1000, seed=1))
    counts = np.bincount(a.user, minlength=7)
    assert counts.max() - counts.min() <= 1
    again, other = (map_devices(flat, FleetRecipe(devices=1000, seed=s)) for s in (1, 2))
    assert_same(a, again)
    assert not np.array_equal(a.user, other.user)
    assert not np.array_equal(a.phase_ns, other.phase_ns)
    few = map_devices(flat, FleetRecipe(devices=3, seed=1))
    assert len(np.unique(few.user)) == 3


@settings(deadline=None, max_examples=60)
@given(
    start=st.integers(-3 * DAY_NS, 3 * DAY_NS),
    epoch=st.integers(-400 * DAY_NS, 400 * DAY_NS),
    span=st.integers(1, 5 * DAY_NS),
    wrap=st.booleans(),
    shift=st.booleans(),
)
def test_whole_days_keep_the_time_of_day(start: int, epoch: int, span: int, wrap: bool, shift: bool) -> None:
    trace = InteractionTrace("u", start, start + span, screen=Fact(Intervals.none()), relative_time=True)
    flat = flatten([trace])
    made = map_devices(flat, FleetRecipe(devices=20, seed=3, epoch_ns=epoch, wrap=wrap, shift=shift))
    x = epoch - start + made.phase_ns
    if wrap:
        assert made.period_ns[0] % DAY_NS == 0
        assert 0 <= made.period_ns[0] - span < DAY_NS
        x = x % made.period_ns[0]
    assert np.all((start + x - epoch) % DAY_NS == 0)
    if not shift:
        assert np.all((x >= 0) & (x < DAY_NS))
    assert np.all(x < made.period_ns[0])


def test_jitter_spreads_devices_of_one_user() -> None:
    flat = flatten([long_trace("u")])
    minute = 60 * 10**9
    made = map_devices(flat, FleetRecipe(devices=5000, jitter_ns=30 * minute))
    off = (made.phase_ns + DAY_NS // 2) % DAY_NS - DAY_NS // 2
    assert len(np.unique(made.phase_ns)) > 4900
    assert off.min() >= -30 * minute
    assert off.max() <= 30 * minute
    assert off.min() < -25 * minute
    assert off.max() > 25 * minute


def test_some_devices_as_a_fleet_of_their_own_do_the_same() -> None:
    flat = flatten([long_trace(f"u{i}", seed=i) for i in range(3)])
    whole = TraceFleet.from_recipe(flat, FleetRecipe(devices=50, seed=2, jitter_ns=10**12))
    ids = np.array([41, 3, 3, 17])
    some = whole.some(ids)
    assert len(some) == 4
    for t_ns in range(0, 3 * DAY_NS, DAY_NS // 5):
        assert_same(some.state_at(t_ns), whole.state_at(t_ns, ids))
        assert some.eligible(t_ns, "idle").tolist() == whole.eligible(t_ns, "idle", ids).tolist()
        assert some.next_change(t_ns).tolist() == whole.next_change(t_ns, ids).tolist()


def test_one_device_per_user_replays_as_recorded() -> None:
    recorded = [long_trace(f"u{i}", seed=i) for i in range(3)]
    flat = flatten(recorded)
    fleet = TraceFleet(flat, one_device_per_user(flat))
    for t in (-5, 0, 12_345_678_912_345, 3 * DAY_NS - 1, 3 * DAY_NS):
        state = fleet.state_at(t)
        for i, trace in enumerate(recorded):
            alone = TraceQuery(trace).state_at(np.array([t]))
            for name in TraceState.__slots__:
                if name != "app":  # numbered per fleet
                    np.testing.assert_array_equal(getattr(state, name)[i], getattr(alone, name)[0])


def test_csv_cells_that_look_like_formulas_become_text(tmp_path: Path) -> None:
    assert [csv_cell(text) for text in ("=1+1", "+x", "-x", "@x", "\tx", "\rx", "x=1", "")] == [
        "'=1+1", "'+x", "'-x", "'@x", "'\\tx", "'\\rx", "x=1", "",
    ]  # fmt: skip
    apps = AppSessions([1], [2], [0], ('=HYPERLINK("x")',), cpu=[0.25])
    trace = InteractionTrace("@me", 0, 10, apps=apps, device="-1+2", relative_time=True)
    assert export_csv([trace], tmp_path / "out") == {"spans.csv": 3, "readings.csv": 0}
    with (tmp_path / "out" / "spans.csv").open(newline="") as file:
        recorded, known, row = csv.DictReader(file)
    assert (recorded["recorded"], known["app_known"]) == ("1", "1")
    assert (row["user"], row["device"], row["app"]) == ("'@me", "'-1+2", '\'=HYPERLINK("x")')
    assert (row["start"], row["end"], row["cpu"]) == ("0.000000001", "0.000000002", "0.25")


def test_an_exported_set_imports_again_with_the_same_answers(tmp_path: Path) -> None:
    from traces.importer import import_traces
    from traces.readers.base import ReaderOptions

    start = 1_300_000_000 * 10**9
    screen = Fact(
        Intervals([start + 5, start + 40], [start + 20, start + 60]), Intervals.one(start + 1, start + 90)
    )
    network = NetworkSpans(
        [start, start + 50], [start + 50, start + 90], [NetworkKind.WIFI, NetworkKind.CELLULAR_4G]
    )
    before = InteractionTrace(
        "u",
        start,
        start + 90,
        screen=screen,
        network=network,
        battery=BatteryPoints([start, start + 80], [0.9, 0.1]),
    )
    export_csv([before], tmp_path / "csv")
    (after,) = import_traces("csv", tmp_path / "csv", tmp_path / "set", ReaderOptions())
    times = np.arange(start, start + 80)
    old, new = TraceQuery(before).state_at(times), TraceQuery(after).state_at(times)
    np.testing.assert_array_equal(old.screen, new.screen)
    np.testing.assert_array_equal(old.network, new.network)
    np.testing.assert_allclose(old.battery, new.battery)


def test_a_users_own_intensity_table(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "mine"\nunknown_category = "all"\nscreen_on_category = "all"\n'
        '[[category]]\nname = "all"\ncpu = 0.5\nmemory = 0.5\nkind = "assumption"\nbasis = "none"\n'
        '[[app]]\nname = "SpringBoard"\ncpu = 0.01\nmemory = 0.02\nkind = "measured"\nbasis = "bench"\n'
    )
    table = load_table(path)
    apps = AppSessions([0, 5], [5, 10], [0, 1], ("springboard", "com.king.candy"))
    trace = InteractionTrace("u", 0, 10, apps=apps, relative_time=True)
    state = TraceQuery(trace, table).state_at(np.array([2, 7]))
    assert state.cpu.tolist() == pytest.approx([0.01, 0.5])
    assert (table.row("springboard").origin, table.row("x").origin) == (Origin.IMPORTED, Origin.LITERATURE)
    path.write_text(path.read_text().replace('unknown_category = "all"', 'unknown_category = "none"'))
    with pytest.raises(ConfigError, match=r"no \[\[category\]\] called none"):
        load_table(path)


def test_every_row_of_the_default_table_says_where_it_comes_from() -> None:
    table = default_table()
    assert len(table.category) >= 10
    for row in table.category:
        assert row.kind in ("literature", "assumption"), row
        assert row.basis, row
    assert table.category_of("com.king.candycrush.saga") == "game"
    assert table.category_of("COM.ANDROID.CHROME") == "browser"
    assert table.category_of("anything", "video") == "video"
    assert table.category_of("anything", "not a category") == "unknown"


def test_a_set_whose_manifest_names_a_product_opens(tmp_path: Path) -> None:
    """Earlier versions stored their version under the product's name of then."""
    found = store(tmp_path / "s", [long_trace("u")])
    manifest = tmp_path / "s" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"writer_version"', '"fedjoule_version"'))
    assert TraceSet(tmp_path / "s").record.writer_version == found.record.writer_version
