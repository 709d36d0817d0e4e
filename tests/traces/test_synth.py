"""The generator: what it draws, what it stores, and that it is the same again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from joulefleet.errors import ConfigError, StorageError
from joulefleet.provenance import Origin
from traces.intervals import contains
from traces.model import NetworkKind
from traces.quality.sets import validate_set
from traces.storage.trace_set import TraceSet
from traces.synth.draw import people
from traces.synth.draw.process import GridSampler, ProcessSampler
from traces.synth.fidelity import seen_through, whole_lengths
from traces.synth.fit.periods import Periods
from traces.synth.fit.process import fit_process
from traces.synth.model import BUNDLED, ModelSource, Process, UsageModel, load_model
from traces.synth.write import synthesise


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> TraceSet:
    out = tmp_path_factory.mktemp("synth") / "set"
    return synthesise(load_model("default"), out, users=40, days=3, seed=5)


def table_hashes(found: TraceSet) -> dict[str, str]:
    return {name: table.sha256 for name, table in found.record.tables.items()}


def test_generated_traces_are_valid_and_complete(small: TraceSet) -> None:
    tally = validate_set(small)
    assert tally.users_with_errors == 0
    assert tally.as_dict()["findings"] == []
    assert small.verify() == []
    for trace in small:
        assert trace.span_ns == 3 * 86_400 * 10**9
        assert len(trace.screen.on) == len(trace.apps) > 0
        np.testing.assert_array_equal(trace.apps.start_ns, trace.screen.on.start_ns)
        assert trace.battery.t_ns[0] == trace.start_ns
        assert trace.battery.t_ns[-1] == trace.end_ns
        # Which network is known at every moment, and it alternates.
        assert trace.network.start_ns[0] == trace.start_ns
        assert trace.network.end_ns[-1] == trace.end_ns
        np.testing.assert_array_equal(trace.network.start_ns[1:], trace.network.end_ns[:-1])
        assert set(trace.network.kind) <= {NetworkKind.WIFI, NetworkKind.NOT_WIFI}


def test_provenance_says_synthetic_and_names_the_model(small: TraceSet) -> None:
    model = load_model("default")
    origin = small.record.provenance
    assert origin.origin is Origin.EMULATED
    assert origin.sources[0].sha256 == model.sha256()
    trace = next(iter(small))
    assert trace.source == f"synthetic: usage model default {model.sha256()[:12]}"


def test_battery_follows_the_charger(small: TraceSet) -> None:
    risen = 0
    for trace in small:
        t, level = trace.battery.t_ns, trace.battery.level
        plugged = contains(trace.plugged.on, t[:-1])
        change = np.diff(level)
        assert np.all(change[plugged] >= 0)
        assert np.all(change[~plugged] <= 0)
        assert 0 < level.min() <= level.max() <= 1
        risen += np.count_nonzero(change > 0)
    assert risen > 40


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(small: TraceSet, tmp_path: Path) -> None:
    model = load_model("default")
    again = synthesise(model, tmp_path / "again", users=40, days=3, seed=5)
    other = synthesise(model, tmp_path / "other", users=40, days=3, seed=6)
    assert table_hashes(again) == table_hashes(small)
    assert table_hashes(other)["intervals"] != table_hashes(small)["intervals"]


def test_a_user_does_not_depend_on_how_many_there_are(
    small: TraceSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = list(synthesise(load_model("default"), tmp_path / "few", users=3, days=3, seed=5))
    for a, b in zip(few, small, strict=False):
        assert a.user == b.user
        for channel in ("screen", "plugged"):
            np.testing.assert_array_equal(getattr(a, channel).on.start_ns, getattr(b, channel).on.start_ns)
        np.testing.assert_array_equal(a.battery.level, b.battery.level)
        np.testing.assert_array_equal(a.network.end_ns, b.network.end_ns)
        assert [a.apps.names[i] for i in a.apps.app] == [b.apps.names[i] for i in b.apps.app]
    # The same across the border of a batch.
    monkeypatch.setattr(people, "BATCH_PEOPLE", 16)
    model = load_model("availability")
    one = list(synthesise(model, tmp_path / "one", users=17, days=2, seed=1))
    two = list(synthesise(model, tmp_path / "two", users=40, days=2, seed=1))
    for a, b in zip(one, two, strict=False):
        np.testing.assert_array_equal(a.available.on.start_ns, b.available.on.start_ns)
    assert any(len(trace.available.on) for trace in two[16:])


def test_people_differ(small: TraceSet) -> None:
    sessions = np.array([len(trace.screen.on) for trace in small]) / 3
    # Falaki et al. report 10 to 200 interactions a day among 255 users.
    assert sessions.min() < 35
    assert sessions.max() > 70
    assert sessions.min() > 5
    assert sessions.max() < 400


@pytest.mark.parametrize("name", sorted(BUNDLED))
def test_bundled_models_state_their_evidence(name: str) -> None:
    model = load_model(name)
    for process in model.processes:
        assert process.evidence.source
        assert process.evidence.licence
        assert process.evidence.users > 0
        # A class of one or two people would be their portrait; a set of one person has one class.
        smallest = min(kind.weight for kind in process.classes) * process.evidence.users
        assert len(process.classes) == 1 or smallest >= 2.9
    if model.apps is not None:
        assert model.apps.evidence.origin is Origin.LITERATURE
        assert model.apps.evidence.assumption


def test_rates_and_stays_come_out_as_the_model_says() -> None:
    """A process with constant rates and regular stays, whose shares are known."""
    regular = [0.999] * 68 + [1.001]  # nearly the same stay each time; strictly speaking it must not decrease
    off_per_h, on_per_h = 0.5, 2.0
    kind = {
        "weight": 1.0,
        "on_at_midnight": [0.2],
        "leave_per_h": [[[[off_per_h] * 24] * 2, [[on_per_h] * 24] * 2]],
        "stay": [[regular] * 4] * 2,
    }
    model = UsageModel.model_validate(
        {
            "name": "regular",
            "processes": [
                {
                    "channel": "screen",
                    "classes": [kind],
                    "evidence": {"origin": "imported", "source": "made up for a test"},
                }
            ],
        }
    )
    drawn = ProcessSampler(model.processes[0]).draw(50, 48.0, np.random.default_rng(0))
    inner = (drawn.start_h > 144.0) & (drawn.end_h < 168 + 48)
    length = drawn.end_h - drawn.start_h
    np.testing.assert_allclose(length[inner & drawn.on], 1 / on_per_h, rtol=0.01)
    np.testing.assert_allclose(length[inner & ~drawn.on], 1 / off_per_h, rtol=0.01)


def half_hourly(leave_per_h: tuple[float, float], factor: list[list[float]]) -> Process:
    kind = {
        "weight": 1.0,
        "on_at_midnight": [0.5],
        "leave_per_h": [[[[rate] * 24] * 2 for rate in leave_per_h]],
    }
    evidence = ModelSource(origin=Origin.IMPORTED, source="made up for a test")
    return Process(
        channel="available", classes=[kind], grid={"step_h": 0.5, "factor": factor}, evidence=evidence
    )


def stretch_shares(process: Process, seed: int) -> tuple[list[float], Periods]:
    """Share of the on-stretches that last one, two and three readings; and the periods of a week."""
    drawn = GridSampler(process, process.grid).draw(250, 168.0, np.random.default_rng(seed))
    np.testing.assert_array_equal(drawn.start_h % 0.5, 0.0)
    periods = seen_through([drawn], [(np.array([0.0]), np.array([168.0]))] * 250)
    steps = np.rint(whole_lengths(periods, periods.on(0)) / 0.5)
    return [float(np.mean(steps == n)) for n in (1, 2, 3)], periods


def test_on_a_grid_the_time_spent_decides_as_the_model_says_and_the_fit_finds_it() -> None:
    process = half_hourly((0.2, 0.5), [[1.0], [2.0, 1.0, 0.4]])
    expected = [0.5, 0.5 * 0.25, 0.5 * 0.75 * 0.1]  # chances to leave: 0.5, then 0.25, then 0.1
    shares, periods = stretch_shares(process, 1)
    np.testing.assert_allclose(shares, expected, atol=0.02)
    fitted = fit_process(periods, "available", process.evidence, grid_h=0.5)
    again, _ = stretch_shares(fitted, 2)
    np.testing.assert_allclose(again, expected, atol=0.02)


def test_a_faulty_model_is_refused() -> None:
    good = load_model("availability").model_dump(mode="json")
    process = good["processes"][0]
    for change in (
        {"processes": [process, process]},
        {"processes": [{**process, "given": "plugged"}]},
        {"apps": load_model("default").apps.model_dump(mode="json")},
        {"processes": [{**process, "classes": process["classes"][:1]}]},
        {"processes": [{**process, "grid": None}]},
    ):
        with pytest.raises(ValueError, match=r"process|regimes|weights|stays"):
            UsageModel.model_validate({**good, **change})


def test_nothing_is_overwritten_and_nonsense_refused(tmp_path: Path) -> None:
    model = load_model("availability")
    (tmp_path / "taken").mkdir()
    with pytest.raises(StorageError, match="exists already"):
        synthesise(model, tmp_path / "taken", users=1, days=1, seed=0)
    for users, days, seed in ((0, 1, 0), (1, 0, 0), (1, 1, -1)):
        with pytest.raises(ConfigError, match="cannot be generated"):
            synthesise(model, tmp_path / "none", users=users, days=days, seed=seed)
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
    with pytest.raises(ConfigError, match="no such usage model"):
        load_model(str(tmp_path / "missing.json"))


def test_long_traces_come_in_blocks_of_fewer_people(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(people, "BLOCK_PEOPLE", 200)
    model = load_model("availability")
    rows = {
        days: max(
            len(block.channels["available"].person) for block in people.draw_people(model, 600, days, 0)
        )
        for days in (7, 70)
    }
    assert rows[70] < 3 * rows[7]  # and not ten times
