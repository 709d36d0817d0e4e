"""The jobs in a plan: every cell of the matrix, every repetition, in a random order that a seed fixes."""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.bench.plan import Plan, PlannedLoad
from harness.inventory import Inventory, nearest
from joulefleet.errors import ConfigError
from joulefleet.records import canonical_json, hashed_content
from joulefleet.seeds import generator

REACHED_BY = {"host", "port", "user", "key", "password_env", "jump", "state"}
"""How a device is reached. It may change between two attempts without changing what is measured."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of the matrix."""

    device: str
    model: str
    backend: str
    load: PlannedLoad

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.device} {self.model} {self.backend} {self.load.name}"


@dataclass(frozen=True, slots=True)
class BenchJob:
    """One repetition of one cell.

    Attributes:
        number: From 1 on, in the order of the plan; the same whenever the plan is expanded.
        cell: What is measured.
        repetition: From 1 on, in its session.
        optional: Only run while the interval of its cell is too wide.
        session: From 1 on; None where the plan has no sessions.
    """

    number: int
    cell: Cell
    repetition: int
    optional: bool = False
    session: int | None = None

    @property
    def name(self) -> str:
        """Name of its folder."""
        cell = self.cell
        workload = f"{cell.model}-{cell.backend}-{cell.load.name}"
        session = "" if self.session is None else f"s{self.session}_"
        return f"{self.number:04d}_{cell.device}_{workload}_{session}rep{self.repetition}"

    def follows(self, other: BenchJob) -> bool:
        """Whether the other is an earlier repetition of the same cell in the same session."""
        same = (self.cell, self.session) == (other.cell, other.session)
        return same and other.repetition < self.repetition


def plan_devices(plan: Plan, inventory: Inventory) -> tuple[str, ...]:
    """The devices that a plan measures.

    Raises:
        ConfigError: One is unknown or has no meter, or none is left.
    """
    names = plan.devices or tuple(n for n in inventory.devices if inventory.meter_of(n) is not None)
    if not names:
        raise ConfigError("no device of the inventory has a meter", hint="add [devices.NAME.meter]")
    for name in (*names, *plan.device_samples):
        inventory.device(name)
    unmetered = [name for name in names if inventory.meter_of(name) is None]
    if unmetered:
        raise ConfigError(
            f"device {unmetered[0]!r} has no meter",
            hint=f"add [devices.{unmetered[0]}.meter] to the inventory",
        )
    return names


def expand(plan: Plan, inventory: Inventory) -> tuple[BenchJob, ...]:
    """All jobs in the order in which they are to run.

    Repetitions are blocks: every cell once, in an order drawn anew for each, so that whatever drifts over
    the hours (room temperature, a battery) falls on all cells alike. Sessions follow each other.
    """
    cells = [
        Cell(device, model, backend, load)
        for device in plan_devices(plan, inventory)
        for model in plan.models
        for backend in plan.backends
        for load in plan.loads
    ]
    jobs: list[BenchJob] = []
    sessions = plan.repetitions.sessions
    for session in (None,) if sessions is None else range(1, sessions + 1):
        for repetition in range(1, plan.repetitions.most + 1):
            purpose = (repetition,) if session is None else (session, repetition)
            order = generator(plan.seed, "bench order", *purpose).permutation(len(cells))
            optional = repetition > plan.repetitions.count
            jobs += [
                BenchJob(len(jobs) + i + 1, cells[c], repetition, optional, session)
                for i, c in enumerate(order)
            ]
    return tuple(jobs)


def choose(jobs: Sequence[BenchJob], only: Sequence[str]) -> tuple[BenchJob, ...]:
    """The jobs that ``--only`` names: by number, by name, or by a pattern such as ``*_phone_*``.

    Raises:
        ConfigError: Something matches none.
    """
    if not only:
        return tuple(jobs)
    chosen: set[int] = set()
    for wanted in only:
        found = [job.number for job in jobs if _matches(job, wanted)]
        if not found:
            hint = nearest(wanted, (job.name for job in jobs)) if len(jobs) < 50 else "`--dry-run` lists them"
            raise ConfigError(f"no job {wanted!r} in the plan", hint=hint)
        chosen.update(found)
    return tuple(job for job in jobs if job.number in chosen)


def _matches(job: BenchJob, wanted: str) -> bool:
    if wanted.isdecimal():
        return job.number == int(wanted)
    return fnmatch.fnmatchcase(job.name, wanted)


def fingerprint(plan: Plan, inventory: Inventory, code: Mapping[str, str] | None = None) -> str:
    """Hash of what decides the results: the plan, and of its devices all but how they are reached.

    An instrument that was unplugged may come back at another port, a phone at another address. What it is
    (kind, serial number, channel, limits) must be the same. So must the user's own code, by its hashes.
    """
    devices = {}
    for name in plan_devices(plan, inventory):
        device = inventory.device(name)
        meter = inventory.meter_of(name)
        facts = device.model_dump(mode="json", exclude={*REACHED_BY, "meter", "shared_meter"})
        devices[name] = {**facts, "meter": meter and meter.model_dump(mode="json", exclude={"port"})}
    content = {"plan": hashed_content(plan), "devices": devices, **({"code": dict(code)} if code else {})}
    return hashlib.sha256(canonical_json(content)).hexdigest()
