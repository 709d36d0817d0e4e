"""Rounds with known seconds and joules, predicted from profiles with known seconds and joules."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulator.round.outcome import Accounting
from harness.cli import run as joulefleet
from harness.cli.probing.fidelity import _count
from harness.probing.expected import Expectation, RunRound
from harness.probing.fidelity import measure_fidelity
from harness.probing.fidelity_model import Distribution
from harness.probing.replay import emulate_rounds
from harness.profiles.build import build_profile
from harness.profiles.library import store
from harness.rounds.record import PartRecord
from joulefleet.errors import ConfigError, DataQualityError
from joulefleet.runstore import RunStore
from power.profile.model import DeviceProfile, Quantity
from tests.harness.federate.stored_federation import StoredFederation, captures, stopped
from tests.harness.profile_captures import load, one_round


@pytest.fixture
def profiles(tmp_path: Path) -> list[DeviceProfile]:
    """A device with epochs of 1 s, half as fast under half a load; one with epochs of 2 s."""
    levels = {load(0.25): 1.5, load(0.5): 2.0}
    return [
        build_profile(captures(tmp_path / "earlier", "a", 1.0, levels)),
        build_profile(captures(tmp_path / "earlier", "b", 2.0, {})),
    ]


@pytest.fixture
def federation(tmp_path: Path) -> StoredFederation:
    return StoredFederation(tmp_path / "runs")


def test_what_went_as_profiled_is_predicted(
    federation: StoredFederation, profiles: list[DeviceProfile]
) -> None:
    parts = [
        federation.part(1, "a", one_round([1.0] * 3)),
        federation.part(1, "b", stopped(2.0), chosen=False),
    ]
    federation.add(1, parts)
    found = measure_fidelity(federation.path, profiles, energy="gross")
    assert (found.origin.value, found.predicted_origin.value) == ("emulated", "emulated")
    for one in found.compared:
        assert one.error_s == pytest.approx(0.0, abs=2e-3), one
        assert one.error_j == pytest.approx(0.0, abs=0.01), one
    phases = {(one.device, one.what) for one in found.compared}
    assert {("a", w) for w in ("download", "probe", "train", "upload", "device")} < phases
    assert {("b", w) for w in ("download", "probe", "device")} < phases
    assert ("b", "train") not in phases, "what was not done is not predicted"
    (whole,) = found.select("round")
    # Both are probed after 0.4 + 2 s, then the chosen one needs 2 s and 0.3 s.
    assert whole.measured_s == pytest.approx(4.7, rel=1e-3)
    assert whole.predicted_s == pytest.approx(4.7, rel=1e-3)
    assert (whole.idle, whole.contended) == (None, None), "nothing was read from the host"
    assert not found.select("round", contended=False), "so it is not said to have been calm"
    assert found.select("round") == [whole]
    assert "whether the host was contended is not known of 1 rounds" in found.notes


def test_what_was_slower_than_profiled_shows_as_an_error(
    federation: StoredFederation, profiles: list[DeviceProfile]
) -> None:
    federation.add(1, [federation.part(1, "b", one_round([2.5] * 3))], probed=False)
    found = measure_fidelity(federation.path, profiles)
    (train,) = found.select("train")
    assert train.measured_s == pytest.approx(7.5, rel=1e-3), "without a probe the first epoch is training"
    assert train.error_s == pytest.approx(6 / 7.5 - 1, abs=1e-3)
    assert found.energy == "marginal", "as the scenario charges"
    assert train.error_j == pytest.approx(6 / 7.5 - 1, abs=0.01)
    (whole,) = found.select("round")
    assert whole.measured_s == pytest.approx(0.4 + 7.5 + 0.3, rel=1e-3)


def test_more_work_per_epoch_is_told_from_less_of_a_processor(
    federation: StoredFederation, profiles: list[DeviceProfile]
) -> None:
    """Epochs take 1.5 s instead of 1 s each: once because they are more work, once because of others."""
    known = [p.model_copy(update={"epoch_cpu_s": Quantity(mean=0.8)}) for p in profiles]
    for number, cpu_s in ((1, 3.6), (2, 2.4)):
        part = federation.part(number, "a", one_round([1.5] * 3), epochs_cpu_s=cpu_s)
        federation.add(number, [part])
    worked, waited = measure_fidelity(federation.path, known).select("device")
    assert (worked.measured_cpu_s, worked.predicted_cpu_s) == (3.6, pytest.approx(2.4))
    assert worked.error_s == pytest.approx(waited.error_s)
    assert (worked.error_cpu_s, waited.error_cpu_s) == (pytest.approx(-1 / 3), pytest.approx(0.0))
    (unknown, _) = measure_fidelity(federation.path, profiles).select("device")
    assert unknown.predicted_cpu_s is None
    assert math.isnan(unknown.error_cpu_s)


def test_a_load_and_a_link_that_were_never_profiled(
    federation: StoredFederation, profiles: list[DeviceProfile]
) -> None:
    """Load 0.375 lies between the levels of the curve; 1000 bytes at 4 kbit/s take 2 s."""
    between = load(0.375)
    slow = one_round([1.75] * 3, train_w=4.0, load_w=1.8)
    parts = [
        federation.part(1, "a", slow, background=between),
        federation.part(1, "b", one_round([2.0] * 3), link_bps=4000.0),
    ]
    federation.add(1, parts)
    found = measure_fidelity(federation.path, profiles)
    (loaded,) = found.select("train", device="a")
    assert (loaded.load, loaded.changed) == (0.375, True)
    assert loaded.error_s == pytest.approx(0.0, abs=0.02)
    assert loaded.measured_j == pytest.approx(2.2 * 3.5, rel=0.01), "without what the load alone draws"
    assert loaded.error_j == pytest.approx(0.0, abs=0.03)
    (linked,) = found.select("download", device="b")
    assert (linked.changed, linked.predicted_s) == (True, pytest.approx(2.0, rel=1e-6))
    assert not found.select("device", changed=False)


def test_a_part_that_failed_is_left_out_and_named(
    federation: StoredFederation, profiles: list[DeviceProfile]
) -> None:
    failed = PartRecord(
        device="b", client=1, job="j", epochs=3, chosen=True, failure="round: the link is down"
    )
    federation.add(1, [federation.part(1, "a", one_round([1.0] * 3)), failed])
    federation.add(2, [failed])
    found = measure_fidelity(federation.path, profiles)
    assert found.left_out == ("round 1, b: round: the link is down", "round 2, b: round: the link is down")
    assert {one.device for one in found.compared} == {"a", ""}


def test_other_numbers_of_samples_are_predicted_in_proportion(
    federation: StoredFederation, profiles: list[DeviceProfile]
) -> None:
    federation.add(1, [federation.part(1, "a", one_round([0.5] * 3), samples=300)])
    found = measure_fidelity(federation.path, profiles)
    (train,) = found.select("train")
    assert train.error_s == pytest.approx(0.0, abs=2e-3)
    # 600 samples are 19 steps of at most 32, 300 are 10 and not 9.5.
    note = "a: profiled with 600 samples, the rounds have 300; predicted in proportion"
    assert f"{note}, by steps it would be +5.3%" in found.notes


def test_bad_input(federation: StoredFederation, profiles: list[DeviceProfile], tmp_path: Path) -> None:
    with pytest.raises(DataQualityError, match="no round is finished"):
        measure_fidelity(federation.path, profiles)
    part = federation.part(1, "a", one_round([1.0] * 3))
    federation.add(1, [part])
    with pytest.raises(ConfigError, match="no profiles of a/lenet5/mnist/torch"):
        measure_fidelity(federation.path, profiles[1:])
    with pytest.raises(ConfigError, match="2 profiles of a/lenet5/mnist/torch"):
        measure_fidelity(federation.path, [profiles[0]] * 2)
    from harness.evidence.capture import open_capture

    own = build_profile([open_capture(federation.path / "jobs" / part.job)])
    with pytest.raises(DataQualityError, match="would predict themselves"):
        measure_fidelity(federation.path, [own])
    with RunStore(tmp_path).create("other", kind="bench") as other:
        pass
    with pytest.raises(ConfigError, match="not a run of `joulefleet bench federate`"):
        measure_fidelity(other.path, profiles)
    markers = federation.path / "jobs" / part.job / "markers.jsonl"
    markers.write_text("".join(markers.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(DataQualityError, match="changed since the round was measured"):
        measure_fidelity(federation.path, profiles)


def test_a_distribution_by_hand() -> None:
    """Sizes 0.1 to 1: the median is 0.55, the 95th percentile 0.955."""
    errors = [(-1) ** i * i / 10 for i in range(1, 11)]
    found = Distribution.of([*errors, float("nan")])
    assert found is not None
    assert (found.n, found.median, found.p95) == (10, pytest.approx(0.55), pytest.approx(0.955))
    assert found.bias == pytest.approx(np.median(errors))
    assert Distribution.of([float("nan")]) is None


def test_the_count_is_of_the_errors_that_are_known() -> None:
    known, some = Distribution.of([0.1, 0.2]), Distribution.of([0.1, float("nan")])
    assert _count({"time": known, "energy": known}) == "2"
    assert _count({"time": known, "energy": some}) == "2/1"
    assert _count({"time": known, "energy": None}) == "2/0"


def test_the_command(
    federation: StoredFederation,
    profiles: list[DeviceProfile],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for number in (1, 2):
        federation.add(number, [federation.part(number, "a", one_round([1.0 + number / 10] * 3))])
    path = store(profiles[0], tmp_path).path
    assert path is not None
    arguments = ["probing", "fidelity", str(federation.path), "--profiles", str(path)]
    assert joulefleet([*arguments, "--csv", str(tmp_path / "all.csv")]) == 0
    text = capsys.readouterr().out
    assert joulefleet([*arguments, "--csv", str(tmp_path / "all.csv")]) != 0
    assert "all.csv: exists already" in capsys.readouterr().err
    assert "measured [emulated], predicted from profiles [emulated], marginal energy" in text
    assert "time of rounds: median at most 5%, 95th percentile at most 15%: not reached [emulated]" in text
    assert joulefleet([*arguments, "--json"]) == 0
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    train = said["errors"]["phase train"]["time"]
    assert (train["n"], train["bias"]) == (2, pytest.approx((1 / 1.1 + 1 / 1.2) / 2 - 1, abs=2e-3))
    assert said["errors"]["rounds, host contended"] == {"time": None, "energy": None}
    assert said["reached"]["rounds"] == {"time": False, "energy": False}
    with (tmp_path / "all.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(said["compared"])
    assert {row["origin"] for row in rows} == {"emulated"}


def test_the_emulator_counts_a_round_as_the_formula_does(profiles: list[DeviceProfile]) -> None:
    both = ("a", "b")
    rounds = [RunRound(both, ("a",)), RunRound(both, ("b",)), RunRound(("b",), ("b",))]
    formula = Expectation(profiles, 3, "marginal", seed=1).of(rounds)
    emulated = emulate_rounds(profiles, rounds, 3, "marginal")
    assert emulated.vanilla_s == pytest.approx(formula.vanilla_s.mean, rel=1e-6)
    assert emulated.vanilla_j == pytest.approx(formula.vanilla_j.mean, rel=1e-6)
    for accounting in Accounting:
        by_formula, played = formula.savings[accounting], emulated.savings[accounting]
        assert played.time_s == pytest.approx(by_formula.time_s.mean, rel=1e-6)
        assert played.energy_j == pytest.approx(by_formula.energy_j.mean, rel=1e-6)
        assert played.time_saved == pytest.approx(by_formula.time_saved.mean, abs=1e-6)
        assert played.energy_saved == pytest.approx(by_formula.energy_saved.mean, abs=1e-6)
