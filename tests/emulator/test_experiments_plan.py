"""What the experiments would run, without running it."""

import pytest

from emulator.experiments.catalogue import EXPERIMENTS, plan_experiment
from emulator.experiments.designs.sizes import changed, full, smoke
from emulator.experiments.effort import client_epochs, effort_of
from emulator.experiments.paper import paper_table
from emulator.experiments.plan import Preset, Variant, VariantPlan, make_plan
from emulator.runs.assembly import assemble, make_selector
from joulefleet.errors import ConfigError
from tests.emulator.small_experiment import variant

NAMES = (
    *("ablation", "aggregation", "budget", "generalisation", "interference", "probing", "sensitivity"),
    *("table1", "toa-eoa", "volatility"),
)


def test_all_experiments_of_the_paper_are_there() -> None:
    assert tuple(EXPERIMENTS.entries()) == NAMES


@pytest.mark.parametrize("preset", list(Preset))
@pytest.mark.parametrize("name", NAMES)
def test_every_method_can_be_made_and_has_fedavg_beside_it(name: str, preset: Preset) -> None:
    plan = plan_experiment(name, preset)
    for one in {one.method: one for one in plan.planned}.values():
        make_selector(plan.scenario_of(one))
    with_fedavg = {one.variant for one in plan.planned if one.selector == "fedavg"}
    assert all((one.baseline or one.name) in with_fedavg for one in plan.variants)


def is_full_size(one: Variant) -> bool:
    scenario = one.scenario
    protocol, task = scenario.protocol, scenario.task
    sizes = (scenario.fleet.devices, protocol.k, protocol.rounds, protocol.local_epochs)
    return (
        sizes == (100, 10, 50, 5)
        and not {"samples_per_client"} & set(task.options)
        and not task.server_samples
        and not task.train_samples
    )


@pytest.mark.parametrize("preset", list(Preset))
@pytest.mark.parametrize("name", NAMES)
def test_what_is_smaller_than_in_the_paper_says_so(name: str, preset: Preset) -> None:
    for one in plan_experiment(name, preset).variants:
        is_task_of_the_paper = one.scenario.task.name != "digits-mlp"
        assert (is_full_size(one) and is_task_of_the_paper) == (not one.reductions), one.name


def test_a_longer_horizon_has_a_name_of_its_own() -> None:
    """Or its runs and numbers could be taken for those of the usual one."""
    (longer,) = [
        o for o in plan_experiment("ablation", Preset.LAPTOP).variants if o.scenario.protocol.rounds > 50
    ]
    usual = plan_experiment("generalisation", Preset.LAPTOP).variants[1]
    assert (usual.name, longer.name) == ("digits-dir-client", "digits-dir-client-200")
    assert longer.scenario.name == longer.name
    assert longer.title == f"{usual.title}, 200 rounds"
    assert longer.reductions == (*usual.reductions, "200 rounds instead of the paper's 50")


def test_every_variant_says_how_many_are_candidates_and_where_it_stands() -> None:
    told = {one.name: one.unlike_the_paper for one in plan_experiment("sensitivity", Preset.PAPER).variants}
    thirty = "at most M = 30 of N = 100 devices are candidates, in the paper's text all"
    assert told["mnist-lenet5-dir-client"] == thirty
    assert told["alpha-5"] == f"{thirty}; alpha = 5"
    assert told["candidates-15"].startswith("at most M = 15 of N = 100")
    assert told["candidates-100"].startswith("nothing; the paper's N, K, M")


def test_table1_has_both_readings_of_the_dirichlet_split_by_name() -> None:
    for preset in Preset:
        partitions = [one.scenario.task.partition for one in plan_experiment("table1", preset).variants]
        assert set(partitions) == {"iid", "dir_client", "dir_class"}
    titles = [one.title for one in plan_experiment("table1", Preset.LAPTOP).variants]
    assert "(dir_client)" in titles[1]
    assert "(dir_class)" in titles[2]


def test_the_laptop_has_five_seeds_for_the_main_methods_and_three_for_the_rest() -> None:
    planned = plan_experiment("table1", Preset.LAPTOP).planned
    counts = {one.selector: 0 for one in planned}
    for one in planned:
        counts[one.selector] += one.variant == "mnist-lenet5-iid"
    main = {"fedavg", "oort", "fedmarl", "fedrank", "fedrank_plus", "no_probe"}
    assert {name for name, count in counts.items() if count == 5} == main
    assert {count for name, count in counts.items() if name not in main} == {3}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("preset", Preset)
def test_fedrank_is_never_shown_without_its_control(name: str, preset: Preset) -> None:
    planned = plan_experiment(name, preset).planned
    by_variant = {
        one.variant: {other.selector for other in planned if other.variant == one.variant} for one in planned
    }
    baselines = {one.name: one.baseline or one.name for one in plan_experiment(name, preset).variants}
    for where, methods in by_variant.items():
        if "fedrank" in methods:
            assert "no_probe" in methods | by_variant[baselines[where]]


def test_seeds_and_variants_can_be_chosen() -> None:
    plan = plan_experiment("sensitivity", Preset.SMOKE, seeds=[4], only=["alpha-0"])
    # FedAvg sees no reward; its runs on the base serve here, so the base comes along.
    assert [one.folder for one in plan.planned] == [
        "smoke-dir-client/fedavg_s4", "smoke-dir-client/no_probe_s4", "smoke-dir-client/fedrank_s4",
        "alpha-0/fedrank_s4",
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="has no variant 'beta-9'"):
        plan_experiment("sensitivity", Preset.SMOKE, only=["beta-9"])
    with pytest.raises(ConfigError, match="no experiment called 'tabel1'"):
        plan_experiment("tabel1", Preset.SMOKE)


def test_a_method_with_options_is_one_of_its_own_and_seeds_are_played_in_turn() -> None:
    """Cut short after any seed, a plan has played the same seeds of all methods."""
    plan = make_plan(
        "small", Preset.SMOKE, "?", [VariantPlan(variant(), ("fedavg", "oort:penalty=0"), (3, 4))]
    )
    assert [one.folder for one in plan.planned] == [
        "plain/fedavg_s3", "plain/oort_penalty-0_s3", "plain/fedavg_s4", "plain/oort_penalty-0_s4",
    ]  # fmt: skip
    oort = plan.planned[1]
    assert oort.method == "oort (penalty=0)"
    assert plan.scenario_of(oort).selector.options == {"penalty": 0}
    assert plan.scenario_of(plan.planned[0]).selector.options == {}


def test_a_baseline_from_another_world_is_refused() -> None:
    other = variant("other", baseline="plain")
    other = other.model_copy(update={"scenario": changed(other.scenario, {"protocol.k": 2})})
    with pytest.raises(ValueError, match="differs from its baseline plain in what FedAvg depends on"):
        make_plan(
            "small",
            Preset.SMOKE,
            "?",
            [VariantPlan(variant(), ("fedavg",), (0,)), VariantPlan(other, ("oort",), (0,))],
        )


def test_client_epochs_by_hand() -> None:
    scenario = full("mnist-lenet5", "iid").scenario
    assert client_epochs(scenario, "fedavg") == 50 * 10 * 5
    assert client_epochs(scenario, "fedrank") == 50 * (30 + 10 * 4)
    assert client_epochs(scenario, "tifl") == 50 * 10 * 5 + 100
    assert client_epochs(scenario, "power_of_choice") == pytest.approx(50 * (10 * 5 + 30 / 3))


def test_times_are_given_only_where_speeds_were_measured() -> None:
    assert effort_of(plan_experiment("table1", Preset.PAPER)).two_cores_s is None
    for name in NAMES:
        evening_s = effort_of(plan_experiment(name, Preset.LAPTOP)).two_cores_s
        assert evening_s is not None
        assert evening_s < 4 * 3600
        smoke_s = effort_of(plan_experiment(name, Preset.SMOKE)).two_cores_s
        assert smoke_s is not None
        assert smoke_s < 90


def test_the_papers_numbers_are_carried_along() -> None:
    table = paper_table()
    assert len(table) == 2 * 8 * 4
    assert table["noniid", "mnist-lenet5", "fedrank"].accuracy_text == "93.67 %"
    assert table["noniid", "mnist-lenet5", "fedrank"].energy_percent == 47.4
    assert table["iid", "mnist-lenet5", "fedrank"].accuracy_text == "99 % in round 32"
    assert table["iid", "cinic10-vgg16", "fedrank"].speed == 2.01
    tasks = {one.paper_task for one in plan_experiment("table1", Preset.PAPER).variants}
    assert tasks == {task for _, task, _ in table}


def test_budgets_can_be_scaled_as_a_whole() -> None:
    scenario = variant().scenario
    found = []
    for scale in (1.0, 0.5):
        assembly = assemble(changed(scenario, {"reward.budget_scale": scale}), 0)
        assembly.engine.trainer.close()
        found.append(assembly.facts["budgets"])
    assert found[1] == {name: pytest.approx(value / 2) for name, value in found[0].items()}


def test_the_servers_splits_can_be_cut() -> None:
    scenario = changed(smoke("iid").scenario, {"task.server_samples": 40})
    assembly = assemble(scenario, 0)
    try:
        assert (assembly.engine.test().accuracy * 40) % 1 == pytest.approx(0)
        assert (assembly.engine.score.accuracy * 40) % 1 == pytest.approx(0)
    finally:
        assembly.engine.trainer.close()
    whole = assemble(smoke("iid").scenario, 0)
    whole.engine.trainer.close()
    assert assembly.facts["partition"] == whole.facts["partition"]  # the devices keep what they had
    assert assembly.facts["data"]["sha256"] != whole.facts["data"]["sha256"]


def test_the_training_samples_can_be_cut_for_every_partition() -> None:
    for split in ("iid", "dir-client", "dir-class"):
        changes = {"task.train_samples": 600, "task.options": {}}
        assembly = assemble(changed(smoke(split).scenario, changes), 0)
        assembly.engine.trainer.close()
        assert assembly.facts["partition"]["samples"] == 600


@pytest.mark.parametrize("key", ["train_samples", "server_samples"])
def test_more_samples_than_there_are_is_an_error(key: str) -> None:
    with pytest.raises(ConfigError, match=f"task.{key} = 9999"):
        assemble(changed(smoke("iid").scenario, {f"task.{key}": 9999}), 0)
