"""Runs that are unlike each other, side by side: every one of them is looked at, not the first alone."""

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from emulator.compare.comparable import unequal
from emulator.compare.load import compare_emulations, find_emulations, load_emulations
from emulator.runs.batch import plan, play, start
from emulator.runs.reading import FinishedRun
from emulator.runs.result import EmulationRecord, Result
from emulator.runs.software import OTHER_SOFTWARE
from emulator.scenario.model import Scenario
from joulefleet.errors import StorageError
from tests.emulator.small_experiment import variant
from tests.emulator.stored_edits import edit_facts, edit_record, edit_run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    index = plan(variant().scenario, ("oort", "tifl"), (5,))
    with start(tmp_path_factory.mktemp("emulations"), index, "") as run:
        play(run, index)
    return run.path


@pytest.fixture
def both(finished: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Two runs, of which the second holds the second method."""
    one, other = (Path(shutil.copytree(finished, tmp_path / name)) for name in ("one", "other"))
    shutil.rmtree(one / "tifl_s5")
    shutil.rmtree(other / "oort_s5")
    return one, other


def test_what_is_wrong_with_each_run_is_told(both: tuple[Path, Path]) -> None:
    for run in both:
        host = json.loads((run / "run.json").read_text())["host"]
        edit_run(run, status="interrupted", host={**host, OTHER_SOFTWARE: f"torch of {run.name}"})
    _, told = load_emulations(both)
    for run in both:
        assert sum(text.startswith(f"{run}: not at its end") for text in told) == 1
        accepted = f"{run}: holds results of other software, accepted by who ran it: torch of {run.name}"
        assert told.count(accepted) == 1
    edit_run(both[0], status="complete", host={})
    _, told = load_emulations(both)
    assert not any(text.startswith(f"{both[0]}: ") for text in told)
    assert sum(text.startswith(f"{both[1]}: ") for text in told) == 2


def test_nothing_in_any_emulation_leads_elsewhere(both: tuple[Path, Path]) -> None:
    folder = both[0].parent
    assert len(find_emulations([folder])) == 2
    (both[1] / "tifl_s5" / "link").symlink_to(folder)
    with pytest.raises(StorageError, match="is a link"):
        find_emulations([folder])


def test_the_basis_names_what_each_run_rests_on(both: tuple[Path, Path]) -> None:
    one, other = both
    edit_facts(one / "oort_s5", energy="gross", cost_origin="measured", trainer="exact", not_measured=["up"])
    edit_facts(
        other / "tifl_s5", energy="net", cost_origin="scaled", trainer="fast", not_measured=["down"],
        played="on the bench",
    )  # fmt: skip
    found = compare_emulations(both, target=0.5, mixed=True)
    assert found.basis == (
        "gross energy, costs measured, training exact; net energy, costs scaled, training fast; down; up; "
        "emulated and on the bench"
    )
    assert found.origins == {"oort": "emulated", "tifl (on the bench)": "scaled"}


@pytest.mark.parametrize(
    ("within", "more"),
    [
        ({}, ()),
        ({"within_energy_j": 5.0}, ("accuracy_within_energy",)),
        ({"within_time_s": 5.0}, ("accuracy_within_time",)),
        (
            {"within_energy_j": 5.0, "within_time_s": 5.0},
            ("accuracy_within_energy", "accuracy_within_time"),
        ),
    ],
)
def test_what_a_budget_buys_is_shown_where_there_is_one(
    both: tuple[Path, Path], within: dict[str, float], more: tuple[str, ...]
) -> None:
    found = compare_emulations(both, target=0.5, **within)
    assert found.shown[6:] == more
    assert (found.within.energy_j, found.within.time_s) == (
        within.get("within_energy_j"), within.get("within_time_s"),
    )  # fmt: skip


def test_variants_of_a_sweep_stand_against_the_first_without_a_baseline(both: tuple[Path, Path]) -> None:
    """Also if not all were swept, the first least of all."""
    best = compare_emulations(both, target=0.5).comparison.references
    edit_record(both[1] / "tifl_s5", swept=["protocol.k"])
    first, *_ = compare_emulations(both, target=0.5).comparison.cells
    assert compare_emulations(both, target=0.5).comparison.references == tuple(dict.fromkeys([first, *best]))
    backwards = compare_emulations(both[::-1], target=0.5).comparison
    assert backwards.references[0] == next(iter(backwards.cells))
    assert len(best) == 1


def ran(method: str, *, swept: Any = None, facts: Any = None, **scenario: Any) -> FinishedRun:
    record = EmulationRecord(
        scenario=Scenario(**{"name": "s", **scenario}), seed=0, facts=facts or {}, swept=swept
    )
    return FinishedRun(method, pd.DataFrame(), Result(Path(method), record))


def test_a_key_deep_in_the_scenario_may_be_swept() -> None:
    few, many = ({"fleet": {"traces": {"source": "synthetic", "at_end": "wrap", "users": n}}} for n in (3, 4))
    key = ("fleet.traces.users",)
    assert unequal([ran("a", swept=key, **few), ran("b", swept=key, **many)]) == []
    assert "(fleet)" in unequal([ran("a", **few), ran("b", **many)])[0]


def test_facts_of_two_kinds_differ_without_their_values() -> None:
    for one, other in (("0" * 64, 3), (3, "0" * 64)):
        (told,) = unequal([ran("a", facts={"data": one}), ran("b", facts={"data": other})])
        assert told == "runs with seed 0 rest on different data, so not the methods alone: a and b"
