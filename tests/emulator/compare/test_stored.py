"""Emulations that are damaged or not comparable are refused by `compare`, as by experiments."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from emulator.compare.load import compare_emulations
from emulator.runs.batch import plan, play, reopen, start
from emulator.runs.result import EMULATION_FILE
from joulefleet.errors import ConfigError, DataQualityError, JoulefleetError, StorageError
from tests.emulator.small_experiment import variant
from tests.emulator.stored_edits import edit_facts, edit_record, edit_run, edit_table


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    index = plan(variant().scenario, ("fedavg", "oort"), (0, 1))
    with start(tmp_path_factory.mktemp("emulations"), index, "") as run:
        play(run, index)
    return run.path


@pytest.fixture
def runs(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "runs"))


def last_is(column: str, value: float) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def change(table: pd.DataFrame) -> pd.DataFrame:
        table.loc[table.index[-1], column] = value
        return table

    return change


@pytest.mark.parametrize("column", ["energy_j_honest", "time_s_free", "test_accuracy"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_a_number_is_refused(runs: Path, column: str, value: float) -> None:
    edit_table(runs / "oort_s1", "rounds", last_is(column, value))
    with pytest.raises(
        JoulefleetError, match=f"oort_s1.*rounds.parquet.*{column}|{column} of rounds.parquet"
    ):
        compare_emulations([runs])


@pytest.mark.parametrize(
    ("name", "column"), [("rounds", "test_accuracy"), ("rounds", "energy_j_free"), ("clients", "wait_j")]
)
def test_a_column_that_is_not_there_is_named(runs: Path, name: str, column: str) -> None:
    edit_table(runs / "oort_s1", name, lambda table: table.drop(columns=column))
    with pytest.raises(JoulefleetError, match=rf"oort_s1.*{name}\.parquet: has no column '{column}'"):
        compare_emulations([runs])


def test_a_table_that_was_cut_is_refused(runs: Path) -> None:
    edit_table(runs / "oort_s1", "rounds", lambda table: table.iloc[:2])
    with pytest.raises(DataQualityError, match="2 rounds are stored, 4 were played") as found:
        compare_emulations([runs])
    assert "leave" in found.value.hint


def test_the_same_round_twice_is_no_other_round(runs: Path) -> None:
    edit_table(runs / "oort_s1", "rounds", lambda table: table.assign(round=[1, 2, 2, 4]))
    with pytest.raises(StorageError, match=r"oort_s1/rounds.parquet: column 'round' has values in another"):
        compare_emulations([runs])


def ended_after_three(folder: Path, accuracy: float | None) -> None:
    """As a run that tests rarely is stored if nobody is left after its third round."""
    edit_table(folder, "rounds", lambda table: table[table["round"] <= 3].assign(test_accuracy=np.nan))
    edit_table(folder, "clients", lambda table: table[table["round"] <= 3])
    scenario = json.loads((folder / EMULATION_FILE).read_text())["scenario"]
    scenario["protocol"]["test_every"] = 0
    edit_record(folder, rounds=3, ended_early="nobody is left", test_accuracy=accuracy, scenario=scenario)


def test_the_last_model_of_a_run_that_ended_early_was_tested(runs: Path) -> None:
    for folder in runs.glob("*_s?"):
        ended_after_three(folder, 0.75)
    found = compare_emulations([runs]).comparison
    assert found.cells["oort"]["accuracy"].value.mean == 0.75
    assert any("nobody is left" in warning for warning in found.warnings)


def test_runs_that_were_never_tested_have_costs_all_the_same(runs: Path) -> None:
    for folder in runs.glob("*_s?"):
        ended_after_three(folder, None)
    found = compare_emulations([runs], target=0.5).comparison
    assert found.cells["oort"]["energy_j"].value.mean > 0
    assert any("no accuracy at all" in warning for warning in found.warnings)


def test_a_method_has_one_policy(runs: Path) -> None:
    edit_facts(runs / "oort_s0", policy_sha256="0" * 64)
    edit_facts(runs / "oort_s1", policy_sha256="1" * 64)
    with pytest.raises(DataQualityError, match=r"runs of oort rest on different policy_sha256") as found:
        compare_emulations([runs])
    assert "--mixed" in found.value.hint
    warnings = compare_emulations([runs], mixed=True).comparison.warnings
    assert any("runs of oort rest on different policy_sha256" in warning for warning in warnings)


def test_methods_may_have_different_policies(runs: Path) -> None:
    for seed in (0, 1):
        edit_facts(runs / f"oort_s{seed}", policy_sha256="0" * 64)
    assert compare_emulations([runs]).comparison.seeds == (0, 1)


@pytest.mark.parametrize(("fact", "value"), [("trainer", "batched"), ("played", "on the bench")])
def test_all_runs_were_trained_and_played_alike(runs: Path, fact: str, value: str) -> None:
    """Also runs of different seeds, which no pair compares: means would be of two worlds."""
    for method in ("fedavg", "oort"):
        edit_facts(runs / f"{method}_s1", **{fact: value})
    with pytest.raises(DataQualityError, match=f"the runs rest on different {fact}.*{value}"):
        compare_emulations([runs])


def test_the_same_method_on_the_bench_stands_beside_the_emulated_one(runs: Path) -> None:
    for seed in (0, 1):
        shutil.copytree(runs / f"oort_s{seed}", runs / f"bench_s{seed}")
        edit_facts(runs / f"bench_s{seed}", played="on the bench")
    found = compare_emulations([runs], mixed=True).comparison
    assert set(found.cells) == {"fedavg", "oort", "oort (on the bench)"}
    assert found.seeds == (0, 1)


def test_all_that_differs_is_told(runs: Path) -> None:
    for seed in (0, 1):
        other = {"trainer": "batched", "played": "on the bench", "profiles_sha256": "0" * 64}
        edit_facts(runs / f"oort_s{seed}", **other)
    warnings = compare_emulations([runs], mixed=True).comparison.warnings
    for fact in ("trainer", "played", "profiles_sha256"):
        assert any(f"different {fact}" in warning for warning in warnings)


def test_an_unfinished_run_names_the_command_that_continues_it(runs: Path) -> None:
    edit_run(runs, status="interrupted")
    edit_record(runs / "oort_s1", rounds=None)
    (warning,) = [one for one in compare_emulations([runs]).comparison.warnings if "not finished" in one]
    assert f"`joulefleet emulate --resume {runs}` continues it" in warning


def test_runs_of_different_software_are_named(runs: Path, tmp_path: Path) -> None:
    assert not any("different software" in one for one in compare_emulations([runs]).comparison.warnings)
    other = Path(shutil.copytree(runs, tmp_path / "other"))
    shutil.rmtree(runs / "oort_s0")
    shutil.rmtree(runs / "oort_s1")
    for seed in (0, 1):
        shutil.rmtree(other / f"fedavg_s{seed}")
    host = json.loads((other / "run.json").read_text())["host"]
    edit_run(other, host={**host, "sources": "0" * 64, "torch": "1.0"})
    warnings = compare_emulations([runs, other]).comparison.warnings
    (warning,) = [one for one in warnings if "different software" in one]
    assert f"torch {host['torch']:.12} ({runs.name}), 1.0 (other)" in warning
    assert f"sources {host['sources']:.12} ({runs.name}), 000000000000 (other)" in warning


def test_a_run_that_goes_on_with_other_software_says_so(runs: Path) -> None:
    host = json.loads((runs / "run.json").read_text())["host"]
    edit_run(runs, status="interrupted", host={**host, "sources": "0" * 64})
    with pytest.raises(ConfigError, match=r"other software.*: sources 000000000000, now "):
        reopen(runs)
    run, index = reopen(runs, accept_other_software=True)
    with run:
        play(run, index)
    warnings = compare_emulations([runs]).comparison.warnings
    assert any("holds results of other software, accepted by who ran it" in warning for warning in warnings)


@pytest.mark.parametrize(("column", "value"), [("device", 1 << 40), ("round", 99)])
def test_participants_beyond_the_fleet_or_the_rounds_are_refused(runs: Path, column: str, value: int) -> None:
    """A table that counts by device would ask for 8 TB."""
    edit_table(runs / "oort_s1", "clients", last_is(column, value))
    with pytest.raises(DataQualityError, match=r"oort_s1: clients\.parquet has (devices beyond|rounds that)"):
        compare_emulations([runs])
