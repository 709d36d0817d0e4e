import math

import pytest

from harness.profiles.scale import relative_sd, scale_device, scale_samples, scale_task, work_of
from joulefleet.errors import ConfigError
from joulefleet.provenance import Instrument, Origin, Provenance, SourceRef
from power.profile.model import Battery, DeviceProfile, PhaseCost, Quantity, TransferCost
from power.reference import reference_facts, reference_fleet

MEASURED = Provenance(
    origin=Origin.MEASURED,
    instrument=Instrument(kind="monsoon-hvpm", emulated=False),
    sources=(SourceRef(id="c", sha256="a" * 64),),
)


def measured(
    task: str, seconds: float, watts: float = 3.0, samples: int = 600, **changes: object
) -> DeviceProfile:
    dataset, _, model = task.partition("-")
    joules = Quantity(mean=seconds * watts, half_width_95=0.02 * seconds * watts)
    cost = PhaseCost(
        duration_s=Quantity(mean=seconds, n=3, sd=0.01, half_width_95=0.01 * seconds),
        gross_j=joules,
        net_j=joules,
        marginal_j=joules,
    )
    transfer = TransferCost(**cost.model_dump(), bytes=work_of(task).bytes)
    fields: dict[str, object] = {
        "device": "board", "model": model, "dataset": dataset, "backend": "torch", "samples": samples,
        "batch_size": 32, "probe": cost, "epoch": cost, "round": cost, "local_epochs": 5,
        "download": transfer, "upload": transfer, "idle_power_w": Quantity(mean=1.0),
        "battery": Battery(capacity_j=1, charge_w=1), "provenance": MEASURED,
    }  # fmt: skip
    return DeviceProfile.model_validate({**fields, **changes})


def test_another_task_by_arithmetic() -> None:
    result = scale_task([measured("mnist-lenet5", 2.0)], "cifar10-resnet18", 500)
    ratio = (
        work_of("cifar10-resnet18").flop_per_sample * 500 / (work_of("mnist-lenet5").flop_per_sample * 600)
    )
    assert (result.device, result.model, result.dataset, result.samples) == (
        "board",
        "resnet18",
        "cifar10",
        500,
    )
    assert result.epoch.duration_s.mean == pytest.approx(2 * ratio)
    assert result.epoch.gross_j.mean == pytest.approx(6 * ratio)
    assert result.download is not None
    assert result.download.bytes == work_of("cifar10-resnet18").bytes
    size = work_of("cifar10-resnet18").bytes / work_of("mnist-lenet5").bytes
    assert result.download.duration_s.mean == pytest.approx(2 * size)
    assert result.origin is Origin.SCALED
    assert result.provenance.sources == MEASURED.sources
    assert "scaled from board/lenet5/mnist/torch (measured)" in result.provenance.basis
    assert "from published training times" in result.provenance.basis
    assert result.epoch.duration_s.n == 0
    assert result.is_sealed


def test_the_error_of_one_template_is_that_of_published_models() -> None:
    result = scale_task([measured("mnist-lenet5", 2.0)], "cifar10-resnet18")
    expected = math.hypot(reference_facts().speed.log_sd["convolution"], 0.01 / 1.96)
    assert relative_sd(result.epoch.duration_s) == pytest.approx(expected, rel=1e-3)


def test_with_three_models_the_error_is_their_own() -> None:
    """A device on which time is exactly proportional to arithmetic: leaving one out finds no error."""
    tasks = ("mnist-lenet5", "cifar10-resnet18", "tinyimagenet-shufflenetv2")
    exact = [measured(task, 600 * work_of(task).flop_per_sample / 1e9) for task in tasks]
    result = scale_task(exact, "cinic10-vgg16")
    assert "leaving one out of 3 profiles" in result.provenance.basis
    assert result.epoch.duration_s.mean == pytest.approx(600 * work_of("cinic10-vgg16").flop_per_sample / 1e9)
    assert result.epoch.duration_s.factor_95 == pytest.approx(math.exp(0.01), rel=1e-3)
    off = [exact[0], measured(tasks[1], 2 * exact[1].epoch.duration_s.mean), exact[2]]
    assert (scale_task(off, "cinic10-vgg16").epoch.duration_s.factor_95 or 0) > 2


def test_leave_one_out_error_covers_the_published_anchors() -> None:
    """The error that single templates get has to cover the very models it was learnt from."""
    facts = reference_facts()
    rates = {
        a.model: a.sample_s / a.macs_per_sample for a in facts.speed.anchors if a.family == "convolution"
    }
    largest = max(rates.values()) / min(rates.values())
    assert largest < math.exp(1.96 * facts.speed.log_sd["convolution"])


def test_other_samples_are_proportional() -> None:
    template = measured("mnist-lenet5", 2.0).model_copy(update={"epoch_cpu_s": Quantity(mean=1.9)})
    result = scale_samples(template, 1200)
    assert result.epoch_cpu_s is None, "what was measured stays with what was measured"
    assert result.epoch.duration_s.mean == pytest.approx(4.0)
    assert result.download is not None
    assert result.download.duration_s.mean == pytest.approx(2.0)
    assert result.origin is Origin.SCALED
    assert scale_task([measured("mnist-lenet5", 2.0)], "mnist-lenet5", 1200) == result


def test_the_error_of_other_samples_is_that_of_one_batch() -> None:
    """Uniform over one batch of the 32 in 100 samples; 1 % of the time's own error beside it."""
    found = scale_samples(measured("mnist-lenet5", 2.0), 100).epoch
    batch = 32 / 100 / math.sqrt(12)
    assert math.log(found.duration_s.factor_95 or 0) == pytest.approx(
        math.hypot(1.96 * batch, 0.01), rel=1e-4
    )
    assert math.log(found.gross_j.factor_95 or 0) == pytest.approx(math.hypot(1.96 * batch, 0.02), rel=1e-4)
    more = scale_samples(measured("mnist-lenet5", 2.0, samples=50), 400).epoch
    batch = 32 / 50 / math.sqrt(12)
    assert math.log(more.duration_s.factor_95 or 0) == pytest.approx(math.hypot(1.96 * batch, 0.01), rel=1e-4)


def test_the_error_of_three_models_is_what_leaving_each_out_shows() -> None:
    """ResNet takes twice as long, and twice the power, as its arithmetic and the others say."""
    tasks = ("mnist-lenet5", "cifar10-resnet18", "tinyimagenet-shufflenetv2")
    flop = [work_of(task).flop_per_sample for task in tasks]
    assert flop[0] < flop[2] < flop[1]
    assert flop[2] / flop[0] > flop[1] / flop[2], "ResNet is the nearest to ShuffleNet"
    slow = [measured(t, 600 * f / 1e9 * k, 3.0 * k) for t, f, k in zip(tasks, flop, (1, 2, 1), strict=True)]
    found = scale_task(slow, "cinic10-vgg16").epoch
    # Left out: LeNet, predicted rightly from ShuffleNet; ResNet and ShuffleNet from each other, off by two.
    error = math.sqrt((0 + math.log(2) ** 2 + math.log(2) ** 2) / 3)
    assert math.log(found.duration_s.factor_95 or 0) == pytest.approx(1.96 * error, rel=1e-3)
    both = math.hypot(error, error)  # of time and of power, which is twice as much there too
    assert math.log(found.gross_j.factor_95 or 0) == pytest.approx(1.96 * both, rel=1e-3)


def test_another_device_by_score() -> None:
    result = scale_device(measured("mnist-lenet5", 2.0), "fast", score=200, own_score=100)
    assert result.device == "fast"
    assert result.epoch.duration_s.mean == pytest.approx(1.0)
    assert result.battery is None, "its battery is another one"
    wide = result.epoch.gross_j.factor_95
    known = scale_device(measured("mnist-lenet5", 2.0), "fast", score=200, own_score=100, power_ratio=1.5)
    assert known.epoch.gross_j.mean == pytest.approx(6 / 2 * 1.5)
    assert wide is not None
    assert known.epoch.gross_j.factor_95 is not None
    assert known.epoch.gross_j.factor_95 < wide


def test_scaling_never_strengthens_a_claim() -> None:
    literature = reference_fleet("mnist-lenet5")[0]
    result = scale_samples(literature, 1000)
    assert result.origin is Origin.LITERATURE
    assert "scaled from 600 to 1000 samples" in result.provenance.basis
    assert (
        scale_task([scale_samples(measured("mnist-lenet5", 2.0), 100)], "digits-mlp").origin is Origin.SCALED
    )


def test_what_cannot_be_scaled_says_why() -> None:
    with pytest.raises(ConfigError, match="arithmetic of 'mnist-transformer' is not known"):
        scale_task([measured("mnist-lenet5", 2.0)], "mnist-transformer")
    with pytest.raises(ConfigError, match="one device and backend"):
        scale_task([measured("mnist-lenet5", 2.0), measured("mnist-lenet5", 2.0, device="b")], "digits-mlp")
    with pytest.raises(ConfigError, match="have to be positive"):
        scale_device(measured("mnist-lenet5", 2.0), "x", score=0, own_score=1)
    with pytest.raises(ConfigError, match="samples"):
        scale_samples(measured("mnist-lenet5", 2.0), 0)
