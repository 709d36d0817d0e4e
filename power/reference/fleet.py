"""Phone profiles computed from published facts: provenance ``literature``, with the error that implies.

The formulas are few and plain, because the facts support no more. `power.reference.facts` says where each
number came from.

- Time of a batch: overhead of the framework, overhead per parameter, arithmetic. All three were fitted to
  on-device training of four networks and an LSTM on one SoC; other SoCs go by their AI-Benchmark score.
- Power: the CoreMark power of the four fastest cores times a factor that was measured for training on the
  anchor SoC, plus that of an awake and idle phone.
- Transfers: power against rate of LTE and 5G, at the median rate of that measurement.
- Beside an app: published measurements of training beside apps, drawn by `emulator.fleet.interference`. A
  profile says which apply (`DeviceProfile.published`). Its load curve is the older model, a fair scheduler on
  shared cores (see `_fair_share`), for scenarios that ask for it.
- From session to session: `VariationFacts`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import cache

from joulefleet.errors import ConfigError
from joulefleet.interval import NORMAL_95
from joulefleet.provenance import Origin, Provenance
from power.profile.model import Battery, DeviceProfile, LoadPoint, PhaseCost, PublishedSpread, TransferCost
from power.profile.quantity import Quantity
from power.reference.facts import (
    PhoneFacts,
    PowerFacts,
    RadioLink,
    ReferenceFacts,
    TaskFacts,
    listed_phones,
    reference_facts,
)

BACKEND = "published"
INTERPOLATED = "interpolated"
"""Backend of a phone whose power nobody measured, so that every table says so."""
_LOADS = (0.0, 0.25, 0.5, 0.75, 1.0)

BASIS = (
    "computed from published facts: training time on phones (BODT, FLASH) scaled by FLOP and by AI-Benchmark "
    "score; CPU power (freqbench) times the training factor of BODT; radio power (SIGCOMM'21); "
    "beside apps by ICDCS'22 and EMDL'21, between sessions by ISPASS'19, with assumptions; the load curve is "
    "that of a fair scheduler, not measured; see power/reference/facts.json"
)

INTERPOLATED_BASIS = (
    "power interpolated: nobody measured this SoC; as SoCs of its AI-Benchmark score draw (freqbench), with "
    "their spread; battery: median of the reference phones; see power/reference/listed.json"
)


@cache
def reference_fleet(task: str | TaskFacts | None = None) -> tuple[DeviceProfile, ...]:
    """Profiles of the reference phones, slowest first; computed from published facts (``literature``).

    Examples:
        >>> phones = reference_fleet("mnist-lenet5")
        >>> [phone.label for phone in phones[:3]]

    Args:
        task: E.g. ``mnist-lenet5``, or the facts of a task of one's own; all tasks if None, one after the
            other.

    Raises:
        ConfigError: The fleet does not have this task.
    """
    phones = reference_facts().phones
    return _profiles(task, sorted(phones, key=lambda phone: phone.score), what="the reference fleet")


@cache
def listed_fleet(task: str | TaskFacts | None = None) -> tuple[DeviceProfile, ...]:
    """Profiles of several hundred phones: those of AI-Benchmark's list, and the reference phones.

    Speed by each phone's own score. Power of its SoC where somebody measured it, else interpolated between
    the measured ones by score, which the profile's backend and basis say. Arguments as in `reference_fleet`.

    Their order has nothing to do with their speed: a fleet of fewer devices takes the first of them.
    """
    facts, listed = reference_facts(), listed_phones().phones()
    own = {phone.device for phone in listed}
    phones = (*listed, *(phone for phone in facts.phones if phone.device not in own))
    return _profiles(task, sorted(phones, key=_shuffled), what="the fleet of AI-Benchmark's list")


def _shuffled(phone: PhoneFacts) -> bytes:
    return hashlib.sha256(phone.device.encode()).digest()


def _profiles(
    task: str | TaskFacts | None, phones: Sequence[PhoneFacts], *, what: str
) -> tuple[DeviceProfile, ...]:
    facts = reference_facts()
    if isinstance(task, TaskFacts):
        tasks = [task]
    else:
        tasks = [found for found in facts.tasks if task in (None, found.name)]
    if not tasks:
        known = ", ".join(found.name for found in facts.tasks)
        raise ConfigError(f"{what} has no task {task!r}", hint=f"it has {known}")
    return tuple(_profile(facts, phone, found) for found in tasks for phone in phones)


def _profile(facts: ReferenceFacts, phone: PhoneFacts, task: TaskFacts) -> DeviceProfile:
    epoch = _epoch(facts, phone, task, epochs=1)
    radio = facts.radios[phone.radio]
    capacity_j = phone.battery_mah * 3.6 * facts.battery_v
    power = facts.power
    return DeviceProfile(
        device=phone.device,
        model=task.model,
        dataset=task.dataset,
        backend=BACKEND if phone.runs else INTERPOLATED,
        samples=task.samples,
        batch_size=task.batch_size,
        probe=epoch,
        epoch=epoch,
        round=_epoch(facts, phone, task, epochs=task.local_epochs),
        local_epochs=task.local_epochs,
        download=_transfer(radio.download, task.bytes, power),
        upload=_transfer(radio.upload, task.bytes, power),
        idle_power_w=Quantity(mean=power.asleep_w),
        wait_power_w=_ratio(power.awake_w, power.awake_log_sd),
        load_curve=tuple(_fair_share(load) for load in _LOADS),
        published=PublishedSpread(
            cores=phone.cores,
            time_log_sd=facts.variation.time_log_sd,
            power_log_sd=facts.variation.power_log_sd,
            class_log_sd=facts.speed.device_log_sd,
            unit_log_sd=phone.score_log_sd or 0.0,
        ),
        battery=Battery(capacity_j=capacity_j, charge_w=capacity_j * facts.charge_share_per_h / 3600),
        provenance=Provenance(
            origin=Origin.LITERATURE, basis=BASIS if phone.runs else f"{INTERPOLATED_BASIS}; {BASIS}"
        ),
    ).sealed()


def _epoch(facts: ReferenceFacts, phone: PhoneFacts, task: TaskFacts, *, epochs: int) -> PhaseCost:
    """Some epochs: their time from arithmetic and score, their energy from time and power."""
    speed, power = facts.speed, facts.power
    batches = epochs * math.ceil(task.samples / task.batch_size)
    overhead_s = batches * (speed.batch_s + speed.parameter_s * task.parameters)
    arithmetic_s = epochs * task.samples * task.flop_per_sample / speed.flop_s[task.family]
    anchor = next(p.score for p in facts.phones if p.soc == speed.soc)
    duration_s = (overhead_s + arithmetic_s) * anchor / phone.score
    time_sd = math.hypot(speed.log_sd[task.family], _device_log_sd(facts, phone))
    own_sd = power.repeat_log_sd if phone.runs else listed_phones().power_log_sd
    power_sd = math.hypot(power.training_log_sd, own_sd)
    net_w = phone.core_w * power.training_factor
    net_j = _ratio(net_w * duration_s, math.hypot(time_sd, power_sd))
    return PhaseCost(
        duration_s=_ratio(duration_s, time_sd),
        gross_j=_ratio((net_w + power.awake_w) * duration_s, math.hypot(time_sd, power_sd)),
        net_j=net_j,
        marginal_j=net_j,
    )


def _device_log_sd(facts: ReferenceFacts, phone: PhoneFacts) -> float:
    """Of the speed of a SoC: its score predicts training less than perfectly, and may be predicted itself."""
    if phone.soc == facts.speed.soc:
        return phone.score_log_sd or 0.0
    predicted = 0.0 if phone.score_phones else facts.speed.coremark_log_sd
    return math.hypot(facts.speed.device_log_sd, phone.score_log_sd or 0.0, predicted)


def _transfer(link: RadioLink, size: int, power: PowerFacts) -> TransferCost:
    duration_s = size * 8 / link.rate_bit_s
    radio_w = link.base_w + link.slope_j_per_bit * link.rate_bit_s
    log_sd = link.sd_w / radio_w
    net_j = _ratio(radio_w * duration_s, log_sd)
    return TransferCost(
        duration_s=Quantity(mean=duration_s),
        gross_j=_ratio((radio_w + power.awake_w) * duration_s, log_sd),
        net_j=net_j,
        marginal_j=net_j,
        bytes=size,
    )


def _fair_share(load: float) -> LoadPoint:
    """Every core is busy a share ``load`` of the time with something else.

    A training thread gets what is left, or its fair half where less than half is. The work, and so the energy
    of the cores, stays the same; it is only done more slowly.
    """
    return LoadPoint(load=load, slowdown=1 / max(1 - load, 0.5), energy_factor=1.0)


def _ratio(mean: float, log_sd: float) -> Quantity:
    """A value that is known up to a factor."""
    return Quantity(mean=mean, factor_95=math.exp(NORMAL_95 * log_sd))
