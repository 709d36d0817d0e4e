"""What becomes of stored runs before they are compared: found, in order, held against each other, named."""

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from device_agents.workloads import Metric
from emulator.compare import load
from emulator.compare.comparable import told_apart, unequal
from emulator.compare.load import compare_emulations, find_emulations, load_emulations, load_results
from emulator.runs.batch import plan, play, start
from emulator.runs.reading import FinishedRun
from emulator.runs.result import EmulationRecord, Result
from emulator.scenario.model import Scenario
from joulefleet.errors import ConfigError, DataQualityError, StorageError
from tests.emulator.small_experiment import variant
from tests.emulator.stored_edits import edit_facts, edit_record, edit_run

ERROR = Metric("mae", higher_is_better=False)


def ran(
    method: str, *, at: str = "", seed: int = 0, accuracy: float = 0.5, swept: Any = None, facts: Any = None,
    **scenario: Any,
) -> FinishedRun:  # fmt: skip
    record = EmulationRecord(
        scenario=Scenario(**{"name": "s", **scenario}), seed=seed, facts=facts or {}, swept=swept
    )
    table = pd.DataFrame({"round": [1, 2], "test_accuracy": [accuracy, accuracy]})
    return FinishedRun(method, table, Result(Path(at or method), record))


# Whether runs may stand in one table


def test_only_the_bench_is_named_and_only_beside_emulations() -> None:
    bench = {"played": "on the bench"}
    mixed = [ran("a"), ran("a", facts=bench), ran("b", facts=bench), ran("c")]
    assert [one.method for one in told_apart(mixed)] == ["a", "a (on the bench)", "b (on the bench)", "c"]
    assert [one.method for one in told_apart(mixed[1:3])] == ["a", "b"]
    assert [one.method for one in told_apart(mixed[::3])] == ["a", "c"]


@pytest.mark.parametrize(
    "alike",
    [
        {"name": "t"}, {"seeds": (7,)}, {"selector": {"name": "oort"}}, {"checkpoint_every": 7},
        {"trainer": {"workers": 3}}, {"code": {"own.py": "0" * 64}},
    ],
)  # fmt: skip
def test_what_decides_nothing_may_differ(alike: dict[str, Any]) -> None:
    assert unequal([ran("a"), ran("b", **alike)]) == []


def test_every_run_is_held_against_the_first() -> None:
    other = {"protocol": {"k": 3}, "trainer": {"kind": "surrogate"}}
    (told,) = unequal([ran("a"), ran("b"), ran("c", **other), ran("d", protocol={"k": 4})])
    where = "so not the methods alone: a and c"
    assert told == f"the scenarios differ (protocol, trainer), {where}"


def test_what_is_swept_may_differ_and_nothing_else() -> None:
    few, many = {"protocol": {"k": 2}}, {"protocol": {"k": 3}}
    keys = ("protocol.k", "fleet.traces.users", "selector.options.mode")
    assert unequal([ran("a", **few), ran("b", swept=keys, **many)]) == []
    assert unequal([ran("a", swept=keys, **few), ran("b", **many)]) == []
    assert "(protocol)" in unequal([ran("a", swept=keys[1:], **few), ran("b", **many)])[0]
    assert "(protocol)" in unequal([ran("a", swept=keys, **few), ran("b", protocol={"rounds": 9})])[0]


def test_facts_are_shared_by_seed_by_method_and_by_all() -> None:
    one, other = "0123456789abcdef0", "fedcba9876543210f"
    values = "(0123456789abcdef and fedcba9876543210)"
    for fact, group in (("data", "runs with seed 3"), ("selector_sha256", "runs of b"), ("task", "the runs")):
        runs = [
            ran("a", seed=2, facts={"silent": 1}),
            ran("b", at="x", seed=3, facts={fact: one}),
            ran("b", at="y", seed=3, facts={fact: other}),
        ]
        expected = f"{group} rest on different {fact} {values}, so not the methods alone: x and y"
        assert unequal(runs) == [expected]
    both = {"trainer": 1, "policy_sha256": "p", "data": 1}, {"trainer": 2, "policy_sha256": "q", "data": 2}
    told = unequal([ran("a", facts=both[0]), ran("a", facts=both[1])])
    assert [text.partition(" rest on different ")[2].partition(",")[0] for text in told] == [
        "trainer", "policy_sha256 (p and q)", "data",
    ]  # fmt: skip


def test_variants_in_worlds_of_their_own_rest_on_other_facts() -> None:
    def variants(key: str, *values: int) -> list[FinishedRun]:
        section, _, last = key.partition(".")
        return [
            ran(f"m{i}", swept=(key,), facts={"partition": i, "task": i}, **{section: {last: value}})
            for i, value in enumerate(values)
        ]

    assert unequal(variants("fleet.devices", 15, 16)) == []
    same = unequal(variants("fleet.devices", 15, 15))
    assert [text.partition(" rest on")[0] for text in same] == [
        "the runs with fleet.devices = 15",
        "runs with seed 0 with fleet.devices = 15",
    ]
    assert [text.partition(" rest on")[0] for text in unequal(variants("protocol.k", 2, 3))] == [
        "the runs", "runs with seed 0",
    ]  # fmt: skip


# Targets and references


def test_the_target_is_the_baseline_s_mean_or_the_worst() -> None:
    runs = [ran("a", accuracy=0.5), ran("a", accuracy=0.7), ran("b", accuracy=0.3), ran("c", accuracy=0.9)]
    assert load._default_target(runs) == pytest.approx(0.3)
    assert load._default_target(runs, ERROR) == pytest.approx(0.9)
    base = [ran("fedavg", accuracy=0.4), ran("fedavg", accuracy=0.8), ran("fedavg", accuracy=math.nan)]
    assert load._default_target([*runs, *base]) == pytest.approx(0.6)


def test_the_best_heuristic_by_its_mean() -> None:
    """The others are better, and learn, or are nobody's."""
    runs = [
        ran("fedrank", accuracy=0.9), ran("mine", accuracy=0.95), ran("tifl", accuracy=0.5),
        ran("oort mode=official", accuracy=0.4), ran("oort mode=official", accuracy=0.8),
        ran("afl", accuracy=0.2),
    ]  # fmt: skip
    assert load._best_heuristic(runs) == "oort mode=official"
    assert load._best_heuristic(runs, ERROR) == "afl"
    assert load._best_heuristic(runs[:2]) == ""


def test_a_method_and_seed_count_once() -> None:
    first, again = ran("a", at="x"), ran("a", at="y")
    others = [ran("a", seed=1), ran("b")]
    kept, notes = load._once([first, *others, again, replace(others[1], result=again.result)])
    assert kept == [first, *others]
    assert notes == [
        "y: a with seed 0 is there twice; the first counts",
        "y: b with seed 0 is there twice; the first counts",
    ]


def test_runs_are_judged_by_one_metric() -> None:
    error = {"metric": {"name": "mae"}}
    assert load._judged_by([ran("a", facts=error), ran("b", facts=error)]) == ERROR
    with pytest.raises(DataQualityError, match=r"different metrics: accuracy \(a\), mae \(b\)"):
        load._judged_by([ran("a"), ran("b", facts=error)])


def test_origins_say_emulated_or_what_a_bench_claims() -> None:
    runs = [
        ran("a", facts={"cost_origin": "literature"}),
        ran("a", facts={"cost_origin": "measured", "played": "on the bench"}),
        ran("b", facts={"cost_origin": "imported", "played": "on the bench"}),
    ]
    assert (load._origin(runs, "a"), load._origin(runs, "b")) == ("emulated and measured", "imported")


# Stored runs


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Planned in an order that is not that of names."""
    index = plan(variant().scenario, ("oort", "fedrank"), (5, 10))
    with start(tmp_path_factory.mktemp("emulations"), index, "") as run:
        play(run, index)
    return run.path


@pytest.fixture
def runs(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "runs"))


PLANNED = ["oort_s5", "oort_s10", "fedrank_s5", "fedrank_s10"]


def test_emulations_stand_in_the_order_of_their_plan(runs: Path) -> None:
    def names(*paths: Path) -> list[str]:
        return [str(one.relative_to(runs.parent)) for one in find_emulations(paths)]

    planned = [f"runs/{name}" for name in PLANNED]
    assert names(runs) == planned
    assert names(runs / "fedrank_s5", runs) == [planned[2], *planned[:2], planned[3]]
    shutil.copytree(runs / "oort_s5", runs / "also")
    assert names(runs) == [*planned, "runs/also"]
    shutil.copytree(runs, runs.parent / "before")
    assert names(runs.parent)[:5] == [f"before/{name}" for name in (*PLANNED, "also")]
    (runs / "index.json").write_text("{")
    assert names(runs) == sorted([*planned, "runs/also"])
    with pytest.raises(DataQualityError, match="no emulation here"):
        names(runs, runs / "config")


def test_what_is_not_whole_is_told_once(runs: Path) -> None:
    edit_run(runs, status="interrupted")
    edit_record(runs / "oort_s5", rounds=None)
    edit_record(runs / "oort_s10", ended_early="nobody is left")
    loaded, told = load_emulations([runs])
    assert [one.path.name for one in loaded] == PLANNED[1:]
    assert [(one.method, one.seed) for one in loaded] == [("oort", 10), ("fedrank", 5), ("fedrank", 10)]
    assert len(told) == 3
    assert told[0].startswith(f"{runs / 'oort_s5'}: not finished, left out; `joulefleet emulate --resume")
    assert told[1] == f"{runs / 'oort_s10'}: nobody is left"
    assert told[2].startswith(f"{runs}: not at its end, methods or seeds may be missing; `joulefleet")
    for name in PLANNED[1:]:
        edit_record(runs / name, rounds=None)
    with pytest.raises(DataQualityError, match="none of these emulations is finished"):
        load_emulations([runs])


def test_results_of_folders_however_they_are_named(runs: Path) -> None:
    edit_record(runs / "oort_s10", rounds=None)
    found = load_results(str(runs / "fedrank_s10"), [runs / "oort_s5", str(runs / "oort_s10")])
    assert [one.path.name for one in found.results] == ["fedrank_s10", "oort_s5"]
    assert len(found.left_out) == 1
    with pytest.raises(ConfigError, match="no folder is given"):
        load_results([])
    for wrong in (runs / "absent", runs / "index.json"):
        with pytest.raises(StorageError, match="no such folder"):
            load_results(runs, wrong)


def test_a_record_without_a_method_is_named_by_its_folder(runs: Path) -> None:
    edit_facts(runs / "oort_s10", selector_options=3)
    with pytest.raises(DataQualityError, match=r"oort_s10: its record has no options"):
        load_emulations([runs])


def test_a_comparison_says_what_it_rests_on(runs: Path) -> None:
    for name in PLANNED:
        edit_facts(runs / name, energy="gross", cost_origin="measured", not_measured=["up", "down"])
    found = compare_emulations(runs)
    tail = "training surrogate; down; up; emulated; target taken from these runs, not fixed in advance"
    assert found.basis == f"gross energy, costs measured, {tail}"
    assert found.comparison.references == ("oort",), "no baseline: the best heuristic alone"
    assert found.origins == {"oort": "emulated", "fedrank": "emulated"}
    means = {m: cells["accuracy"].value.mean for m, cells in found.comparison.cells.items()}
    assert found.target == pytest.approx(min(means.values()))
    assert math.isnan(found.comparison.cells["oort"]["classes_per_cohort"].value.mean)
    fixed = compare_emulations([str(runs)], target=1.0, accounting="free")
    assert fixed.basis == f"gross energy, costs measured, {tail.rpartition(';')[0]}"
    assert (fixed.target, fixed.accounting.value) == (1.0, "free")
    assert compare_emulations([runs], target=0.0).comparison.cells["oort"]["rounds_to_target"].reached == 2
    for target in (-0.1, 1.01):
        with pytest.raises(ConfigError, match="between 0 and 1"):
            compare_emulations(runs, target=target)
    with pytest.raises(ConfigError, match="no accounting 'fair'"):
        compare_emulations(runs, accounting="fair")


def test_a_target_of_another_metric_is_no_share(runs: Path) -> None:
    for name in PLANNED:
        edit_facts(runs / name, metric={"name": "mae"})
    assert compare_emulations(runs, target=5.0).target == 5.0


def test_of_a_sweep_without_a_baseline_the_first_variant_is_a_reference(runs: Path) -> None:
    for name in PLANNED:
        edit_record(runs / name, swept=["protocol.k"])
    found = compare_emulations(runs).comparison
    first = next(iter(found.cells))
    assert first.startswith("oort ")
    assert found.references == (first,), "once, though it is the best heuristic too"


def test_both_ways_of_showing_a_comparison(runs: Path) -> None:
    found = compare_emulations(runs, target=0.9)
    assert str(found).count("mean [95 %]") == 6
    frame = found.frame()
    assert frame["metric"].nunique() == 14
    assert set(frame["method"]) == {"oort", "fedrank"}
