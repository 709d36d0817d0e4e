import math

import numpy as np
import pytest

from joulefleet.errors import ConfigError
from joulefleet.provenance import Origin
from power.reference import listed_fleet, listed_phones, reference_facts, reference_fleet

PAPER_TASKS = [
    "mnist-lenet5",
    "cifar10-resnet18",
    "cinic10-vgg16",
    "tinyimagenet-shufflenetv2",
    "shakespeare-lstm",
    "digits-softmax",
]


@pytest.mark.parametrize("task", PAPER_TASKS)
def test_every_task_has_a_spread_of_phones(task: str) -> None:
    fleet = reference_fleet(task)
    assert len({profile.device for profile in fleet}) == len(fleet) >= 30
    assert {profile.task for profile in fleet} == {task}
    epoch_s = np.array([profile.epoch.duration_s.mean for profile in fleet])
    assert np.all(np.diff(epoch_s) <= 0), "slowest first"
    assert 5 < epoch_s[0] / epoch_s[-1] < 20


def test_nothing_in_the_fleet_claims_to_be_measured() -> None:
    for profile in reference_fleet():
        assert profile.origin is Origin.LITERATURE
        assert "not measured" in profile.provenance.basis
        assert profile.is_sealed
        assert profile.epoch.duration_s.n == 0
        assert profile.epoch.duration_s.factor_95 is not None


def test_all_that_the_emulator_needs_is_there() -> None:
    for profile in reference_fleet():
        assert profile.battery is not None
        assert profile.idle_power_w is not None
        assert profile.wait_power_w is not None
        assert profile.wait_power_w.mean > profile.idle_power_w.mean
        assert profile.download is not None
        assert profile.upload is not None
        assert profile.download.bytes == profile.upload.bytes
        assert profile.download.bytes
        for cost in (profile.probe, profile.epoch, profile.download, profile.upload):
            assert 0 < cost.energy_j("marginal").mean < cost.energy_j("gross").mean
        assert profile.slowdown_at([0.0, 0.5, 1.0]).tolist() == [1, 2, 2]


def test_power_and_battery_are_those_of_phones() -> None:
    for profile in reference_fleet("cifar10-resnet18"):
        watts = profile.epoch.gross_j.mean / profile.epoch.duration_s.mean
        assert 1 < watts < 8, profile.device
        assert profile.battery is not None
        hours = profile.battery.capacity_j / watts / 3600
        assert 1 < hours < 24, profile.device


def test_the_anchor_phone_takes_the_time_that_was_published() -> None:
    """FLASH: 10.681 s per batch of 100 of the Shakespeare LSTM on a Snapdragon 855."""
    phone = next(p for p in reference_fleet("shakespeare-lstm") if p.device == "Asus ZenFone 6")
    batches_of_100 = phone.samples / 100
    overhead_s = math.ceil(phone.samples / phone.batch_size) * reference_facts().speed.batch_s
    assert phone.epoch.duration_s.mean == pytest.approx(10.681 * batches_of_100 + overhead_s, rel=0.01)


def test_every_anchor_names_a_source() -> None:
    facts = reference_facts()
    assert {anchor.source for anchor in facts.speed.anchors} <= set(facts.sources)


def test_unknown_task_lists_the_known() -> None:
    with pytest.raises(ConfigError, match="no task 'mnist-transformer'") as caught:
        reference_fleet("mnist-transformer")
    assert "mnist-lenet5" in caught.value.hint


def test_several_hundred_phones_say_whose_power_was_interpolated() -> None:
    fleet = listed_fleet("mnist-lenet5")
    assert len({profile.device for profile in fleet}) == len(fleet) == 264
    rows = {phone.device: phone for phone in listed_phones().phones()}
    anchor = next(phone for phone in reference_facts().phones if phone.soc == reference_facts().speed.soc)
    (known,) = (p for p in reference_fleet("mnist-lenet5") if p.device == anchor.device)
    for profile in fleet:
        phone = rows.get(profile.device)
        guessed = phone is not None and phone.runs == 0
        assert profile.origin is Origin.LITERATURE
        assert profile.backend == ("interpolated" if guessed else "published")
        assert ("power interpolated" in profile.provenance.basis) is guessed
        if phone is not None:
            slower = profile.epoch.duration_s.mean / known.epoch.duration_s.mean
            assert slower == pytest.approx(anchor.score / phone.score), "its own score, not that of its SoC"
            watts = profile.epoch.net_j.mean / profile.epoch.duration_s.mean
            assert watts == pytest.approx(phone.core_w * reference_facts().power.training_factor)
    wide = [p.epoch.net_j.factor_95 for p in fleet if p.backend == "interpolated"]
    narrow = [p.epoch.net_j.factor_95 for p in fleet if p.backend == "published"]
    assert min(wide) > np.median(narrow), "who guesses knows less"
    assert {p.device for p in reference_fleet("mnist-lenet5")} <= {p.device for p in fleet}


def test_the_first_of_several_hundred_are_a_sample() -> None:
    """A fleet of fewer devices takes the first: they are not the slowest."""
    seconds = np.array([profile.epoch.duration_s.mean for profile in listed_fleet("mnist-lenet5")])
    for n in (30, 100):
        assert np.median(seconds[:n]) == pytest.approx(np.median(seconds), rel=0.2)
