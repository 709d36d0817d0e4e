"""Scaled, travelling and fitting profiles by hand: every quantity of them another number."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest

from harness.profiles.cells import CellKey
from harness.profiles.curve import fit_curve
from harness.profiles.exchange import export_profiles, import_profiles
from harness.profiles.fit import RoundWork, fitting_profile, reservations
from harness.profiles.scale import Ratio, relative_sd, scale_device, scale_samples, scale_task, work_of
from joulefleet.errors import ConfigError, StorageError
from joulefleet.provenance import Instrument, Origin, Provenance, SourceRef
from power.profile import MeasuredLoad, load_profile
from power.profile.model import Battery, DeviceProfile, LoadPoint, PhaseCost, Quantity, Thermal, TransferCost
from power.reference import reference_facts

Z = 1.959963984540054
MEASURED = Provenance(
    origin=Origin.MEASURED,
    instrument=Instrument(kind="monsoon-hvpm", emulated=False),
    sources=(SourceRef(id="c", sha256="a" * 64),),
)


def cost(k: float, *, width: float = 0.01) -> dict[str, Quantity]:
    """Every quantity another one, its interval another share of it."""
    return {
        "duration_s": Quantity(mean=k, n=3, sd=0.1, half_width_95=width * k),
        "gross_j": Quantity(mean=5 * k, half_width_95=2 * width * 5 * k),
        "net_j": Quantity(mean=4 * k, half_width_95=3 * width * 4 * k),
        "marginal_j": Quantity(mean=3 * k, half_width_95=4 * width * 3 * k),
    }


def profile(task: str = "mnist-lenet5", k: float = 2.0, **changes: Any) -> DeviceProfile:
    dataset, _, model = task.partition("-")
    fields: dict[str, Any] = {
        "device": "board", "model": model, "dataset": dataset, "backend": "torch", "samples": 600,
        "batch_size": 32, "probe": PhaseCost(**cost(1.5 * k)), "epoch": PhaseCost(**cost(k)),
        "round": PhaseCost(**cost(5 * k)), "local_epochs": 5,
        "download": TransferCost(**cost(0.3), bytes=1001), "upload": TransferCost(**cost(0.7), bytes=2003),
        "idle_power_w": Quantity(mean=1.0), "battery": Battery(capacity_j=1, charge_w=1),
        "epoch_cpu_s": Quantity(mean=1.9), "thermal": Thermal(epochs_used=3), "notes": ("first",),
        "load_curve": (LoadPoint(load=0, slowdown=1, energy_factor=1),), "provenance": MEASURED,
    }  # fmt: skip
    return DeviceProfile.model_validate({**fields, **changes})


def assert_scaled(
    found: PhaseCost | None, was: PhaseCost | None, time: tuple[float, float], energy: tuple[float, float]
) -> None:
    """Means by the ratio; a factor from the ratio's own error and the share that each had before."""
    assert found is not None
    assert was is not None
    shares = {"duration_s": 0.01, "gross_j": 0.02, "net_j": 0.03, "marginal_j": 0.04}
    for name, share in shares.items():
        ratio, log_sd = time if name == "duration_s" else energy
        one, before = getattr(found, name), getattr(was, name)
        assert one.mean == pytest.approx(before.mean * ratio, rel=1e-9), name
        assert one.factor_95 == pytest.approx(math.exp(Z * math.hypot(log_sd, share / Z)), rel=1e-9), name
        assert (one.n, one.half_width_95) == (0, None)


def test_ratios_multiply() -> None:
    found = Ratio(2.0, 0.3) * Ratio(5.0, 0.4)
    assert (found.value, found.log_sd) == (10.0, pytest.approx(0.5))
    assert Ratio(2.0).log_sd == 0.0


def test_other_samples_in_every_quantity() -> None:
    was = profile()
    found = scale_samples(was, 200)
    batch = 32 / 200 / math.sqrt(12)
    for name in ("probe", "epoch", "round"):
        assert_scaled(getattr(found, name), getattr(was, name), (1 / 3, batch), (1 / 3, batch))
    for name in ("download", "upload"):
        assert_scaled(getattr(found, name), getattr(was, name), (1, 0), (1, 0))
        assert getattr(found, name).bytes == getattr(was, name).bytes
    assert (found.samples, found.load_levels, found.epoch_cpu_s, found.thermal) == (200, (), None, None)
    assert found.notes == ("first", "background-load curve, idle and waiting power as on the template")
    assert found.origin is Origin.SCALED
    assert found.provenance.basis == (
        "scaled from 600 to 200 samples: time and energy in proportion, up to a batch"
    )
    assert found.is_sealed
    assert scale_samples(was, 1).samples == 1
    for bad in (0, -5):
        with pytest.raises(ConfigError, match=f"samples: {bad} is not a number of samples"):
            scale_samples(was, bad)


def test_what_is_missing_stays_missing() -> None:
    bare = profile(
        round=None, download=None, upload=TransferCost(**cost(0.7), bytes=None),
        epoch=PhaseCost(duration_s=Quantity(mean=2.0), gross_j=Quantity(mean=0.0, half_width_95=0.1)),
    )  # fmt: skip
    found = scale_samples(bare, 600)
    assert (found.round, found.download) == (None, None)
    assert found.upload is not None
    assert found.upload.bytes is None
    assert (found.epoch.net_j, found.epoch.marginal_j) == (None, None)
    assert found.epoch.gross_j.mean == 0.0
    same = scale_device(bare, "b", score=1.0, own_score=1.0, power_ratio=1.0)
    assert same.upload is not None
    certain = scale_samples(
        profile(upload=TransferCost(duration_s=Quantity(mean=1.0), gross_j=Quantity(mean=2.0))), 60
    )
    assert certain.upload is not None
    assert certain.upload.duration_s.factor_95 is None


def test_own_errors_as_logarithms() -> None:
    assert relative_sd(Quantity(mean=2.0, factor_95=1.5)) == pytest.approx(math.log(1.5) / Z)
    assert relative_sd(Quantity(mean=-2.0, half_width_95=0.5)) == pytest.approx(0.25 / Z)
    assert relative_sd(Quantity(mean=2.0)) == relative_sd(Quantity(mean=0.0, half_width_95=0.5)) == 0.0


def test_another_task_in_every_quantity() -> None:
    was = profile()
    old, new = work_of("mnist-lenet5"), work_of("cifar10-resnet18")
    found = scale_task([was], "cifar10-resnet18", 150)
    ratio = new.flop_per_sample * 150 / (old.flop_per_sample * 600)
    facts = reference_facts()
    time_sd, power_sd = max(facts.speed.log_sd.values()), facts.power.training_log_sd
    for name in ("probe", "epoch", "round"):
        assert_scaled(
            getattr(found, name), getattr(was, name), (ratio, time_sd), (ratio, math.hypot(time_sd, power_sd))
        )
    size = new.bytes / old.bytes
    for name, was_bytes in (("download", 1001), ("upload", 2003)):
        assert_scaled(getattr(found, name), getattr(was, name), (size, 0), (size, 0))
        assert getattr(found, name).bytes == round(was_bytes * size)
    assert (found.dataset, found.model, found.samples) == ("cifar10", "resnet18", 150)
    assert found.provenance.basis == (
        f"scaled from board/lenet5/mnist/torch (measured) by {ratio:.4g} times the arithmetic; error of time "
        f"a factor {math.exp(Z * time_sd):.3g}, of power {math.exp(Z * power_sd):.3g} (95 %), from published "
        "training times and powers of other models"
    )
    assert scale_task([was], "cifar10-resnet18").samples == 600
    assert scale_task([was], "mnist-lenet5", 100) == scale_samples(was, 100)


def test_the_worst_of_the_published_errors_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = reference_facts()
    unlike = facts.speed.model_copy(
        update={"log_sd": {"convolution": 0.5, "depthwise": 0.9, "recurrent": 0.7}}
    )
    monkeypatch.setattr(
        "harness.profiles.scale.reference_facts", lambda: facts.model_copy(update={"speed": unlike})
    )
    found = scale_task([profile()], "cifar10-resnet18").epoch.duration_s
    assert found.factor_95 == pytest.approx(math.exp(Z * math.hypot(0.9, 0.01 / Z)), rel=1e-9)


TASKS = ("mnist-lenet5", "tinyimagenet-shufflenetv2", "cifar10-resnet18")
"""By arithmetic; the second is nearer to the third."""


def test_leaving_one_out_of_three_unlike_devices() -> None:
    flop = [work_of(task).flop_per_sample for task in TASKS]
    assert flop[0] < flop[1] < flop[2]
    assert flop[1] / flop[0] > flop[2] / flop[1]
    seconds, samples, watts = (2.0, 30.0, 70.0), (600, 500, 400), (5.0, 6.0, 8.0)
    given = [
        profile(
            task, s, samples=n,
            epoch=PhaseCost(duration_s=Quantity(mean=s), gross_j=Quantity(mean=s * w)),
        )
        for task, s, n, w in zip(TASKS, seconds, samples, watts, strict=True)
    ]  # fmt: skip
    nearest = {0: 1, 1: 2, 2: 1}
    time, power = [], []
    for i, j in nearest.items():
        predicted = seconds[j] * flop[i] * samples[i] / (flop[j] * samples[j])
        time.append(math.log(predicted / seconds[i]))
        power.append(math.log(watts[j] / watts[i]))
    time_sd = math.sqrt(sum(x * x for x in time) / 3)
    power_sd = math.sqrt(sum(x * x for x in power) / 3)
    found = scale_task(given, "cinic10-vgg16").epoch
    assert found.duration_s.factor_95 == pytest.approx(math.exp(Z * time_sd))
    assert found.gross_j.factor_95 == pytest.approx(math.exp(Z * math.hypot(time_sd, power_sd)))
    new = work_of("cinic10-vgg16").flop_per_sample
    assert new > flop[1]
    at = 2 if abs(math.log(new / flop[2])) < abs(math.log(new / flop[1])) else 1
    assert found.duration_s.mean == pytest.approx(seconds[at] * new / flop[at])
    basis = scale_task(given, "cinic10-vgg16").provenance.basis
    assert "leaving one out of 3 profiles of this device" in basis
    # Three profiles of two tasks are not enough.
    twice = [given[0], given[0].model_copy(update={"samples": 60}), given[1]]
    assert "from published training times" in scale_task(twice, "cinic10-vgg16").provenance.basis


def test_another_device_in_every_quantity() -> None:
    was, facts = profile(), reference_facts()
    power_sd = stdev(math.log(phone.core_w) for phone in facts.phones)
    found = scale_device(was, "fast", score=300.0, own_score=100.0)
    time = (1 / 3, facts.speed.device_log_sd)
    for name in ("probe", "epoch", "round"):
        energy = (1 / 3, math.hypot(time[1], power_sd))
        assert_scaled(getattr(found, name), getattr(was, name), time, energy)
    for name in ("download", "upload"):
        assert_scaled(getattr(found, name), getattr(was, name), (1, 0), (1, 0))
    assert (found.device, found.battery, found.samples) == ("fast", None, 600)
    basis = found.provenance.basis
    assert basis.startswith("scaled from board/lenet5/mnist/torch (measured) by score 100 over 300; error of")
    assert f"a factor {math.exp(Z * time[1]):.3g} (95 %), as scores" in basis
    assert basis.endswith(
        "power taken as the same, error from the spread between the reference phones: "
        f"a factor {math.exp(Z * power_sd):.3g}"
    )
    known = scale_device(was, "fast", score=300.0, own_score=100.0, power_ratio=1.5)
    repeat_sd = facts.power.repeat_log_sd
    assert_scaled(known.epoch, was.epoch, time, (0.5, math.hypot(time[1], repeat_sd)))
    assert known.provenance.basis.endswith(
        "power times 1.5 as stated, error as between repeated power benchmarks: "
        f"a factor {math.exp(Z * repeat_sd):.3g}"
    )


@pytest.mark.parametrize("bad", [{"score": 0.0}, {"own_score": 0.0}, {"power_ratio": 0.0}, {"score": -1.0}])
def test_scores_are_positive(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="have to be positive"):
        scale_device(profile(), "x", **({"score": 1.0, "own_score": 1.0} | bad))


def test_profiles_of_several_devices_are_not_scaled() -> None:
    mixed = [profile(), profile(backend="numpy"), profile(device="a")]
    with pytest.raises(ConfigError, match="got a with torch, board with numpy, board with torch"):
        scale_task(mixed, "digits-mlp")
    with pytest.raises(ConfigError, match="got none"):
        scale_task([], "digits-mlp")


def test_work_of_a_task_is_as_shipped() -> None:
    shipped = {fact.name: fact for fact in reference_facts().tasks}
    assert work_of("mnist-lenet5").flop_per_sample == shipped["mnist-lenet5"].flop_per_sample
    assert work_of("mnist-lenet5").bytes == shipped["mnist-lenet5"].bytes
    with pytest.raises(ConfigError, match="arithmetic of 'mnist-none' is not known") as error:
        work_of("mnist-none")
    assert "mnist-lenet5" in (error.value.hint or "")


# Files


def test_a_table_for_reading(tmp_path: Path) -> None:
    other = profile("cifar10-resnet18", 3.0, device="b", round=None, download=None)
    odd = profile(
        device="c", round=None, download=None, upload=None,
        epoch=PhaseCost(duration_s=Quantity(mean=2.0, factor_95=1.5), gross_j=Quantity(mean=7.0)),
    )  # fmt: skip
    target = tmp_path / "all.csv"
    assert export_profiles([profile(), other, odd], target) == [target]
    rows = list(csv.DictReader(target.read_text().splitlines()))
    phases = [("board", p) for p in ("probe", "epoch", "round", "download", "upload")]
    phases += [("b", p) for p in ("probe", "epoch", "upload")] + [("c", "probe"), ("c", "epoch")]
    assert [(row["device"], row["phase"]) for row in rows] == phases
    row = rows[3]
    assert (float(row["duration_s"]), float(row["gross_j"]), float(row["net_j"])) == pytest.approx(
        (0.3, 1.5, 1.2)
    )
    assert (float(row["marginal_j"]), row["bytes"]) == (pytest.approx(0.9), "1001")
    assert float(row["marginal_half_width_95_j"]) == pytest.approx(0.036)
    assert (row["n"], row["origin"], row["samples"], row["batch_size"]) == ("3", "measured", "600", "32")
    assert (row["local_epochs"], row["marginal_factor_95"], row["dataset"]) == ("5", "", "mnist")
    last = rows[-1]
    assert (last["net_j"], last["marginal_j"], last["marginal_half_width_95_j"]) == ("", "", "")
    assert (last["duration_factor_95"], last["bytes"], last["marginal_session_sd_j"]) == ("1.5", "", "")


def test_files_of_their_own(tmp_path: Path) -> None:
    one, two = profile().sealed(), profile("cifar10-resnet18").sealed()
    assert export_profiles([one], tmp_path / "one.json") == [tmp_path / "one.json"]
    assert load_profile(tmp_path / "one.json").round == one.round
    with pytest.raises(StorageError, match="one file holds one profile, not 2"):
        export_profiles([one, two], tmp_path / "two.json")
    with pytest.raises(StorageError, match="one file holds one profile, not 0"):
        export_profiles([], tmp_path / "none.json")
    folder = tmp_path / "a" / "b"
    paths = export_profiles([one, two], folder)
    assert sorted(folder.iterdir()) == sorted(paths)
    assert [load_profile(path).label for path in paths] == [one.label, two.label]
    (tmp_path / "there").mkdir()
    (there,) = export_profiles([two], tmp_path / "there")
    assert there.parent == tmp_path / "there"
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"x: .*file is a file, not a folder"):
        export_profiles([one], tmp_path / "file" / "x")


def test_a_foreign_profile_claims_less(tmp_path: Path) -> None:
    one = profile().sealed()
    export_profiles([one], tmp_path / "one.json")
    (stored,) = import_profiles([tmp_path / "one.json"], tmp_path / "library")
    assert stored.profile.origin is Origin.IMPORTED
    content = (one.content_sha256 or "")[:16]
    assert stored.profile.provenance.basis.endswith(f"imported from one.json, content {content}")
    assert load_profile(stored.path).origin is Origin.IMPORTED
    assert stored.profile.epoch == one.epoch


# Which profile fits


KEY = CellKey("board", "mnist-lenet5", "mnist", "torch")


def work(**changes: Any) -> RoundWork:
    facts = {"key": KEY, "samples": 600, "batch_size": 32, "threads": None, "synthetic_data": False}
    return RoundWork(**{**facts, **changes})


def test_the_one_profile_of_this_work() -> None:
    mine, others = profile(), [profile(backend="numpy"), profile("cifar10-resnet18"), profile(device="z")]
    assert fitting_profile([*others, mine], work()) is mine
    with pytest.raises(ConfigError, match="no profiles of board/lenet5/mnist/torch") as error:
        fitting_profile(others, work())
    assert error.value.hint == (
        "one is needed; of this device there is board/lenet5/mnist/numpy, board/resnet18/cifar10/torch"
    )
    with pytest.raises(ConfigError, match="2 profiles of board") as error:
        fitting_profile([mine, mine], work())
    with pytest.raises(ConfigError, match="no profiles") as error:
        fitting_profile([others[2]], work())
    assert error.value.hint == "one is needed; of this device there is nothing"


def test_batches_and_threads_have_to_agree() -> None:
    with pytest.raises(
        ConfigError, match=r"with batch_size = 32, the rounds with 0$|batch_size = 32"
    ) as error:
        fitting_profile([profile()], work(batch_size=16))
    assert error.value.message == "the profile of board was measured with batch_size = 32, the rounds with 16"
    for here, there, zero in ((0, 4, True), (4, 0, True), (2, 4, False)):
        with pytest.raises(ConfigError) as error:
            fitting_profile([profile(threads=here)], work(threads=there))
        assert (" (0: as many as the backend likes)" in error.value.message) is zero
    for here, there in ((None, 4), (4, None), (4, 4)):
        assert fitting_profile([profile(threads=here)], work(threads=there)).threads == here


def test_what_a_reader_should_know() -> None:
    told = {"threads": 1, "synthetic_data": False, "warmup_epochs": 0, "notes": ()}
    assert reservations(profile(**told), work()) == []
    assert reservations(profile(**told | {"notes": ("a", "b")}), work()) == [
        "profile of board: a", "profile of board: b",
    ]  # fmt: skip
    assert len(reservations(profile(**told | {"warmup_epochs": 1}), work())) == 1
    assert len(reservations(profile(**told), work(synthetic_data=True))) == 1
    assert reservations(profile(**told | {"synthetic_data": True}), work(synthetic_data=True)) == []
    (note,) = reservations(profile(notes=()), work(synthetic_data=True))
    assert "whether threads, synthetic_data, warmup_epochs are as in the rounds" in note
    start = "board: profiled with 600 samples, the rounds have"
    # 600 in batches of 32 are 19 steps; in proportion 640 would be 20.27, and they are 20.
    (note,) = reservations(profile(**told), work(samples=640))
    assert (
        note == f"{start} 640; predicted in proportion, by steps it would be {20 / (19 * 640 / 600) - 1:+.1%}"
    )
    (note,) = reservations(profile(**told), work(samples=300, batch_size=30))
    assert note == f"{start} 300; predicted in proportion"


# The curve


def level(load: float, seconds: Quantity, joules: Quantity | None, kind: str = "cpu") -> MeasuredLoad:
    one = PhaseCost(duration_s=seconds, gross_j=Quantity(mean=10.0), marginal_j=joules)
    return MeasuredLoad(name=f"{kind}-{load:g}", kind=kind, load=load, epoch=one)


def sure(mean: float, share: float | None) -> Quantity:
    return Quantity(mean=mean, half_width_95=None if share is None else share * mean)


def test_what_was_measured_once_counts_like_the_least_certain() -> None:
    """At half load 1.6 (1 %), 1.3 (unknown: as 4 %) and 1.4 (4 %)."""
    base = level(0.0, sure(2.0, 0.02), None, kind="none")
    half = [level(0.5, sure(2 * s, w), None) for s, w in ((1.6, 0.01), (1.3, None), (1.4, 0.04))]
    points, _ = fit_curve([*half, base])
    assert [p.load for p in points] == [0.0, 0.5]
    assert points[1].slowdown == pytest.approx((16 * 1.6 + 1.3 + 1.4) / 18, rel=1e-6)
    none = [level(0.5, sure(s, None), None) for s in (3.0, 4.0)]
    points, _ = fit_curve([level(0.0, sure(2.0, None), None, kind="none"), *none])
    assert points[1].slowdown == pytest.approx(1.75, rel=1e-6)


def test_energy_up_or_down_whichever_is_closer() -> None:
    def factors(*joules: float) -> list[float]:
        levels = [level(0.25 * i, sure(1.0 + i, 0.1), sure(j, 0.1)) for i, j in enumerate(joules)]
        levels[0] = level(0.0, sure(1.0, 0.1), sure(joules[0], 0.1), kind="none")
        return [p.energy_factor for p in fit_curve(levels)[0]]

    assert factors(2.0, 4.0, 3.0, 6.0) == pytest.approx([1, 1.75, 1.75, 3], rel=1e-6)
    assert factors(4.0, 2.0, 2.5, 1.0) == pytest.approx([1, 1 / 1.8, 1 / 1.8, 0.25], rel=1e-6)
    assert factors(2.0, 2.0, 2.0, 2.0) == pytest.approx([1, 1, 1, 1], rel=1e-6)
