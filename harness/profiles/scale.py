"""Profiles of what was not measured: another task, another number of samples, another device.

Another task on the same device
    Time is taken as proportional to arithmetic (`device_agents/workloads/flops.py`) times samples, power as
    unchanged, transfers as proportional to the size of the model. The template is the measured profile whose
    arithmetic per sample is nearest. How wrong that is comes from the profiles given: each is predicted from
    the others by the same rule and compared with its own numbers (leave one out, from three profiles on).
    With fewer, the same error among published training times is used (`power.reference`).
The same task with another number of samples
    Time and energy are proportional to samples, up to one batch.
Another device
    Time goes down as a benchmark score goes up; power is taken as unchanged unless a ratio is given. The
    error of the first is that of AI-Benchmark's CPU score against published training times, the error of the
    second the spread of power between the reference phones.

The result says ``scaled`` (or a weaker word, if the template is weaker), what it was computed from, and an
interval that is a factor: predictions by ratio go wrong by ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from device_agents.workloads import TASKS
from joulefleet.errors import ConfigError
from joulefleet.interval import NORMAL_95
from joulefleet.provenance import Origin, weakest
from power import DeviceProfile
from power.profile import PhaseCost, Quantity, TransferCost
from power.reference import reference_facts

OWN_ERROR_FROM = 3
_C = TypeVar("_C", bound=PhaseCost)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A factor and how well it is known: standard deviation of its logarithm."""

    value: float
    log_sd: float = 0.0

    def __mul__(self, other: Ratio) -> Ratio:
        return Ratio(self.value * other.value, math.hypot(self.log_sd, other.log_sd))


@dataclass(frozen=True, slots=True)
class TaskWork:
    """What scaling needs to know about a task."""

    flop_per_sample: float
    bytes: int


def work_of(task: str) -> TaskWork:
    """Arithmetic and size of a task: as shipped, or counted now.

    Raises:
        ConfigError: No such task.
    """
    known = {fact.name: fact for fact in reference_facts().tasks}
    if task in known:
        return TaskWork(known[task].flop_per_sample, known[task].bytes)
    from device_agents.workloads import count_task
    from emulator.own_code import ALL_TASKS, find_task

    if task not in (others := ALL_TASKS.entries()):
        raise ConfigError(
            f"the arithmetic of {task!r} is not known, so nothing can be scaled by it",
            hint=f"known tasks: {', '.join(sorted({*known, *others}))}; yours is given with `--code FILE`",
        )
    work = count_task(find_task(task))
    return TaskWork(work.training_flop, work.bytes)


def scale_task(profiles: Sequence[DeviceProfile], task: str, samples: int | None = None) -> DeviceProfile:
    """Predict another task on a device from one or more of its profiles.

    Args:
        profiles: Of one device and backend.
        task: E.g. ``cifar10-resnet18``.
        samples: Training samples per epoch; those of the template if None.

    Raises:
        ConfigError: The profiles are of several devices or backends, or a task is unknown.
    """
    _require_one_device(profiles)
    work = work_of(task)
    template = _nearest(profiles, work)
    samples = samples or template.samples
    if template.task == task:
        return scale_samples(template, samples)
    old = work_of(template.task)
    arithmetic = work.flop_per_sample * samples / (old.flop_per_sample * template.samples)
    time_sd, power_sd, why = _task_errors(profiles)
    # A task of one's own has one name, which is that of its model and of its data.
    dataset, model = task.split("-", 1) if task in TASKS else (task, task)
    basis = (
        f"scaled from {template.label} ({template.origin.value}) by {arithmetic:.4g} times the arithmetic; "
        f"error of time a factor {_factor(time_sd):.3g}, of power {_factor(power_sd):.3g} (95 %), {why}"
    )
    return _scaled(
        template,
        time=Ratio(arithmetic, time_sd),
        power=Ratio(1.0, power_sd),
        transfer=Ratio(work.bytes / old.bytes),
        basis=basis,
        model=model,
        dataset=dataset,
        samples=samples,
    )


def scale_samples(profile: DeviceProfile, samples: int) -> DeviceProfile:
    """Predict the same task with another number of samples."""
    if samples <= 0:
        raise ConfigError(f"samples: {samples} is not a number of samples")
    # The last batch may be anything between empty and full: uniform over one batch.
    batch_sd = profile.batch_size / min(samples, profile.samples) / math.sqrt(12)
    basis = (
        f"scaled from {profile.samples} to {samples} samples: time and energy in proportion, up to a batch"
    )
    return _scaled(
        profile,
        time=Ratio(samples / profile.samples, batch_sd),
        power=Ratio(1.0),
        transfer=Ratio(1.0),
        basis=basis,
        samples=samples,
    )


def scale_device(
    profile: DeviceProfile, device: str, *, score: float, own_score: float, power_ratio: float | None = None
) -> DeviceProfile:
    """Predict another device from its score in some benchmark.

    Args:
        profile: The template.
        device: Name of the other device.
        score: Of the other device; higher is faster.
        own_score: Of the profile's device in the same benchmark.
        power_ratio: Power of the other device while training over that of the profile's; unknown if None.
    """
    if not (score > 0 and own_score > 0) or (power_ratio is not None and power_ratio <= 0):
        raise ConfigError("scores and power ratio have to be positive")
    facts = reference_facts()
    time = Ratio(own_score / score, facts.speed.device_log_sd)
    if power_ratio is None:
        power = Ratio(1.0, float(np.std(np.log([phone.core_w for phone in facts.phones]), ddof=1)))
        why_power = "power taken as the same, error from the spread between the reference phones"
    else:
        power = Ratio(power_ratio, facts.power.repeat_log_sd)
        why_power = f"power times {power_ratio:.4g} as stated, error as between repeated power benchmarks"
    basis = (
        f"scaled from {profile.label} ({profile.origin.value}) by score {own_score:g} over {score:g}; "
        f"error of time a factor {_factor(time.log_sd):.3g} (95 %), as scores predict published times; "
        f"{why_power}: a factor {_factor(power.log_sd):.3g}"
    )
    return _scaled(
        profile, time=time, power=power, transfer=Ratio(1.0), basis=basis, device=device, battery=None
    )


def _scaled(
    profile: DeviceProfile, *, time: Ratio, power: Ratio, transfer: Ratio, basis: str, **changes: object
) -> DeviceProfile:
    energy = time * power
    origin = weakest([Origin.SCALED, profile.origin])
    updates: dict[str, object] = {
        "probe": _cost(profile.probe, time, energy),
        "epoch": _cost(profile.epoch, time, energy),
        "round": profile.round and _cost(profile.round, time, energy),
        "download": _transfer(profile.download, transfer),
        "upload": _transfer(profile.upload, transfer),
        "load_levels": (),  # what was measured stays with what was measured; the curve is relative
        "epoch_cpu_s": None,
        "thermal": None,
        "notes": (*profile.notes, "background-load curve, idle and waiting power as on the template"),
        "provenance": profile.provenance.weakened(origin, basis=basis),
        "content_sha256": None,
    }
    return profile.model_copy(update={**updates, **changes}).sealed()


def _cost(cost: _C, time: Ratio, energy: Ratio) -> _C:
    energies = {
        name: _quantity(quantity, energy)
        for name in ("gross_j", "net_j", "marginal_j")
        if (quantity := getattr(cost, name)) is not None
    }
    return cost.model_copy(update={"duration_s": _quantity(cost.duration_s, time), **energies})


def _transfer(cost: TransferCost | None, size: Ratio) -> TransferCost | None:
    if cost is None:
        return None
    scaled = _cost(cost, size, size)
    return (
        scaled if cost.bytes is None else scaled.model_copy(update={"bytes": round(cost.bytes * size.value)})
    )


def _quantity(quantity: Quantity, ratio: Ratio) -> Quantity:
    log_sd = math.hypot(ratio.log_sd, relative_sd(quantity))
    return Quantity(mean=quantity.mean * ratio.value, factor_95=_factor(log_sd) if log_sd else None)


def relative_sd(quantity: Quantity) -> float:
    """What is known of a quantity's own error, as a standard deviation of its logarithm."""
    if quantity.factor_95 is not None:
        return math.log(quantity.factor_95) / NORMAL_95
    if quantity.half_width_95 is None or not quantity.mean:
        return 0.0
    return quantity.half_width_95 / abs(quantity.mean) / NORMAL_95


def _factor(log_sd: float) -> float:
    return math.exp(NORMAL_95 * log_sd)


def _require_one_device(profiles: Sequence[DeviceProfile]) -> None:
    places = {(profile.device, profile.backend) for profile in profiles}
    if len(places) != 1:
        listed = ", ".join(f"{device} with {backend}" for device, backend in sorted(places)) or "none"
        raise ConfigError(f"scaling needs profiles of one device and backend, got {listed}")


def _nearest(profiles: Sequence[DeviceProfile], work: TaskWork) -> DeviceProfile:
    return min(profiles, key=lambda p: abs(math.log(work_of(p.task).flop_per_sample / work.flop_per_sample)))


def _task_errors(profiles: Sequence[DeviceProfile]) -> tuple[float, float, str]:
    """Standard deviation of the logarithm of predicted time and power, and where it comes from."""
    if len({profile.task for profile in profiles}) < OWN_ERROR_FROM:
        facts = reference_facts()
        worst = max(facts.speed.log_sd.values())
        return worst, facts.power.training_log_sd, "from published training times and powers of other models"
    time_errors, power_errors = [], []
    for profile in profiles:
        others = [other for other in profiles if other.task != profile.task]
        work = work_of(profile.task)
        template = _nearest(others, work)
        old = work_of(template.task)
        ratio = work.flop_per_sample * profile.samples / (old.flop_per_sample * template.samples)
        predicted_s = template.epoch.duration_s.mean * ratio
        time_errors.append(math.log(predicted_s / profile.epoch.duration_s.mean))
        power_errors.append(math.log(_power_w(template) / _power_w(profile)))
    why = f"leaving one out of {len(profiles)} profiles of this device"
    return _rms(time_errors), _rms(power_errors), why


def _power_w(profile: DeviceProfile) -> float:
    return profile.epoch.gross_j.mean / profile.epoch.duration_s.mean


def _rms(values: Sequence[float]) -> float:
    return math.sqrt(math.fsum(value**2 for value in values) / len(values))
