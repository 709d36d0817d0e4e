"""Tables of an experiment: right where the runs are, refused where they are not."""

import io
import json
import re
import shutil
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from emulator.experiments.behaviour import behaviour, chosen_share, gini, jain
from emulator.experiments.curves import GRID, CurveAxis, along
from emulator.experiments.numbers import as_csv
from emulator.experiments.plan import Preset, VariantPlan, make_plan
from emulator.experiments.render import as_markdown, as_text, curves_csv
from emulator.experiments.results import load_experiment, load_published, publish_experiment
from emulator.experiments.runner import resume, start
from emulator.experiments.summary import summarise
from emulator.experiments.switches import switches_of
from emulator.round.outcome import Accounting, RoundOutcome
from emulator.runs.batch import play
from emulator.runs.result import EMULATION_FILE
from joulefleet.errors import ConfigError, DataQualityError, JoulefleetError, StorageError
from joulefleet.interval import student_interval
from tests.emulator.small_experiment import played, small_plan, variant
from tests.emulator.stored_edits import edit_facts, edit_record, edit_run, edit_table


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return played(tmp_path_factory.mktemp("experiments"), small_plan())


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / finished.name))


def edit_column(folder: Path, column: str, value: float) -> None:
    path = folder / "rounds.parquet"
    table = pq.read_table(path)
    frame = table.to_pandas()
    frame.loc[frame.index[-1], column] = value
    pq.write_table(type(table).from_pandas(frame, schema=table.schema), path)


def test_energy_and_speed_are_paired_with_fedavg_under_all_accountings(finished: Path) -> None:
    results = load_experiment(finished)
    plain = summarise(results)[0]
    runs = results.of(plain.variant)
    row = {row.method: row for row in plain.rows}["fedrank"]
    assert row.against is not None
    for accounting in Accounting:
        ratios, speeds = [], []
        for seed in (0, 1):
            mine, base = runs["fedrank"][seed].rounds, runs["fedavg"][seed].rounds
            ratios.append(
                mine[f"energy_j_{accounting.value}"].sum() / base[f"energy_j_{accounting.value}"].sum()
            )
            speeds.append(base[f"time_s_{accounting.value}"].sum() / mine[f"time_s_{accounting.value}"].sum())
        assert row.against.energy[accounting] == student_interval(np.array(ratios))
        assert row.against.speed[accounting].mean == pytest.approx(np.mean(speeds))
    # Six candidates' epochs against none: honest energy holds what selected-only leaves out.
    assert row.against.energy[Accounting.HONEST].mean > row.against.energy[Accounting.SELECTED_ONLY].mean
    assert row.against.energy[Accounting.SELECTED_ONLY].mean > row.against.energy[Accounting.FREE].mean


def test_every_table_shows_the_papers_numbers_and_what_was_reduced(finished: Path) -> None:
    results = load_experiment(finished)
    for text in (as_text(results), as_markdown(results)):
        assert text.count("a formula instead of training") == 2  # one per variant
        assert "93.67 %" in text
        assert "costs literature, training surrogate" in text
        assert "mean test accuracy of the last 10 tested rounds" in text
        assert "M = 6 of N = 12 devices are candidates, in the paper's text all" in text
        assert "M = 9 of N = 12 devices are candidates, in the paper's text all" in text
        assert "Student's t interval" in text
        assert "2 tests against FedAvg, 2 paired seeds: none can be below 1" in text
    assert text.startswith("# small, smoke")
    assert "fewer than 5 seeds (fedavg, fedrank, oort)" in text


def test_every_number_of_the_csv_says_what_it_rests_on(copy: Path) -> None:
    shutil.rmtree(copy / "plain" / "fedavg_s0")
    found = pd.read_csv(io.StringIO(as_csv(load_experiment(copy, partial=True))))
    table = found.set_index(["variant", "method", "quantity"]).sort_index()
    row = table.loc["plain", "fedrank"].to_dict("index")
    assert (row["accuracy"]["seeds"], row["accuracy_minus_fedavg"]["seeds"]) == (2, 1)
    assert row["energy_of_fedavg_free"]["seeds"] == 1
    assert (row["accuracy"]["origin"], row["paper_accuracy"]["origin"]) == ("emulated", "literature")
    assert np.isnan(row["paper_accuracy"]["seeds"])
    assert row["paper_energy_of_fedavg"]["mean"] == 0.474
    assert row["energy_of_fedavg_free"]["accounting"] == "free"
    assert row["energy_to_target_j"]["accounting"] == "honest"
    assert row["energy_to_target_j"]["target"] == row["target"]["mean"]
    assert np.isnan(row["energy_j"]["target"])
    # One run is missing in the table of the variant, and in that of the other one which it lends FedAvg.
    assert set(table["missing_runs"]) == {1}
    assert set(table.loc["candidates-9"]["reduced"]) != set(table.loc["plain"]["reduced"])


def test_methods_on_fewer_seeds_than_others_weaken_no_test(tmp_path: Path) -> None:
    base = variant()
    plan = make_plan(
        "uneven", Preset.SMOKE, "?", [VariantPlan(base, ("fedavg", "oort"), (0, 1, 2), ("fedrank",), (0, 1))]
    )
    results = load_experiment(played(tmp_path, plan))
    rows = {row.method: row for row in summarise(results)[0].rows}
    assert rows["oort"].against is not None
    assert rows["fedrank"].against is not None
    assert not np.isnan(rows["oort"].against.p_holm)
    assert np.isnan(rows["fedrank"].against.p_holm)
    text = as_text(results)
    assert "1 test against FedAvg, 3 paired seeds: none can be below 0.25" in text
    assert "Not tested, since on fewer seeds than the others: fedrank" in text


def test_an_unreached_target_has_no_mean(copy: Path) -> None:
    plan = json.loads((copy / "experiment.json").read_text())
    plan["variants"][0]["target"] = 0.999
    (copy / "experiment.json").write_text(json.dumps(plan))
    results = load_experiment(copy)
    summary = summarise(results)[0]
    assert {row.reached for row in summary.rows} == {0}
    assert all(np.isnan(row.rounds_to_target.mean) for row in summary.rows)
    assert as_text(results).count("half never reach it (0/2)") == 3 * len(summary.rows)


def test_a_variant_uses_the_fedavg_runs_of_its_baseline(finished: Path) -> None:
    results = load_experiment(finished)
    assert {m: set(s) for m, s in results.of(results.plan.variants[1]).items()} == {
        "fedavg": {0, 1}, "fedrank": {0, 1},
    }  # fmt: skip


def test_missing_runs_are_an_error_or_are_named(copy: Path) -> None:
    shutil.rmtree(copy / "plain" / "oort_s1")
    edit_run(copy, command=["joulefleet", "experiment", "run", "small"])
    with pytest.raises(
        DataQualityError, match=r"1 of 8 runs are missing or were interrupted: plain/oort_s1"
    ) as found:
        load_experiment(copy)
    # It was complete: nothing to resume.
    assert f"`joulefleet experiment run small --reuse {copy}` takes over the rest" in found.value.hint
    assert f"`joulefleet experiment table {copy} --partial` shows what is there" in found.value.hint
    results = load_experiment(copy, partial=True)
    assert "1 of 8 runs are not here" in as_text(results)
    assert {row.method: row.seeds for row in summarise(results)[0].rows} == {
        "fedavg": 2,
        "oort": 1,
        "fedrank": 2,
    }


def test_an_interrupted_run_is_not_a_result(copy: Path) -> None:
    edit_record(copy / "plain" / "fedavg_s0", rounds=None)
    with pytest.raises(DataQualityError, match="plain/fedavg_s0"):
        load_experiment(copy)


def test_the_demos_own_experiment_is_not_resumed(copy: Path) -> None:
    edit_record(copy / "plain" / "fedavg_s0", rounds=None)
    edit_run(copy, command=["joulefleet", "demo", "--root", "runs"])
    with pytest.raises(DataQualityError) as found:
        load_experiment(copy)
    assert "`joulefleet demo --root runs` plays it anew" in found.value.hint
    assert "--resume" not in found.value.hint


def test_nothing_at_all_is_an_error_even_in_part(copy: Path) -> None:
    for record in copy.rglob(EMULATION_FILE):
        record.unlink()
    with pytest.raises(DataQualityError, match="8 of 8 runs"):
        load_experiment(copy, partial=True)


def test_a_run_of_another_scenario_is_refused(copy: Path) -> None:
    folder = copy / "plain" / "oort_s0"
    scenario = json.loads((folder / EMULATION_FILE).read_text())["scenario"]
    scenario["reward"]["alpha"] = 5.0
    edit_record(folder, scenario=scenario)
    with pytest.raises(
        DataQualityError, match=r"oort_s0: is of another scenario than the plan says \(reward\)"
    ):
        load_experiment(copy)


def test_a_run_in_the_wrong_folder_is_refused(copy: Path) -> None:
    shutil.rmtree(copy / "plain" / "oort_s0")
    shutil.copytree(copy / "plain" / "oort_s1", copy / "plain" / "oort_s0")
    with pytest.raises(DataQualityError, match=r"another scenario than the plan says \(seed\)"):
        load_experiment(copy)


@pytest.mark.parametrize("fact", ["trainer", "data", "profiles_sha256"])
def test_runs_from_different_data_or_trainers_are_refused(copy: Path, fact: str) -> None:
    folder = copy / "plain" / "fedrank_s1"
    facts = json.loads((folder / EMULATION_FILE).read_text())["facts"]
    edit_record(folder, facts={**facts, fact: "another"})
    with pytest.raises(DataQualityError, match=f"fedrank_s1 rest on different {fact}"):
        load_experiment(copy)


@pytest.mark.parametrize(
    ("fact", "value"),
    [("trainer", "batched"), ("cost_origin", "measured"), ("profiles", {"Nokia 3310": 12})],
)
def test_a_fedavg_that_another_variant_lends_rests_on_the_same(copy: Path, fact: str, value: object) -> None:
    for seed in (0, 1):
        edit_facts(copy / "candidates-9" / f"fedrank_s{seed}", **{fact: value})
    with pytest.raises(DataQualityError, match=f"candidates-9/fedrank_s0 rest on different {fact}"):
        load_experiment(copy)


def test_runs_from_before_the_content_of_profiles_was_noted_stand_beside_others(copy: Path) -> None:
    for method in ("fedavg", "oort"):
        folder = copy / "plain" / f"{method}_s0"
        facts = json.loads((folder / EMULATION_FILE).read_text())["facts"]
        del facts["profiles_sha256"]
        edit_record(folder, facts=facts)
    assert not load_experiment(copy).missing


def test_policies_are_the_same_for_all(copy: Path) -> None:
    edit_facts(copy / "plain" / "fedrank_s1", policy_sha256="0" * 64)
    with pytest.raises(DataQualityError, match="rest on different policy_sha256"):
        load_experiment(copy)


def test_budgets_of_the_old_rule_are_the_same_for_all(copy: Path) -> None:
    """Feasible ones are each method's own; those of the best 30 % depend on the fleet alone."""
    plan = json.loads((copy / "experiment.json").read_text())
    for one in plan["variants"]:
        one["scenario"]["reward"]["budgets"] = "best_30"
    (copy / "experiment.json").write_text(json.dumps(plan))
    for folder in (path.parent for path in copy.rglob(EMULATION_FILE)):
        scenario = json.loads((folder / EMULATION_FILE).read_text())["scenario"]
        scenario["reward"]["budgets"] = "best_30"
        edit_record(folder, scenario=scenario)
        edit_facts(folder, budgets={"time_s": 1.0, "energy_j": 2.0})
    assert not load_experiment(copy).missing
    edit_facts(copy / "plain" / "fedrank_s1", budgets={"time_s": 1.0, "energy_j": 3.0})
    with pytest.raises(DataQualityError, match="rest on different budgets"):
        load_experiment(copy)


def test_participants_that_are_missing_or_no_numbers_are_refused(copy: Path) -> None:
    folder = copy / "plain" / "oort_s1"
    edit_table(folder, "clients", lambda table: table.assign(train_j=np.nan))
    with pytest.raises(DataQualityError, match=r"oort_s1: energies of clients.parquet hold values that are"):
        load_experiment(copy)
    edit_table(folder, "clients", lambda table: table.iloc[:3])
    with pytest.raises(DataQualityError, match=r"oort_s1: candidates of rounds.parquet are not those of"):
        load_experiment(copy)


@pytest.mark.parametrize(
    ("name", "column"), [("rounds", "round"), ("rounds", "test_accuracy"), ("clients", "wait_j")]
)
def test_a_column_that_is_not_there_is_named(copy: Path, name: str, column: str) -> None:
    edit_table(copy / "plain" / "oort_s1", name, lambda table: table.drop(columns=column))
    with pytest.raises(JoulefleetError, match=f"oort_s1/{name}.parquet: has no column '{column}'"):
        load_experiment(copy)


def test_half_a_file_is_named(copy: Path) -> None:
    path = copy / "plain" / "oort_s1" / "rounds.parquet"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(StorageError, match=r"oort_s1/rounds.parquet: is damaged"):
        load_experiment(copy)


@pytest.mark.parametrize("column", ["energy_j_honest", "time_s_free", "test_accuracy"])
def test_a_column_that_is_not_a_number_is_refused(copy: Path, column: str) -> None:
    edit_column(copy / "plain" / "oort_s1", column, np.nan)
    with pytest.raises(
        DataQualityError, match=f"oort_s1: {column} of rounds.parquet hold values that are not"
    ):
        load_experiment(copy)


def test_a_shortened_table_is_refused(copy: Path) -> None:
    path = copy / "plain" / "oort_s1" / "rounds.parquet"
    pq.write_table(pq.read_table(path).slice(0, 2), path)
    with pytest.raises(DataQualityError, match="2 rounds are stored, 4 were played"):
        load_experiment(copy)


def ended_after_three(folder: Path, accuracy: float | None) -> None:
    """As a run is stored in which nobody is left after the third round, and no round was tested."""
    edit_table(folder, "rounds", lambda t: t[t["round"] <= 3].assign(test_accuracy=np.nan))
    edit_table(folder, "clients", lambda t: t[t["round"] <= 3])
    edit_record(folder, rounds=3, ended_early="nobody is left", test_accuracy=accuracy)


def rarely_tested(path: Path) -> None:
    """Let a whole experiment test its last model only."""
    for file in (path / "experiment.json", *path.rglob(EMULATION_FILE)):
        file.write_text(re.sub(r'"test_every": ?1', '"test_every": 0', file.read_text()))


def test_a_run_that_ended_before_its_first_test_has_the_accuracy_of_its_end(copy: Path) -> None:
    rarely_tested(copy)
    ended_after_three(copy / "plain" / "oort_s1", 0.75)
    results = load_experiment(copy)
    assert results.of(results.plan.variants[0])["oort"][1].rounds["test_accuracy"].iloc[-1] == 0.75
    assert any("nobody is left" in warning for warning in results.warnings)


def test_a_run_that_was_never_tested_is_not_called_damaged(copy: Path) -> None:
    rarely_tested(copy)
    ended_after_three(copy / "plain" / "oort_s1", None)
    with pytest.raises(DataQualityError, match="oort_s1: was never tested, so it has no accuracy"):
        load_experiment(copy)


def test_a_damaged_run_says_how_it_is_played_anew(copy: Path) -> None:
    edit_run(copy, command=["joulefleet", "experiment", "run", "small"])
    folder = copy / "plain" / "oort_s1"
    edit_column(folder, "energy_j_honest", np.nan)
    with pytest.raises(DataQualityError) as found:
        load_experiment(copy)
    assert found.value.hint.startswith(
        f"remove {folder}, then `joulefleet experiment run small --reuse {copy}`"
    )


def test_one_seed_has_no_interval_and_no_test(tmp_path: Path) -> None:
    results = load_experiment(played(tmp_path, small_plan((3,))))
    assert any("one seed only (fedavg, fedrank, oort)" in warning for warning in results.warnings)
    text = as_text(results)
    assert text.startswith("warning: one seed only")
    row = summarise(results)[0].rows[1]
    assert np.isnan(row.accuracy.low)
    assert row.against is not None
    assert np.isnan(row.against.p_holm)


def test_a_killed_experiment_continues_to_the_same_bytes(finished: Path, tmp_path: Path) -> None:
    plan = small_plan()

    class Killed(Exception):
        pass

    def after_some(planned: object, outcome: object) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 6:
            raise Killed

    rounds = 0
    with pytest.raises(Killed), start(tmp_path, plan) as run:
        play(run, plan, after_some)
    edit_run(run.path, command=["joulefleet", "experiment", "run", "small", "--resume"])
    with pytest.raises(DataQualityError, match="7 of 8 runs are missing or were interrupted") as found:
        load_experiment(run.path)
    assert "`joulefleet experiment run small --resume` continues it" in found.value.hint
    with resume(tmp_path, plan) as again:
        assert again.path == run.path
        play(again, plan)
    for one in plan.planned:
        for name in ("rounds.parquet", "clients.parquet", "devices.parquet"):
            assert (run.path / one.folder / name).read_bytes() == (finished / one.folder / name).read_bytes()
    with pytest.raises(StorageError, match="is complete, nothing to resume"):
        resume(tmp_path, plan)
    with pytest.raises(StorageError, match="no unfinished run of small"):
        resume(tmp_path, small_plan((7,)))


def test_an_older_unfinished_run_is_found_behind_a_complete_one(tmp_path: Path) -> None:
    plan = small_plan((0,))
    with pytest.raises(RuntimeError), start(tmp_path, plan) as older:
        raise RuntimeError
    time.sleep(1.1)  # folders are named by the second
    played(tmp_path, plan)
    with resume(tmp_path, plan) as run:
        assert run.path == older.path
        play(run, plan)


def test_another_software_goes_on_only_if_that_is_accepted(tmp_path: Path) -> None:
    plan = small_plan((0,))
    with pytest.raises(RuntimeError), start(tmp_path, plan) as run:
        raise RuntimeError
    host = json.loads((run.path / "run.json").read_text())["host"]
    edit_run(run.path, host={**host, "torch": "1.0", "sources": "0" * 64})
    with pytest.raises(
        ConfigError, match=r"other software.*: torch 1\.0, now .*; sources 000000000000, now "
    ):
        resume(tmp_path, plan)
    with resume(tmp_path, plan, accept_other_software=True) as again:
        play(again, plan)
    assert any("torch 1.0, now" in warning for warning in load_experiment(run.path).warnings)


def test_other_facts_do_not_go_on(tmp_path: Path) -> None:
    plan = small_plan((0,))

    def stop(_: object, outcome: RoundOutcome) -> None:
        if outcome.round == 2:
            raise RuntimeError

    with pytest.raises(RuntimeError), start(tmp_path, plan) as run:
        play(run, plan, stop)
    edit_facts(run.path / plan.planned[0].folder, traces={"users": 12, "sha256": "0" * 64})
    with (
        pytest.raises(ConfigError, match="was begun with other facts: traces"),
        resume(tmp_path, plan) as again,
    ):
        play(again, plan)


def test_a_method_with_other_seeds_than_fedavg_says_so(copy: Path) -> None:
    shutil.rmtree(copy / "plain" / "fedavg_s0")
    results = load_experiment(copy, partial=True)
    assert "Against FedAvg only seeds that both have: oort 1 of 2, fedrank 1 of 2" in as_text(results)


def test_every_number_of_the_csv_is_one(finished: Path) -> None:
    results = load_experiment(finished)
    table = pd.read_csv(io.StringIO(as_csv(results)))
    assert table["mean"].dtype == np.float64
    found = table[table["variant"] == "plain"].set_index(["method", "quantity"])["mean"]
    assert found["fedrank", "paper_accuracy"] == pytest.approx(0.9367)
    assert found["fedrank", "target"] == summarise(results)[0].target
    assert found["fedrank", "accuracy_minus_fedavg"] == pytest.approx(
        found["fedrank", "accuracy"] - found["fedavg", "accuracy"]
    )


def test_a_target_no_better_than_guessing_says_so(copy: Path) -> None:
    for seed in (0, 1):
        edit_table(
            copy / "plain" / f"fedavg_s{seed}", "rounds", lambda table: table.assign(test_accuracy=0.11)
        )
    assert "hardly better than guessing (10%)" in as_text(load_experiment(copy))


def test_a_folder_that_is_no_experiment(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="not a run of `joulefleet experiment`"):
        load_experiment(tmp_path)


def test_curves_hold_the_last_model_and_end_with_the_shortest_run(finished: Path) -> None:
    results = load_experiment(finished)
    runs = results.of(results.plan.variants[0])
    by_round = along(runs, "test_accuracy")
    assert by_round is not None
    assert by_round.x.tolist() == [1, 2, 3, 4]
    each = np.array([run.rounds["test_accuracy"] for run in runs["oort"].values()])
    assert by_round.methods["oort"].mean.tolist() == pytest.approx(each.mean(0).tolist())
    assert by_round.methods["oort"].low.tolist() == each.min(0).tolist()
    by_time = along(runs, "test_accuracy", CurveAxis.TIME)
    assert by_time is not None
    assert len(by_time.x) == GRID
    for method, curve in by_time.methods.items():
        tables = [run.rounds for run in runs[method].values()]
        ends_s = [table["time_s_honest"].sum() for table in tables]
        starts_s = [table["time_s_honest"].iloc[0] for table in tables]
        known = by_time.x[np.isfinite(curve.mean)]
        assert known.min() >= max(starts_s)
        assert known.max() <= min(ends_s)
    assert along(runs, "selector_td_loss") is not None
    assert along({"oort": runs["oort"]}, "selector_td_loss") is None
    assert "plain,fedrank,selector_td_loss,round," in curves_csv(results)


def test_the_energy_split_adds_up_to_what_was_spent(finished: Path) -> None:
    results = load_experiment(finished)
    for by_seed in results.of(results.plan.variants[0]).values():
        spent_j = np.mean([run.rounds["energy_j"].sum() for run in by_seed.values()])
        found = behaviour(by_seed)
        assert sum(found.energy_j.values()) == pytest.approx(spent_j)
        assert all(
            chosen_share(run).sum() == pytest.approx(3) for run in by_seed.values()
        )  # K in every round
    assert behaviour(results.of(results.plan.variants[0])["fedrank"]).energy_j["rejected work"] > 0
    assert behaviour(results.of(results.plan.variants[0])["fedavg"]).energy_j["rejected work"] == 0


def test_fairness_by_hand() -> None:
    assert (gini(np.ones(5)), jain(np.ones(5))) == (0.0, 1.0)
    assert gini(np.array([0.0, 0, 0, 8])) == pytest.approx(0.75)
    assert jain(np.array([0.0, 0, 0, 8])) == pytest.approx(0.25)
    assert gini(np.array([1.0, 3])) == pytest.approx(0.25)
    assert (gini(np.zeros(3)), jain(np.zeros(3))) == (0.0, 1.0)


def test_the_switches_follow_the_scenario() -> None:
    found = {switch.item: switch.setting for switch in switches_of(variant())}
    assert found["A3"] == "M = 6 of N = 12: a part of the fleet"
    assert found["A6"] == "reward.function = signed"
    assert found["A8"] == "rank_by = advantage"
    assert found["A9"] == "rank_target = credited"
    assert "honest enters the reward" in found["A4, A5"]


@pytest.fixture(scope="module")
def published(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "data"
    publish_experiment(load_experiment(finished), folder)
    return folder


def test_every_number_comes_out_again(finished: Path, published: Path) -> None:
    """But for what early exit saves: that needs the participants, who are not published."""
    whole = [line for line in as_csv(load_experiment(finished)).splitlines() if "vanilla" not in line]
    whole = [line for line in whole if "saved" not in line]
    assert as_csv(load_published(published)).splitlines() == whole


def test_data_are_never_overwritten(finished: Path, published: Path) -> None:
    with pytest.raises(StorageError, match="not overwritten"):
        publish_experiment(load_experiment(finished), published)


def test_data_that_are_not_whole_are_refused(published: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    cut.mkdir()
    for path in published.iterdir():
        (cut / path.name).write_bytes(path.read_bytes())
    pq.write_table(pq.read_table(cut / "rounds.parquet").slice(3), cut / "rounds.parquet")
    with pytest.raises(DataQualityError, match=r"\d+ rounds are stored, \d+ were played"):
        load_published(cut)
    (cut / "records.json").unlink()
    with pytest.raises(DataQualityError, match=r"has no records\.json"):
        load_published(cut)
