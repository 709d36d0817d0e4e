import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulator.round.outcome import Accounting
from harness.cli import run
from harness.evidence.capture import DeviceFacts
from harness.probing.formula import both_ways
from harness.probing.predict import predict_savings
from harness.profiles.library import build_run_profiles
from joulefleet.errors import ConfigError
from joulefleet.provenance import Origin
from joulefleet.runstore import RunStore
from power.profile.cost_arrays import PhaseCosts
from power.reference import reference_fleet
from tests.harness.profile_captures import one_round, write


def alike(m: int, *, comm_j: float = 0.0, comm_s: float = 0.0) -> PhaseCosts:
    """Candidates that need a second and a joule per epoch."""
    one, half = np.ones(m), np.full(m, 0.5)
    return PhaseCosts(
        download_s=comm_s * half, probe_s=one, epoch_s=one, upload_s=comm_s * half,
        download_j=comm_j * half, probe_j=one, epoch_j=one, upload_j=comm_j * half, wait_w=one,
    )  # fmt: skip


def first(m: int, k: int) -> np.ndarray:
    return np.arange(m) < k


def test_the_papers_energy_needs_one_and_a_half_candidates_per_place() -> None:
    """Item A3: (M + 4K) / 5M = 0.748 at M = 1.46 K, with transfers left out."""
    m, k = 146, 100
    found = both_ways(alike(m), first(m, k), 5)
    assert found.vanilla.energy_j == 5 * m
    honest = found.probing[Accounting.HONEST]
    assert honest.energy_j == m + 4 * k
    assert 1 - honest.energy_j / found.vanilla.energy_j == pytest.approx(0.252, abs=0.001)
    assert honest.time_s == found.vanilla.time_s == 5, "nobody is faster: early exit saves no time"


def test_the_accountings_by_hand() -> None:
    """Three candidates, the slow one is sent home; three epochs; numbers worked out on paper."""
    costs = PhaseCosts(
        download_s=np.array([1.0, 2.0, 3.0]), probe_s=np.array([4.0, 5.0, 9.0]),
        epoch_s=np.array([3.0, 4.0, 8.0]), upload_s=np.array([2.0, 1.0, 7.0]),
        download_j=np.array([0.1, 0.2, 0.3]), probe_j=np.array([4.0, 5.0, 9.0]),
        epoch_j=np.array([3.0, 4.0, 8.0]), upload_j=np.array([0.5, 0.6, 0.7]),
        wait_w=np.array([1.0, 1.0, 2.0]),
    )  # fmt: skip
    found = both_ways(costs, np.array([True, True, False]), 3)
    # Vanilla: the slow one is done after 3 + 9 + 16, then the chosen upload for 2.
    assert found.vanilla.time_s == 28 + 2
    assert found.vanilla.energy_j == pytest.approx(0.6 + 18 + 2 * 15 + 1.1)
    assert found.vanilla_wait_j == (28 - 11) + (28 - 15)
    # Probing: everyone has reported after 3 + 9; the chosen need max(6 + 2, 8 + 1) more.
    assert found.probing[Accounting.HONEST].time_s == 12 + 9
    assert found.probing[Accounting.HONEST].energy_j == pytest.approx(0.6 + 18 + 2 * 7 + 1.1)
    assert found.probing_wait_j == (12 - 5) + (12 - 7)
    # The paper: T_prob = max of all probes, E_prob of the chosen; then T_comm + (l_ep - 1) T_comp.
    assert found.probing[Accounting.SELECTED_ONLY].time_s == 9 + max(1 + 6 + 2, 2 + 8 + 1)
    assert found.probing[Accounting.SELECTED_ONLY].energy_j == pytest.approx(0.3 + 9 + 2 * 7 + 1.1)
    assert found.probing[Accounting.FREE].time_s == max(1 + 6 + 2, 2 + 8 + 1)
    assert found.probing[Accounting.FREE].energy_j == pytest.approx(0.3 + 2 * 7 + 1.1)


def test_everyone_chosen_saves_nothing() -> None:
    found = both_ways(alike(7, comm_j=3.0, comm_s=2.0), first(7, 7), 5)
    honest = found.probing[Accounting.HONEST]
    assert honest.energy_j == pytest.approx(found.vanilla.energy_j)
    assert honest.time_s == pytest.approx(found.vanilla.time_s)


def test_the_more_candidates_the_more_energy_is_saved() -> None:
    found = predict_savings(
        reference_fleet("mnist-lenet5"), candidates=(12, 20, 40), chosen=(10,), distinct=False
    )
    saved = [cell.savings[Accounting.HONEST].energy_saved.mean for cell in found.cells]
    assert saved == sorted(saved)
    assert found.origin is Origin.LITERATURE
    for cell in found.cells:
        shares = [cell.savings[a].energy_saved.mean for a in Accounting]
        assert shares == sorted(shares), "honest saves least, free most"
        for saving in cell.savings.values():
            assert saving.energy_saved.low < saving.energy_saved.mean < saving.energy_saved.high


def test_the_fastest_save_more_time_than_anyone() -> None:
    fleet = reference_fleet("mnist-lenet5")
    question = {"candidates": (30,), "chosen": (10,), "distinct": False}
    anyone = predict_savings(fleet, **question).cells[0]
    fastest = predict_savings(fleet, **question, rule="fastest").cells[0]
    honest = Accounting.HONEST
    assert fastest.savings[honest].time_saved.mean > anyone.savings[honest].time_saved.mean
    assert fastest.vanilla_s.mean == pytest.approx(anyone.vanilla_s.mean, rel=0.05)


def test_the_same_seed_gives_the_same_answer() -> None:
    fleet = reference_fleet("digits-softmax")
    question = {"candidates": (15,), "chosen": (10,), "distinct": False, "seed": 4}
    assert predict_savings(fleet, **question) == predict_savings(fleet, **question)


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"candidates": (100,), "chosen": (10,)}, "100 candidates, but profiles of 34 devices"),
        ({"candidates": (5,), "chosen": (10,)}, "no M with a K"),
    ],
)
def test_impossible_questions(question: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        predict_savings(reference_fleet("mnist-lenet5"), **question)


def test_different_work_is_not_one_round() -> None:
    mixed = [reference_fleet("mnist-lenet5")[0], reference_fleet("cifar10-resnet18")[0]]
    with pytest.raises(ConfigError, match="a round is one task"):
        predict_savings(mixed, candidates=(2,), chosen=(1,))
    with pytest.raises(ConfigError, match="no profiles"):
        predict_savings([], candidates=(2,), chosen=(1,))


def test_a_warm_probe_is_noted() -> None:
    profiles = list(reference_fleet("mnist-lenet5"))
    question = {"candidates": (4,), "chosen": (2,)}
    assert not [note for note in predict_savings(profiles, **question).notes if "warm-up" in note]
    profiles[0] = profiles[0].model_copy(update={"warmup_epochs": 1})
    (note,) = [note for note in predict_savings(profiles, **question).notes if "warm-up" in note]
    assert note.startswith(f"1 of {len(profiles)} profiles")


def test_a_device_takes_part_once() -> None:
    one = reference_fleet("mnist-lenet5")[0]
    other = one.model_copy(update={"backend": "another"})
    with pytest.raises(ConfigError, match="2 profiles of Xiaomi Redmi 5A, which can take part once only"):
        predict_savings([one, other], candidates=(2,), chosen=(1,))


def test_from_the_profiles_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two boards on a bench, one twice as slow; the fast one is kept."""
    with RunStore(tmp_path).create("bench", kind="bench") as made:
        for name, seconds in (("fast", 1.0), ("slow", 2.0)):
            for i in range(2):
                device = DeviceFacts(name=name, transport="ssh")
                stretches = one_round([seconds] * 5)
                write(made.subfolder("jobs") / f"{name}{i}", stretches, device=device, emulated=False)
    build_run_profiles(made.path)
    code = run(
        ["probing", "validate", made.path.name, "--choose", "fastest", "--energy", "gross",
         "--root", str(tmp_path), "--json"]
    )  # fmt: skip
    data = json.loads(capsys.readouterr().out)
    assert code == 0, data
    assert (data["origin"], data["profiles"], data["local_epochs"]) == ("scaled", 2, 5)
    (cell,) = data["cells"]
    assert (cell["candidates"], cell["chosen"]) == (2, 1), "all devices, and half of them"
    # Download 0.4 s at 1.5 W, upload 0.3 s at 2 W, training at 3 W.
    assert cell["vanilla_s"]["mean"] == pytest.approx(0.4 + 10 + 0.3, rel=1e-3)
    assert cell["vanilla_j"]["mean"] == pytest.approx(2 * 0.6 + 15 + 30 + 0.6, rel=5e-3)
    honest = cell["savings"]["honest"]
    assert honest["time_s"]["mean"] == pytest.approx(0.4 + 2 + 4 + 0.3, rel=1e-3)
    assert honest["energy_j"]["mean"] == pytest.approx(2 * 0.6 + 3 + 6 + 12 + 0.6, rel=5e-3)
    assert data["paper"]["energy_saved"] == 0.252
    assert "every candidate" in data["counted"]["honest"]


def test_the_table_says_what_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["probing", "validate", "reference", "--candidates", "15"]) == 0
    text = capsys.readouterr().out
    for expected in (
        "[literature]",
        "selected_only",
        "energy saved %",
        "37.4 s and 8.2 J",
        "in no other number",
    ):
        assert expected in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reference", "--candidates", "ten"], "'ten' is not a list of numbers"),
        (["reference", "--chosen", "0"], "at least one device"),
        (["reference", "--task", "nothing"], "no task 'nothing'"),
        (["no-such-run"], "no-such-run"),
        (["plan.toml"], "plan.toml: No such file"),
    ],
)
def test_bad_arguments(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["probing", "validate", *arguments, "--root", str(tmp_path), "--json"]) != 0
    assert message in json.loads(capsys.readouterr().out)["error"]["message"]


@pytest.mark.parametrize("wrong", [{"rule": "nosuch"}, {"energy": "nosuch"}], ids=str)
def test_a_rule_or_energy_that_does_not_exist_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="nosuch"):
        predict_savings(reference_fleet("mnist-lenet5"), candidates=[15], chosen=[10], **wrong)
