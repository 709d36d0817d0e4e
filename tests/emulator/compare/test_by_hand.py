"""Comparisons by hand: every number of a small table, limits hit exactly, methods unlike each other."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from device_agents.workloads import Metric
from emulator.compare.metrics import RunMetrics, final_accuracy, participations, run_metrics
from emulator.compare.statistics import cliffs_delta, holm, interquartile_mean, permutation_p, smallest_p
from emulator.compare.table import MetricCell, compare, finishing_counts, finishing_warnings
from emulator.round.outcome import Accounting
from joulefleet.errors import DataQualityError

NAN = math.nan
T_2 = 4.302653  # Student's t, 0.975, two degrees of freedom


# Statistics


def test_smallest_p_values() -> None:
    assert smallest_p(5, 1) == 2 / 32
    assert smallest_p(14, 1) == 2 / 16_384
    assert smallest_p(15, 1) == 2 / 16_385
    assert smallest_p(20, 4) == 8 / 16_385
    assert smallest_p(2, 9) == 1.0


def test_permutations_of_few_pairs_by_hand() -> None:
    """Of 1, 2 and -1, six of eight sign changes sum up to 2 or more; a 0 has no sign to change."""
    assert permutation_p(np.array([1.0, 2.0])) == 0.5
    assert permutation_p(np.array([3.0])) == 1.0
    assert permutation_p(np.array([1.0, 2.0, -1.0])) == 0.75
    assert permutation_p(np.array([0.0, 1.0, 1.0, 1.0, 1.0, 1.0])) == 2 / 32
    assert permutation_p(np.array([NAN, 1.0, 2.0, 4.0])) == 0.25
    assert permutation_p(np.array([0.1, 0.2, -0.3, 0.0])) == 1.0
    # On paper a sum of 0, which no sign change can beat; in floating point some would.
    assert permutation_p(np.array([-0.7, 0.4, 0.3, 0.1, -0.7, 0.6])) == 1.0


def test_beyond_fourteen_pairs_signs_are_drawn() -> None:
    """16,384 of them: of 15 differences of one sign, the smallest p there can be; the same every time."""
    assert permutation_p(np.arange(1.0, 15.0)) == 2 / 2**14
    drawn = permutation_p(np.arange(1.0, 40.0))
    assert drawn == 2 / 16_385
    values = np.random.default_rng(3).normal(0.2, 1.0, 20)
    assert permutation_p(values) == permutation_p(values)


def test_holm_is_never_more_than_one_nor_less_than_before() -> None:
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([0.3, 0.001, 0.3]) == pytest.approx([0.6, 0.003, 0.6])
    assert holm([0.2]) == [0.2]


def test_cliffs_delta_counts_pairs() -> None:
    assert cliffs_delta(np.array([1.0, 3.0, 3.0]), np.array([2.0])) == pytest.approx(1 / 3)
    assert cliffs_delta(np.array([1.0, 2.0]), np.array([2.0, 4.0])) == -0.75
    assert math.isnan(cliffs_delta(np.array([]), np.array([1.0])))
    assert math.isnan(cliffs_delta(np.array([1.0]), np.array([])))


def test_interquartile_means() -> None:
    """Of five values a quarter is 1.25: three quarters of the second and of the fourth count."""
    assert interquartile_mean(np.array([100.0, 1.0, 3.0, 2.0, 4.0])) == pytest.approx(
        (0.75 * 2 + 3 + 0.75 * 4) / 2.5
    )
    assert interquartile_mean(np.array([7.0])) == 7.0
    assert interquartile_mean(np.array([1.0, 2.0])) == 1.5
    assert math.isnan(interquartile_mean(np.array([])))


# Metrics of a run


def rounds(accuracy: list[float], **columns: object) -> pd.DataFrame:
    """Round 0 is profiling. Times 1, 2, 4 ..., energies 10, 30, 90 ...; the rows are not in order."""
    n = len(accuracy)
    table = pd.DataFrame(
        {
            "round": np.arange(n),
            "test_accuracy": accuracy,
            "time_s_honest": 2.0 ** np.arange(n),
            "energy_j_honest": 10 * 3.0 ** np.arange(n),
            **columns,
        }
    )
    return table.iloc[::-1]


def test_every_metric_of_a_run_by_hand() -> None:
    clock = {"start_ns": 100 * 10**9 * np.arange(5), "duration_ns": 10**9 * 2 ** np.arange(5)}
    found = run_metrics(rounds([0.95, 0.5, 0.8, 0.9, NAN], **clock), 0.8, Accounting.HONEST)
    assert found == RunMetrics(
        calendar_to_target_s=pytest.approx(204),
        calendar_s=pytest.approx(416),
        accuracy=pytest.approx((0.5 + 0.8 + 0.9) / 3),
        best_accuracy=0.9,
        time_to_target_s=1 + 2 + 4,
        energy_to_target_j=10 + 30 + 90,
        rounds_to_target=2,
        reached=True,
        time_s=31,
        energy_j=10 * 121,
        round_time_s=31 / 4,
        round_energy_j=10 * 121 / 4,
        classes_per_cohort=found.classes_per_cohort,
        accuracy_within_energy=found.accuracy_within_energy,
        accuracy_within_time=found.accuracy_within_time,
    )
    assert math.isnan(found.classes_per_cohort)
    assert math.isnan(found.accuracy_within_energy)
    assert math.isnan(found.accuracy_within_time)
    assert (found.unknown, found.asked, found.finished) == (0, 0, 0)
    assert math.isnan(found.finished_share)


def test_a_target_that_is_not_reached_and_a_run_that_was_never_tested() -> None:
    missed = run_metrics(rounds([0.95, 0.5, 0.7]), 0.8, Accounting.HONEST)
    assert (missed.reached, missed.rounds_to_target, missed.time_to_target_s) == (False, 2, 7)
    assert missed.energy_to_target_j == 130
    untested = run_metrics(rounds([0.95, NAN]), 0.8, Accounting.HONEST)
    assert math.isnan(untested.accuracy)
    assert math.isnan(untested.best_accuracy)
    profiled = run_metrics(rounds([0.95]), 0.8, Accounting.HONEST)
    assert (profiled.reached, profiled.round_time_s, profiled.round_energy_j) == (False, 1, 10)
    assert math.isnan(profiled.accuracy)


def test_the_last_ten_tested_rounds_in_the_order_of_rounds() -> None:
    """Rounds 1 to 12: the first two do not count, though their rows come last."""
    assert final_accuracy(rounds([0.0, 1.0, 1.0, *[0.25, 0.75] * 5])) == 0.5


def test_costs_that_are_not_known_are_lower_bounds() -> None:
    known = {"known_time_s_honest": [1.0, 2.0, 3.0], "known_energy_j_honest": [10.0, 20.0, 30.0]}
    table = rounds([NAN, 0.5, 0.7], **known, n_unknown=[7, 5, 3]).sort_values("round")
    table["energy_j_honest"] = [10.0, NAN, 90.0]
    table["time_s_honest"] = [1.0, 2.0, NAN]
    found = run_metrics(table, 0.6, Accounting.HONEST)
    assert (found.energy_j, found.time_s, found.unknown) == (10 + 20 + 90, 1 + 2 + 3, 8)
    bare = run_metrics(table.drop(columns=list(known)), 0.6, Accounting.HONEST)
    assert math.isnan(bare.energy_j)
    assert run_metrics(rounds([NAN, 0.7], n_unknown=[7, 5]), 0.6, Accounting.HONEST).unknown == 0


def test_who_was_asked_and_who_finished() -> None:
    """Not in round 0; who was rejected, profiled or surplus was not asked."""
    fates = {
        "n_finished": [100, 3, 4], "n_rejected": [100, 5, 6], "n_profiled": [100, 0, 1],
        "n_surplus": [100, 2, 2], "n_left": [100, 1, 0],
        "n_battery": [100, 0, 2], "n_deadline": [100, 3, 0], "n_diverged": [100, 0, 1],
    }  # fmt: skip
    found = participations(rounds([NAN, 0.5, 0.6], **fates))
    assert found == {"asked": 7 + 1 + 2 + 3 + 1, "finished": 7}
    del fates["n_finished"]
    assert participations(rounds([NAN, 0.5, 0.6], **fates)) == {"asked": 7, "finished": 0}


ERROR, OWN = Metric("mae", higher_is_better=False), Metric("score")


def test_of_an_error_less_is_better() -> None:
    table = rounds([0.1, 5.0, 2.0, 3.0, NAN])
    found = run_metrics(table, 2.0, Accounting.HONEST, ERROR)
    assert (found.reached, found.rounds_to_target, found.best_accuracy) == (True, 2, 2.0)
    assert not run_metrics(table, 1.9, Accounting.HONEST, ERROR).reached
    more = run_metrics(table, 3.0, Accounting.HONEST, OWN)
    assert (more.rounds_to_target, more.best_accuracy) == (1, 5.0)


# Tables


def run(accuracy: float, cost: float, *, reached: bool = True, **changes: object) -> RunMetrics:
    made = RunMetrics(
        accuracy,
        accuracy,
        2 * cost,
        3 * cost,
        4.0,
        reached,
        5 * cost,
        6 * cost,
        cost,
        7 * cost,
        asked=10,
        finished=10,
    )
    return replace(made, **changes)


def three_methods() -> dict[str, dict[int, RunMetrics]]:
    return {
        "base": {1: run(0.5, 10.0), 2: run(0.6, 20.0), 3: run(0.7, 30.0), 9: run(0.9, 60.0)},
        "other": {3: run(0.6, 36.0), 1: run(0.6, 14.0), 2: run(0.8, 19.0)},
        "third": {1: run(0.4, 10.0), 2: run(0.4, 20.0), 3: run(0.4, 30.0)},
    }


def test_a_cell_by_hand() -> None:
    """Paired on seeds 1 to 3, whatever their order: +4, -1 and +6 s; the mean of base has four seeds."""
    table = compare(three_methods(), ["base"], ["known"])
    assert (table.seeds, table.references) == ((1, 2, 3), ("base",))
    base, other = table.cells["base"]["round_time_s"], table.cells["other"]["round_time_s"]
    assert (base.seeds, base.value.mean, base.middle) == (4, 30.0, 25.0)
    assert (base.contrasts, base.reached, base.unknown) == ((), None, 0)
    assert (other.seeds, other.value.mean, other.rank) == (3, 23.0, pytest.approx((3 + 1 + 3) / 3))
    assert base.rank == pytest.approx((1.5 + 2.5 + 1.5) / 3)
    sd = math.sqrt((13**2 + 9**2 + 4**2) / 2)
    assert other.value.high == pytest.approx(23 * math.exp(T_2 * sd / math.sqrt(3) / 23), rel=1e-6)
    (contrast,) = other.contrasts
    assert (contrast.reference, contrast.tests) == ("base", 2)
    assert contrast.difference.mean == 3.0
    half_width = T_2 * math.sqrt((1 + 16 + 9) / 2) / math.sqrt(3)
    assert contrast.difference.low == pytest.approx(3.0 - half_width, rel=1e-6)
    assert contrast.ratio == pytest.approx(69 / 60)
    assert contrast.p == 0.5  # sums of 4, 1 and 6: 9 or more in absolute value are four of eight
    assert contrast.p_holm == 1.0
    assert contrast.delta == pytest.approx((5 - 4) / 9)
    third = table.cells["third"]["round_time_s"].contrasts[0]
    assert (third.p, third.ratio, third.difference.mean, third.delta) == (1.0, 1.0, 0.0, 0.0)
    assert table.warnings[0] == "known"


def test_higher_is_better_for_accuracies_and_differences_stay_within_one() -> None:
    table = compare(three_methods(), ["base"])
    ranks = {m: cells["accuracy"].rank for m, cells in table.cells.items()}
    assert ranks == pytest.approx({"base": (2 + 2 + 1) / 3, "other": (1 + 1 + 2) / 3, "third": 3.0})
    wide = {
        "a": {s: run(v, 1.0) for s, v in enumerate((0.05, 0.9, 0.9))},
        "b": {s: run(0.4, 1.0) for s in range(3)},
    }
    difference = compare(wide, ["b"]).cells["a"]["accuracy"].contrasts[0].difference
    assert difference.mean == pytest.approx(1.85 / 3 - 0.4)
    assert (difference.low, difference.high) == (-1.0, 1.0)  # and not -1.002 and 1.436
    narrow = compare(three_methods(), ["base"]).cells["other"]["accuracy"].contrasts[0].difference
    half_width = T_2 * math.sqrt((0.1**2 + 0.2**2 + 0.1**2 - 3 * (0.2 / 3) ** 2) / 2) / math.sqrt(3)
    assert (narrow.mean, narrow.low) == pytest.approx((0.2 / 3, 0.2 / 3 - half_width), rel=1e-5)
    time = compare(three_methods(), ["base"]).cells["other"]["time_s"].contrasts[0].difference
    assert time.high > 1.0


def test_what_a_task_is_judged_by_decides_ranks_and_scales() -> None:
    """Errors of 5, 6 and 7 against 6, 8 and 6: less is better, and no end of an interval is below 0."""
    runs = {m: {s: replace(one, accuracy=10 * one.accuracy) for s, one in by_seed.items()}
            for m, by_seed in three_methods().items()}  # fmt: skip
    table = compare(runs, ["base"], judged_by=ERROR)
    assert table.judged_by is ERROR
    ranks = {m: cells["accuracy"].rank for m, cells in table.cells.items()}
    assert ranks == pytest.approx({"base": (2 + 2 + 3) / 3, "other": (3 + 3 + 2) / 3, "third": 1.0})
    mean, half_width = 20 / 3, T_2 * math.sqrt(4 / 3) / math.sqrt(3)
    other = table.cells["other"]["accuracy"]
    assert other.value.high == pytest.approx(mean * math.exp(half_width / mean), rel=1e-5)
    assert other.contrasts[0].difference.high > 1.0
    linear = compare(runs, ["base"], judged_by=OWN).cells["other"]["accuracy"]
    assert linear.value.high == pytest.approx(mean + half_width, rel=1e-5)
    assert linear.rank == pytest.approx((1 + 1 + 2) / 3)
    cohorts = {m: {s: replace(one, classes_per_cohort=one.accuracy) for s, one in by_seed.items()}
               for m, by_seed in runs.items()}  # fmt: skip
    counted = compare(cohorts, ["base"], judged_by=ERROR).cells["third"]["classes_per_cohort"]
    assert counted.rank == 3.0


def test_named_pairs_have_tests_of_their_own() -> None:
    pairs = [("other", "third"), ("third", "base"), ("other", "third")]
    table = compare(three_methods(), [], pairs=pairs)
    found = table.pairs["accuracy"]
    assert list(found) == [("other", "third"), ("third", "base")]
    assert {one.tests for one in found.values()} == {2}
    assert [one.p for one in found.values()] == [0.25, 0.25]
    assert [one.p_holm for one in found.values()] == [0.5, 0.5]
    assert found["third", "base"].difference.mean == pytest.approx(-0.2)
    assert found["third", "base"].ratio == pytest.approx(1.2 / 1.8)
    assert compare(three_methods(), ["nobody"]).references == ()
    with pytest.raises(DataQualityError, match="no run of 'nobody'"):
        compare(three_methods(), [], pairs=[("other", "nobody")])


def test_a_missed_target_has_a_median_and_a_test_of_ranks() -> None:
    """Places of 20 s, missed, 30 s and 80 s: 1, 4, 2 and 3. Medians: 20 s and 30 s."""
    runs = {
        "a": {1: run(0.5, 10.0), 2: run(0.5, 10.0, reached=False)},
        "b": {1: run(0.5, 15.0), 2: run(0.5, 40.0)},
    }
    table = compare(runs, ["b"])
    cell = table.cells["a"]["time_to_target_s"]
    assert (cell.reached, cell.seeds, cell.value.mean, cell.rank) == (1, 2, 20.0, 1.5)
    assert not cell.value.known
    assert not cell.value.values
    assert cell.contrasts[0].difference.mean == -10.0
    assert (cell.contrasts[0].p, cell.contrasts[0].delta) == (1.0, 0.0)
    assert math.isnan(cell.middle)
    assert table.cells["b"]["time_to_target_s"].rank == 1.5
    assert table.cells["b"]["time_to_target_s"].reached == 2
    assert table.cells["a"]["time_s"].reached is None
    assert table.cells["a"]["time_s"].contrasts[0].difference.values == (-25.0, -150.0)


def cell_of(runs: dict[str, dict[int, RunMetrics]], metric: str, method: str = "a") -> MetricCell:
    return compare(runs, ["b"]).cells[method][metric]


@pytest.mark.parametrize("changes", [{"unknown": 1}, {"finished": 0}])
def test_costs_that_are_not_known_or_of_no_work_are_compared_with_nothing(changes: dict[str, int]) -> None:
    """One seed of two is enough; accuracies and rounds are compared all the same."""
    runs = {
        "a": {1: run(0.5, 10.0), 2: run(0.5, 10.0, **changes)},
        "b": {1: run(0.6, 15.0), 2: run(0.6, 40.0)},
        "c": {1: run(0.4, 16.0), 2: run(0.4, 30.0)},
    }
    for metric in ("time_s", "energy_to_target_j"):
        cell = cell_of(runs, metric)
        assert math.isnan(cell.rank)
        assert math.isnan(cell.contrasts[0].difference.mean)
        assert math.isnan(cell.contrasts[0].ratio)
        assert cell.contrasts[0].p == 1.0
        assert cell.unknown == changes.get("unknown", 0)
        assert (cell_of(runs, metric, "b").rank, cell_of(runs, metric, "c").rank) == (1.5, 1.5)
    for metric, rank in (("accuracy", 2.0), ("rounds_to_target", 2.0)):
        assert (cell_of(runs, metric).rank, cell_of(runs, metric).unknown) == (rank, 0)
    everybody = {m: {s: replace(one, **changes) for s, one in by_seed.items()} for m, by_seed in runs.items()}
    assert math.isnan(cell_of(everybody, "time_s", "b").rank)


def test_what_is_not_known_is_ranked_last_and_left_out_of_means() -> None:
    runs = {
        "a": {1: run(0.5, 10.0), 2: run(NAN, 10.0)},
        "b": {1: run(0.4, 15.0), 2: run(0.1, 40.0)},
    }
    cell = cell_of(runs, "accuracy")
    assert (cell.seeds, cell.value.mean, cell.rank) == (1, 0.5, 1.5)
    assert cell.contrasts[0].difference.values == pytest.approx((0.1,))
    assert cell.contrasts[0].ratio == pytest.approx(0.5 / 0.4)
    runs["a"] = {s: replace(one, time_s=NAN) for s, one in runs["a"].items()}
    assert (cell_of(runs, "time_s").rank, cell_of(runs, "time_s", "b").rank) == (2.0, 1.0)
    runs["b"] = {s: replace(one, energy_j=0.0) for s, one in runs["b"].items()}
    assert math.isnan(cell_of(runs, "energy_j").contrasts[0].ratio)  # nothing is no part of nothing


def warnings(runs: dict[str, dict[int, RunMetrics]]) -> list[str]:
    return list(compare(runs, []).warnings)


def test_what_a_reader_is_warned_of() -> None:
    five = {"a": {s: run(0.5, 1.0) for s in range(5)}, "b": {s: run(0.5, 1.0) for s in range(5)}}
    assert warnings(five) == []
    four = {m: {s: by_seed[s] for s in range(4)} for m, by_seed in five.items()}
    assert [w.partition(":")[0] for w in warnings(four)] == ["4 paired seeds"]
    one = {m: {0: by_seed[0]} for m, by_seed in five.items()}
    assert [w.partition(":")[0] for w in warnings(one)] == ["1 paired seed"]
    uneven = {**five, "c": {s: run(0.5, 1.0) for s in range(6)}, "d": {s: run(0.5, 1.0) for s in range(7)}}
    assert [w.rpartition(": ")[2] for w in warnings(uneven)] == ["c, d"]


def test_what_a_reader_is_warned_of_in_single_runs() -> None:
    runs = {m: {s: run(0.5, 1.0) for s in range(5)} for m in "abcd"}
    runs["b"] |= {2: run(0.5, 1.0, reached=False), 3: run(0.5, 1.0, reached=False), 4: run(NAN, 1.0)}
    runs["c"] |= {2: run(0.5, 1.0, unknown=1)}
    runs["d"] |= {2: run(0.5, 1.0, unknown=2), 4: run(0.5, 1.0, unknown=3)}
    told = warnings(runs)
    assert len(told) == 4
    assert told[0].startswith("b: the target was not reached in 2 of 5 runs")
    assert told[1] == "b: some runs have no accuracy at all"
    assert told[2].startswith("c: of 1 participation not every")
    assert told[3].startswith("d: of 5 participations not every")


def test_whoever_finished_less_is_named() -> None:
    """Below a half; or below the best by more than a tenth."""

    def named(**counts: tuple[int, int]) -> list[str]:
        return [told.partition(":")[0] for told in finishing_warnings(counts)]

    assert named(a=(9, 10), b=(10, 10)) == []
    assert named(a=(89, 100), b=(100, 100), c=(88, 100)) == ["a", "c"]
    assert named(a=(5, 10), b=(5, 10)) == []
    assert named(a=(49, 100), b=(50, 100)) == ["a"]
    assert named(a=(0, 0), b=(0, 0)) == []
    (told,) = finishing_warnings({"a": (1234, 5000), "b": (0, 0)})
    assert "only 1,234 of 5,000 participations finished (25%)" in told


def test_shares_that_finished_are_of_all_runs_together() -> None:
    runs = {
        "a": {1: run(0.5, 1.0, asked=30, finished=3), 2: run(0.5, 1.0, asked=10, finished=7)},
        "b": {1: run(0.5, 1.0, asked=0, finished=0), 2: run(0.5, 1.0, asked=0, finished=0)},
    }
    assert finishing_counts(runs) == {"a": (10, 40), "b": (0, 0)}
    finished = compare(runs, []).finished
    assert finished["a"] == 0.25
    assert math.isnan(finished["b"])
    assert runs["a"][1].finished_share == 0.1
