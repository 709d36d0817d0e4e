from pathlib import Path

import numpy as np
import pytest

import power.reference
from device_agents.workloads import count_task
from device_agents.workloads.tasks import TASKS
from harness.profiles.reference_fleet.__main__ import compute_facts, tasks
from harness.profiles.reference_fleet.listed import listed, write_listed
from power.reference import listed_phones, reference_facts


def test_arithmetic_in_the_facts_is_that_of_the_models() -> None:
    counted = {task.name: task for task in tasks()}
    for task in reference_facts().tasks:
        assert task == counted[task.name], "run `python -m harness.profiles.reference_fleet` again"


def test_facts_are_what_the_data_sets_say(real_data: Path) -> None:
    assert compute_facts(real_data) == reference_facts()


def test_listed_phones_are_what_the_data_sets_say(real_data: Path, tmp_path: Path) -> None:
    assert listed(real_data / "device-profiles") == listed_phones()
    write_listed(tmp_path / "listed.json", real_data / "device-profiles")
    shipped = Path(power.reference.__path__[0], "listed.json")
    assert (tmp_path / "listed.json").read_bytes() == shipped.read_bytes()


def test_interpolated_power_is_on_the_line_of_the_measured_socs() -> None:
    """By hand: least squares through the logarithms of the SoCs of which both are published."""
    both = [p for p in reference_facts().phones if p.score_phones]
    x, y = (np.log([getattr(p, name) for p in both]) for name in ("score", "core_w"))
    slope = ((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum()
    off = y - y.mean() - slope * (x - x.mean())
    found = listed_phones()
    assert found.power_exponent == pytest.approx(slope, rel=1e-3)
    assert found.power_log_sd == pytest.approx((off @ off / (len(off) - 2)) ** 0.5, rel=1e-3)
    socs = {p.soc: p.core_w for p in both}
    for phone in found.phones():
        expected = socs.get(phone.soc, np.exp(y.mean() + slope * (np.log(phone.score) - x.mean())))
        assert phone.core_w == pytest.approx(expected, rel=1e-3), phone.device
        assert (phone.runs == 0) == (phone.soc not in socs)
        assert phone.score >= min(p.score for p in both), "no power is extrapolated downwards"


@pytest.mark.parametrize("name", ["mnist-lenet5", "cifar10-resnet18", "digits-mlp"])
def test_counting_agrees_with_torch(name: str) -> None:
    forward, training = _torch_counts(name)
    work = count_task(TASKS[name])
    assert work.forward_flop == forward
    assert work.training_flop == training


def test_grouped_convolutions_are_counted_as_grouped() -> None:
    """torch agrees going forward; going backward it takes groups for dense, so it counts too much."""
    forward, training = _torch_counts("tinyimagenet-shufflenetv2")
    work = count_task(TASKS["tinyimagenet-shufflenetv2"])
    assert work.forward_flop == forward
    assert 2.5 * forward < work.training_flop < 3 * forward < training


def test_recurrent_layers_are_counted() -> None:
    """80 characters, two layers of 256: 4 gates x (inputs + 256) x 256 products each, and the last layer."""
    macs = 80 * 4 * 256 * ((8 + 256) + (256 + 256)) + 256 * 80
    assert count_task(TASKS["shakespeare-lstm"]).forward_flop == 2 * macs


def _torch_counts(name: str) -> tuple[float, float]:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from device_agents.workloads.models import build

    task = TASKS[name]
    model = build(task)
    with FlopCounterMode(display=False) as counter:
        loss = model(torch.zeros(2, *task.input_shape)).sum()
        forward = counter.get_total_flops()
        loss.backward()
    return forward / 2, counter.get_total_flops() / 2
