"""The rounds in a probing plan: who takes part, who would go on, in which order. Fixed by the plan's seed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.bench.matrix import Cell, plan_devices
from harness.bench.matrix import fingerprint as bench_fingerprint
from harness.bench.plan import NO_LOAD
from harness.inventory import Inventory
from harness.probing.plan import Keep, ProbingPlan
from harness.rounds.round import RoundJob
from joulefleet.errors import ConfigError
from joulefleet.records import canonical_json
from joulefleet.seeds import generator


@dataclass(frozen=True, slots=True)
class PlannedRound:
    """One round.

    Attributes:
        number: From 1 on, in the order of the plan.
        repetition: From 1 on.
        candidates: Devices that take part.
        chosen: K; None in a vanilla round, in which everybody trains all epochs.
        jobs: The candidates' parts, in the order of ``candidates``.
    """

    number: int
    repetition: int
    candidates: tuple[str, ...]
    chosen: int | None
    jobs: tuple[RoundJob, ...]

    @property
    def name(self) -> str:
        """For files and people."""
        return f"{self.number:04d}_{_label(len(self.candidates), self.chosen)}_rep{self.repetition}"


def expand_rounds(plan: ProbingPlan, inventory: Inventory) -> tuple[PlannedRound, ...]:
    """All rounds in the order in which they are to run. Repetitions are blocks.

    Raises:
        ConfigError: There are fewer devices that can be measured at the same time than candidates.
    """
    devices = plan_devices(plan.bench(), inventory)
    _require_devices(plan, inventory, devices)
    rounds: list[PlannedRound] = []
    jobs = 0
    for repetition in range(1, plan.repetitions + 1):
        block: list[tuple[int, int | None]] = []
        for m in plan.candidates:
            block += [(m, None), *((m, k) for k in plan.chosen if k <= m)]
        if plan.order == "random":
            order = generator(plan.seed, "probing order", repetition).permutation(len(block))
            block = [block[i] for i in order]
        for m, k in block:
            candidates = _draw_candidates(plan, inventory, devices, m, repetition)
            of_round = tuple(
                _job(plan, jobs + i, device, m, k, repetition) for i, device in enumerate(candidates, 1)
            )
            jobs += m
            rounds.append(PlannedRound(len(rounds) + 1, repetition, candidates, k, of_round))
    return tuple(rounds)


def kept(
    rule: Keep, seed: int, candidates: Sequence[str], k: int, repetition: int, reports: Mapping[str, float]
) -> frozenset[str]:
    """Who goes on: K of those who reported, by the plan's rule.

    Args:
        rule: The rule.
        seed: Of the plan.
        candidates: All that take part.
        k: How many go on.
        repetition: Of the round; rounds of one repetition with the same M and K keep the same devices.
        reports: Duration of the first epoch, by device.
    """
    if rule == "fastest":
        ranked = sorted(reports, key=lambda device: (reports[device], device))
    else:
        drawn = generator(seed, "probing kept", len(candidates), k, repetition).permutation(len(candidates))
        ranked = [candidates[i] for i in drawn if candidates[i] in reports]
    return frozenset(ranked[:k])


def fingerprint(plan: ProbingPlan, inventory: Inventory) -> str:
    """Hash of what decides the results."""
    content = {
        "probing": plan.model_dump(mode="json"),
        "bench": bench_fingerprint(plan.bench(), inventory),
    }
    return hashlib.sha256(canonical_json(content)).hexdigest()


def _require_devices(plan: ProbingPlan, inventory: Inventory, devices: Sequence[str]) -> None:
    most = max(plan.candidates)
    if most > len(devices):
        raise ConfigError(
            f"{most} candidates, but the bench has {len(devices)} devices",
            hint="ask for fewer candidates, or add devices; more can be predicted from profiles",
        )
    by_meter: dict[str, list[str]] = {}
    for device in devices:
        by_meter.setdefault(inventory.meter_key(device), []).append(device)
    if most > len(by_meter):
        shared = next(names for names in by_meter.values() if len(names) > 1)
        raise ConfigError(
            f"{most} candidates, but only {len(by_meter)} of the {len(devices)} devices can be measured at "
            f"the same time: {' and '.join(shared)} share a meter",
            hint="give each device a meter of its own, or ask for fewer candidates",
        )
    if most > 1:
        inventory.require_places(devices)


def _draw_candidates(
    plan: ProbingPlan, inventory: Inventory, devices: Sequence[str], m: int, repetition: int
) -> tuple[str, ...]:
    """M devices on different meters, in the order of the inventory."""
    drawn: dict[str, str] = {}
    for i in generator(plan.seed, "probing candidates", m, repetition).permutation(len(devices)):
        drawn.setdefault(inventory.meter_key(devices[i]), devices[i])
    taken = set(list(drawn.values())[:m])
    return tuple(device for device in devices if device in taken)


def _job(plan: ProbingPlan, number: int, device: str, m: int, k: int | None, repetition: int) -> RoundJob:
    cell = Cell(device, plan.task, plan.backend, NO_LOAD)
    return RoundJob(number, cell, repetition, label=_label(m, k))


def _label(m: int, k: int | None) -> str:
    return f"vanilla-m{m}" if k is None else f"probing-m{m}-k{k}"
