"""What a plan will take: time, energy, disk. Says what the numbers rest on, and touches nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from device_agents.payload.sync_pattern import Pattern
from harness.bench.matrix import BenchJob, Cell
from harness.bench.plan import Plan
from harness.inventory import Inventory
from joulefleet.errors import JoulefleetError
from power import DeviceProfile, load_profile
from power.profile import PhaseCost

DISK_B_PER_S = {"monsoon-lvpm": 88e3, "monsoon-hvpm": 221e3, "ina219": 20e3}
"""Measured on six seconds of each emulated instrument at its own rate: samples, raw bytes, index."""

METER_START_S = {"monsoon-hvpm": 6.0}
"""An HVPM calibrates before its first sample (`power.recording.recorder.FIRST_SAMPLE_S`)."""

NO_IDLE = ", without idle power, which it does not know"
NO_BASIS = "none: no profile of this device, model and backend was found, so training is left out"


@dataclass(frozen=True, slots=True)
class JobEstimate:
    """What one job takes.

    Attributes:
        fixed_s: What the plan itself says: rest, idle, sync patterns, load alone, waiting.
        training_s: Download, warm-up, epochs, upload; None without a basis.
        energy_j: Of the device during the job; None without a basis.
        disk_bytes: Of the recording; None for an instrument of unknown rate, a lower bound without a basis.
        basis: What the numbers rest on.
    """

    job: str
    optional: bool
    fixed_s: float
    training_s: float | None
    energy_j: float | None
    disk_bytes: float | None
    basis: str

    @property
    def duration_s(self) -> float:
        """As far as it is known."""
        return self.fixed_s + (self.training_s or 0.0)


@dataclass(frozen=True, slots=True)
class SessionEstimate:
    """One session of a plan.

    Attributes:
        session: Its number.
        jobs: Without optional repetitions.
        begins_s: Earliest, after the beginning of the run.
        duration_s: Of its jobs.
    """

    session: int
    jobs: int
    begins_s: float
    duration_s: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a plan takes.

    Attributes:
        jobs: One by one, in order.
        duration_s: Of all jobs, devices in parallel where they can be; connecting and waiting for the next
            session are not in it.
        most_s: The same with all optional repetitions.
        energy_j: Of all jobs that have a basis; None if none has.
        disk_bytes: Of all jobs.
        is_lower_bound: Some job has no basis, or an instrument's rate is unknown.
        sessions: When each may begin; empty where the plan has none.
    """

    jobs: tuple[JobEstimate, ...]
    duration_s: float
    most_s: float
    energy_j: float | None
    disk_bytes: float
    is_lower_bound: bool
    sessions: tuple[SessionEstimate, ...] = ()


def find_profiles(places: Iterable[Path]) -> list[DeviceProfile]:
    """The profiles in some folders, newest name last; unreadable ones are passed over."""
    found = []
    for place in places:
        for path in sorted(place.glob("*.json")):
            try:
                found.append(load_profile(path))
            except JoulefleetError:
                continue
    return found


def estimate(
    plan: Plan, inventory: Inventory, jobs: Sequence[BenchJob], profiles: Sequence[DeviceProfile] = ()
) -> Estimate:
    """Estimate what jobs take."""
    by_cell = {(p.device, model, p.backend): p for p in profiles for model in (p.model, p.task)}
    costs = [_job(plan, inventory, job, by_cell) for job in jobs]
    every = list(zip(jobs, costs, strict=True))
    needed = [(job, cost) for job, cost in every if not job.optional]
    return Estimate(
        jobs=tuple(costs),
        duration_s=sum(_by_session_s(plan, inventory, needed).values()),
        most_s=sum(_by_session_s(plan, inventory, every).values()),
        energy_j=sum(known_j)
        if (known_j := [c.energy_j for _, c in needed if c.energy_j is not None])
        else None,
        disk_bytes=sum(cost.disk_bytes or 0.0 for _, cost in needed),
        is_lower_bound=any(
            c.training_s is None or c.disk_bytes is None or c.basis.endswith(NO_IDLE) for c in costs
        ),
        sessions=tuple(_schedule(plan, inventory, needed)),
    )


def _by_session_s(
    plan: Plan, inventory: Inventory, jobs: Sequence[tuple[BenchJob, JobEstimate]]
) -> dict[int | None, float]:
    sessions = dict.fromkeys(job.session for job, _ in jobs)
    return {
        session: _makespan_s(plan, inventory, [(job, cost) for job, cost in jobs if job.session == session])
        for session in sessions
    }


def _schedule(
    plan: Plan, inventory: Inventory, jobs: Sequence[tuple[BenchJob, JobEstimate]]
) -> Iterator[SessionEstimate]:
    begins_s = 0.0
    for session, duration_s in _by_session_s(plan, inventory, jobs).items():
        if session is not None:
            count = sum(job.session == session for job, _ in jobs)
            yield SessionEstimate(session, count, begins_s, duration_s)
            begins_s += duration_s + (plan.repetitions.apart_s or 0.0)


def _job(
    plan: Plan, inventory: Inventory, job: BenchJob, by_cell: Mapping[tuple[str, str, str], DeviceProfile]
) -> JobEstimate:
    cell = job.cell
    meter = inventory.meter_of(cell.device)
    kind = meter.kind if meter is not None else ""
    recorded_s = _recorded_s(plan, cell)
    fixed_s = plan.cooldown.seconds + METER_START_S.get(kind, 0.0) + recorded_s
    profile = by_cell.get((cell.device, cell.model, cell.backend))
    training_s = energy_j = None
    basis = NO_BASIS
    if profile is not None:
        samples = plan.device_samples.get(cell.device, plan.samples)
        training_s, training_j = _training(plan, cell, profile, samples)
        idle_w = profile.idle_power_w.mean if profile.idle_power_w is not None else 0.0
        energy_j = training_j + idle_w * recorded_s
        basis = f"{profile.origin.value} profile of {profile.samples} samples per epoch"
        if profile.samples != samples:
            basis += f", scaled to {samples}"
        if cell.load.cpu_share and _beside_load(profile, cell) is None:
            basis += ", as if the background load did not slow it down"
        if profile.idle_power_w is None:
            basis += NO_IDLE
    rate = DISK_B_PER_S.get(kind)
    disk = None if rate is None else rate * (recorded_s + (training_s or 0.0))
    return JobEstimate(job.name, job.optional, fixed_s, training_s, energy_j, disk, basis)


def _recorded_s(plan: Plan, cell: Cell) -> float:
    """What the plan itself says, while the meter runs."""
    timing = plan.timing
    pattern = Pattern(plan.sync.order, plan.sync.bit_ns)
    sync_s = 2 * pattern.duration_ns * 1e-9 if plan.sync_pattern else 0.0
    alone_s = timing.load_only_s if cell.load.cpu_share else 0.0
    return 2 * (timing.settle_s + timing.idle_s) + sync_s + alone_s + timing.decision_wait_s


def _training(plan: Plan, cell: Cell, profile: DeviceProfile, samples: int) -> tuple[float, float]:
    """Seconds and joules of everything between the two sync patterns that is not waiting."""
    scale = samples / profile.samples
    beside = _beside_load(profile, cell)
    probe, epoch = (beside, beside) if beside is not None else (profile.probe, profile.epoch)
    later = plan.warmup_epochs + plan.local_epochs - 1
    seconds = (probe.duration_s.mean + later * epoch.duration_s.mean) * scale
    joules = (probe.gross_j.mean + later * epoch.gross_j.mean) * scale
    for transfer in (profile.download, profile.upload):
        if transfer is not None:
            seconds += transfer.duration_s.mean
            joules += transfer.gross_j.mean
    return seconds, joules


def _beside_load(profile: DeviceProfile, cell: Cell) -> PhaseCost | None:
    """An epoch beside a load of the same name, if the profile has one."""
    return next((level.epoch for level in profile.load_levels if level.name == cell.load.name), None)


def _makespan_s(plan: Plan, inventory: Inventory, jobs: Sequence[tuple[BenchJob, JobEstimate]]) -> float:
    """Devices work in parallel, those on one meter after each other, and never more than the plan allows."""
    by_meter: defaultdict[str, float] = defaultdict(float)
    for job, cost in jobs:
        by_meter[inventory.meter_key(job.cell.device)] += cost.duration_s
    longest_s = max(by_meter.values(), default=0.0)
    return max(longest_s, sum(by_meter.values()) / plan.parallel) if plan.parallel else longest_s
