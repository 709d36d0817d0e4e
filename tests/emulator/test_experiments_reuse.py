"""Emulations of another experiment are taken over only where they are the same."""

import json
from pathlib import Path

import numpy as np
import pytest

from emulator.compare.load import find_emulations
from emulator.experiments import runner
from emulator.experiments.render import as_text
from emulator.experiments.results import load_experiment
from emulator.experiments.runner import TAKEN_FROM, check_donors, start, take_over
from emulator.runs.assembly import assemble
from emulator.runs.batch import play
from emulator.runs.emulation import emulate
from emulator.runs.result import EMULATION_FILE, EmulationRecord, load_result
from emulator.scenario.model import SelectorSection, TrainerSection
from emulator.selectors.neural.policy import any_policy, write_policy
from joulefleet.errors import ConfigError
from joulefleet.files import file_sha256
from joulefleet.records import read_record, write_record
from joulefleet.runstore import RunStore, read_table
from power.profile.model import save_profile
from tests.emulator.small_experiment import played, small_plan
from tests.emulator.stored_edits import edit_run, edit_table
from tests.emulator.worlds import profile


def test_what_another_run_holds_is_copied_and_the_rest_is_played(tmp_path: Path) -> None:
    donor = played(tmp_path, small_plan(seeds=(0, 1)))
    fresh = played(tmp_path / "fresh", small_plan(seeds=(1, 2)))
    plan = small_plan(seeds=(1, 2))
    with start(tmp_path, plan) as run:
        assert take_over(run, plan, [donor]).count == 4  # seed 1 of four methods
        assert take_over(run, plan, [donor]).count == 0  # they are there now
        play(run, plan)
    results = load_experiment(run.path)
    assert not results.missing
    for one in plan.planned:
        ours, theirs = (read_table(path / one.folder, "rounds").to_pandas() for path in (run.path, fresh))
        assert ours.equals(theirs)
        taken = load_result(run.path / one.folder).record.facts.get(TAKEN_FROM)
        assert (taken is not None) == (one.seed == 1)
    assert load_result(run.path / "plain/oort_s1").record.facts[TAKEN_FROM] == f"{donor.name}/plain/oort_s1"


def test_another_scenario_is_not_taken(tmp_path: Path) -> None:
    donor = played(tmp_path, small_plan(seeds=(0,)))
    plan = small_plan(seeds=(0,))
    shorter = plan.variants[0].scenario.protocol.model_copy(update={"rounds": 3})
    variants = [
        variant.model_copy(update={"scenario": variant.scenario.model_copy(update={"protocol": shorter})})
        for variant in plan.variants[:1]
    ]
    kept = tuple(one for one in plan.planned if one.variant == variants[0].name)
    plan = plan.model_copy(update={"variants": tuple(variants), "planned": kept})
    with start(tmp_path, plan) as run:
        assert take_over(run, plan, [donor]).count == 0
        play(run, plan)


@pytest.mark.parametrize("what", ["version", "torch", "numpy", "sources"])
def test_numbers_of_other_software_are_taken_only_if_that_is_accepted(tmp_path: Path, what: str) -> None:
    donor = played(tmp_path, small_plan(seeds=(0,)))
    host = json.loads((donor / "run.json").read_text())["host"]
    edit_run(donor, host={**host, what: "0.0.0"})
    plan = small_plan(seeds=(0,))
    with start(tmp_path, plan) as run:
        with pytest.raises(ConfigError, match=rf"other software.*: {what} 0\.0\.0, now ") as found:
            take_over(run, plan, [donor])
        assert "--accept-other-software" in found.value.hint
        taken = take_over(run, plan, [donor], accept_other_software=True)
        assert taken.count == len(plan.planned)
    text = as_text(load_experiment(run.path))
    assert f"results of other software are among these, accepted by who ran it: {donor.name}: {what}" in text
    # Whoever takes it from there has to accept it, too.
    with pytest.raises(ConfigError, match=f"other software.*{donor.name}: {what}"):
        check_donors([run.path])


def test_what_is_damaged_is_played_anew(tmp_path: Path) -> None:
    donor = played(tmp_path, small_plan(seeds=(0,)))
    plan = small_plan(seeds=(0,))
    edit_table(donor / "plain/oort_s0", "rounds", lambda table: table.assign(energy_j_free=np.nan))
    half = donor / "plain/fedrank_s0/clients.parquet"
    half.write_bytes(half.read_bytes()[:-200])
    with start(tmp_path, plan) as run:
        taken = take_over(run, plan, [donor])
        assert taken.count == len(plan.planned) - 2
        assert [("oort_s0" in text, "fedrank_s0" in text) for text in taken.damaged] == [
            (True, False),
            (False, True),
        ]
        play(run, plan)
    assert not load_experiment(run.path).missing


def test_a_copy_that_was_cut_short_is_made_again_or_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    donor = played(tmp_path, small_plan(seeds=(0,)))
    plan = small_plan(seeds=(0,))

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for again in (True, False):
        with start(tmp_path, plan) as run:
            with monkeypatch.context() as patched:
                patched.setattr(runner, "write_record", killed)
                with pytest.raises(KeyboardInterrupt):
                    take_over(run, plan, [donor])
            if again:
                assert take_over(run, plan, [donor]).count == len(plan.planned)
            play(run, plan)
        assert not load_experiment(run.path).missing
        assert len(find_emulations([run.path])) == len(plan.planned)


def test_other_policies_are_other_results(tmp_path: Path) -> None:
    """The same version of the package may come with policies that were trained anew."""
    donor = played(tmp_path, small_plan(seeds=(0,)))
    plan = small_plan(seeds=(0,))
    for one in plan.planned:
        path = donor / one.folder / EMULATION_FILE
        record = read_record(path, EmulationRecord)
        facts = {**record.facts, "policy_sha256": "0" * 64 if record.facts["policy_sha256"] else None}
        write_record(path, record.model_copy(update={"facts": facts}), replace=True)
    with start(tmp_path, plan) as run:
        assert take_over(run, plan, [donor]).count == 2  # of fedavg and oort, but neither of fedrank
        play(run, plan)


def test_another_policy_file_under_the_same_name_is_another_result(tmp_path: Path) -> None:
    path = tmp_path / "own.safetensors"
    write_policy(path, any_policy("fedrank"))
    section = SelectorSection(name="fedrank", options={"policy": str(path)})
    scenario = small_plan().variants[0].scenario.model_copy(update={"selector": section})
    unknown = EmulationRecord(scenario=scenario, seed=0, facts={"selector": "fedrank"})
    assert not runner._has_same_policy(unknown), "it does not say which file it was"
    record = unknown.model_copy(update={"facts": {"policy_sha256": file_sha256(path)}})
    assert runner._has_same_policy(record)
    path.unlink()
    assert not runner._has_same_policy(record)
    write_policy(path, any_policy("fedrank_from_oort"))
    assert not runner._has_same_policy(record)


def test_another_profile_file_under_the_same_name_is_another_result(tmp_path: Path) -> None:
    path = tmp_path / "phone.json"
    save_profile(profile(), path)
    base = small_plan().variants[0].scenario
    fleet = base.fleet.model_copy(update={"profiles": (str(path),)})
    task = base.task.model_copy(update={"name": "digits-softmax"})
    scenario = base.model_copy(update={"fleet": fleet, "task": task})
    facts = assemble(scenario, 0).facts
    record = EmulationRecord(scenario=scenario, seed=0, facts=facts)
    before = EmulationRecord(scenario=scenario, seed=0, facts={"profiles": facts["profiles"]})
    assert runner._has_same_profiles(record)
    path.unlink()
    assert not runner._has_same_profiles(record)
    save_profile(profile(20.0, 30.0), path)
    assert not runner._has_same_profiles(record)
    assert runner._has_same_profiles(before), "it was made before contents were noted"


def test_donors_with_other_profiles_are_not_taken(tmp_path: Path) -> None:
    donor = played(tmp_path, small_plan(seeds=(0,)))
    plan = small_plan(seeds=(0,))
    for one in plan.planned[:1]:
        path = donor / one.folder / EMULATION_FILE
        record = read_record(path, EmulationRecord)
        facts = {**record.facts, "profiles_sha256": "0" * 64}
        write_record(path, record.model_copy(update={"facts": facts}), replace=True)
    with start(tmp_path, plan) as run:
        assert take_over(run, plan, [donor]).count == len(plan.planned) - 1
        play(run, plan)


def test_a_run_goes_on_with_the_policy_file_it_was_begun_with(tmp_path: Path) -> None:
    path = tmp_path / "own.safetensors"
    write_policy(path, any_policy("fedrank"))
    section = SelectorSection(name="fedrank", options={"policy": str(path)})
    scenario = small_plan().variants[0].scenario.model_copy(update={"selector": section})
    with RunStore(tmp_path).create("own", kind="emulation", fingerprint=scenario.sha256()) as run:
        emulate(run, scenario, 0)
        path.unlink()
        write_policy(path, any_policy("fedrank_from_oort"))
        with pytest.raises(ConfigError, match="begun with other facts: policy_sha256"):
            emulate(run, scenario, 0)


def test_a_run_trained_otherwise_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a GPU, ``auto`` is another trainer, and the table would be refused after hours."""
    plan = small_plan(seeds=(0,))
    scenario = plan.variants[0].scenario
    record = EmulationRecord(
        scenario=scenario.model_copy(update={"trainer": TrainerSection(kind="auto")}),
        seed=0,
        facts={"selector": "oort", "trainer": "batched"},
    )
    monkeypatch.setattr(runner, "best_for", lambda _: "cpu")
    assert not runner._has_same_trainer(record)
    monkeypatch.setattr(runner, "best_for", lambda _: "batched")
    assert runner._has_same_trainer(record)
    assert runner._has_same_trainer(record.model_copy(update={"scenario": scenario}))  # it names its trainer
