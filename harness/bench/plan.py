"""``plan.toml``: what to measure. Where the devices are is the inventory's business."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from device_agents import Backend, BackgroundLoad, SyncPattern
from harness.evidence.capture import CaptureSession
from harness.inventory import nearest
from joulefleet.config import SPAN, SPAN_S, ClosedModel, load_toml, span_s
from power.profile import StatedSpread

SampleKind = Literal["random", "real"]
Label = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")]


class PlannedLoad(ClosedModel):
    """One level of background load beside the training.

    Attributes:
        name: What reports call it.
        kind: ``cpu`` computes, ``memory`` copies between large buffers.
        cores: Number of workers; 0 for as many as the device has cores.
        cpu_share: Of one core, that each worker takes; 0 is no load at all.
    """

    name: Label
    kind: Literal["cpu", "memory"] = "cpu"
    cores: int = Field(default=1, ge=0, le=64)
    cpu_share: float = Field(ge=0, le=1)

    def background(self, cpus: int | None) -> BackgroundLoad | None:
        """As a job takes it, on a device with so many cores."""
        if self.cpu_share == 0:
            return None
        return BackgroundLoad.constant(self.cpu_share, self.cores or cpus or 1, self.kind)


MOST_APART_S = 366 * SPAN_S["d"]


class Repetitions(ClosedModel):
    """How often each cell of the matrix is measured.

    Attributes:
        count: So often in every session; with ``until_relative`` at least so often.
        until_relative: Go on until half of the 95 % interval of the marginal energy per epoch, over the
            session's repetitions, is at most this share of the mean.
        maximum: But never more often in a session than this.
        sessions: All of this so many times. From three on the spread between sessions is in the intervals of
            the profiles.
        apart: At least so long between the end of a session and the beginning of the next, such as ``12 h``
            (units: s, min, h, d); 12 hours if there are several sessions.
        between_sessions: Standard deviation between sessions over the mean, where fewer than three show it:
            0.03 is 3 %. It is added to the intervals.
        between_sessions_source: Where that number comes from. Profiles show it.
    """

    LATER = frozenset({"sessions", "apart", "between_sessions", "between_sessions_source"})

    count: int = Field(default=3, ge=1, le=1000)
    until_relative: float | None = Field(default=None, gt=0, lt=1)
    maximum: int | None = Field(default=None, ge=2, le=1000)
    sessions: int | None = Field(default=None, ge=1, le=100)
    apart: str | None = Field(default=None, pattern=SPAN)
    between_sessions: float | None = Field(default=None, gt=0, lt=1)
    between_sessions_source: str | None = Field(default=None, min_length=1, max_length=500)

    @field_validator("apart", mode="before")
    @classmethod
    def _is_a_span(cls, value: object) -> object:
        if value is not None and not 0 < (span_s(value) or 0.0) <= MOST_APART_S:
            raise ValueError("should be a number and a unit (s, min, h, d; up to 366 d), such as '12 h'")
        return value

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if (self.until_relative is None) != (self.maximum is None):
            raise ValueError("until_relative and maximum belong together")
        if self.maximum is not None and not 2 <= self.count <= self.maximum:
            raise ValueError("count has to be between 2, for an interval, and maximum")
        if self.apart is not None and (self.sessions or 1) < 2:
            raise ValueError("apart needs two sessions or more")
        if (self.between_sessions is None) != (self.between_sessions_source is None):
            raise ValueError("between_sessions and between_sessions_source belong together")
        return self

    @property
    def most(self) -> int:
        """Repetitions of a session at most."""
        return self.maximum or self.count

    @property
    def apart_s(self) -> float | None:
        """Seconds between sessions; None if there is one."""
        if (self.sessions or 1) < 2:
            return None
        return span_s(self.apart or "12 h")

    def session(self, number: int | None) -> CaptureSession:
        """What a capture says about the session it was made in."""
        stated = None
        if self.between_sessions is not None and self.between_sessions_source is not None:
            stated = StatedSpread(relative_sd=self.between_sessions, source=self.between_sessions_source)
        return CaptureSession(
            number=number or 1, planned=self.sessions or 1, apart_s=self.apart_s, stated_spread=stated
        )


class Cooldown(ClosedModel):
    """Rest of a device before each job.

    Attributes:
        seconds: At least so long after the job before.
        temperature_c: And until its hottest sensor is at most this warm.
        timeout_s: A device that is still warmer after this long fails the job.
    """

    seconds: float = Field(default=0.0, ge=0, le=86_400)
    temperature_c: float | None = Field(default=None, ge=-50, le=150)
    timeout_s: float = Field(default=900.0, gt=0, le=86_400)


class Abort(ClosedModel):
    """When a job is ended at once. The stricter of this and the device's own limits holds.

    Attributes:
        temperature_max_c: Hottest sensor, watched by the device.
        battery_min_level: Battery level from 0 to 1, watched by the device.
        current_max_a: Current over 50 ms, watched by the meter.
    """

    temperature_max_c: float | None = Field(default=None, ge=-100, le=200)
    battery_min_level: float | None = Field(default=None, ge=0, le=1)
    current_max_a: float | None = Field(default=None, gt=0, le=100)


class JobTiming(ClosedModel):
    """How long what is not training lasts.

    Attributes:
        idle_s: The device is left alone before and after the round: the baseline.
        settle_s: And for so long before each of these windows begins: what the link has just woken (radio,
            processor) falls asleep again.
        load_only_s: The background load runs alone, where there is one.
        decision_wait_s: Between the probe's report and the decision, which is always to go on here.
        deadline_s: For the whole round, kept by the device.
    """

    idle_s: float = Field(default=10.0, ge=0.5, le=3600)
    settle_s: float = Field(default=3.0, ge=0, le=600)
    load_only_s: float = Field(default=10.0, ge=0, le=3600)
    decision_wait_s: float = Field(default=2.0, ge=0, le=600)
    deadline_s: float = Field(default=3600.0, gt=0, le=604_800)


class Retry(ClosedModel):
    """What happens after a failure that may cure itself.

    Attributes:
        attempts: Per job; a device or meter that fails so often in a row before anything was measured is
            out until the run is resumed.
        wait_s: Before the second attempt; doubled before each further one, up to ten minutes.
    """

    attempts: int = Field(default=3, ge=1, le=20)
    wait_s: float = Field(default=10.0, ge=0, le=3600)


class JobSettings(ClosedModel):
    """How jobs are measured, whatever they train. The files that people write explain the fields."""

    devices: tuple[str, ...] = ()
    threads: int = Field(default=0, ge=0, le=1024)
    quiet: bool = True
    telemetry_hz: float = Field(default=2.0, gt=0, le=5)
    sync_pattern: bool = True
    sync: SyncPattern = SyncPattern()
    cooldown: Cooldown = Cooldown()
    abort: Abort = Abort()
    retry: Retry = Retry()


class Plan(JobSettings):
    """A matrix of device x model x backend x background load, and how each cell is measured.

    Attributes:
        name: Becomes part of the run's folder.
        devices: Names from the inventory; empty for all that have a meter.
        models: ``softmax``, or tasks such as ``mnist-lenet5``.
        backends: What trains.
        loads: Background loads; by default none.
        local_epochs: Of a round, the probe included.
        samples: Training samples on each device.
        device_samples: Other numbers for some of the devices.
        data: What they are: ``random`` numbers of the right shape, which need no data set, or ``real`` ones
            of the task's data set, which the host sends. Some models train on random numbers more slowly.
        batch_size: Samples per step; 0 for the task's own.
        threads: Of the backend; 0 leaves it to the backend.
        warmup_epochs: Trained before the probe; they count nowhere. In a round nothing is trained before the
            probe, so a profile that is to predict rounds needs 0.
        seed: Of the order of jobs, the data and the weights.
        parallel: How many devices work at the same time; 0 for all.
        quiet: Whether the device sends nothing during the round. Otherwise epochs and temperature can be
            watched as they happen, at the cost of a few radio packets per second.
        telemetry_hz: Rate of temperature, frequency and the like on the device.
        sync_pattern: Whether bursts are played for the alignment of clocks.
        sync: The bursts.
    """

    name: Label = "bench"
    models: tuple[str, ...] = Field(min_length=1)
    backends: tuple[Backend, ...] = Field(min_length=1)
    loads: tuple[PlannedLoad, ...] = Field(default=(PlannedLoad(name="none", cpu_share=0),), min_length=1)
    local_epochs: int = Field(default=5, ge=1, le=10_000)
    samples: int = Field(default=320, gt=0, le=10_000_000)
    device_samples: dict[str, Annotated[int, Field(gt=0, le=10_000_000)]] = Field(default_factory=dict)
    data: SampleKind = "random"
    batch_size: int = Field(default=0, ge=0, le=1_000_000)
    warmup_epochs: int = Field(default=0, ge=0, le=1000)
    seed: int = Field(default=0, ge=0, lt=2**63)
    parallel: int = Field(default=0, ge=0, le=1000)
    repetitions: Repetitions = Repetitions()
    timing: JobTiming = JobTiming()

    @model_validator(mode="after")
    def _cells_exist_and_differ(self) -> Self:
        for name in ("devices", "models", "backends"):
            values = getattr(self, name)
            if len(set(values)) != len(values):
                raise ValueError(f"{name}: something is listed twice")
        if len({level.name for level in self.loads}) != len(self.loads):
            raise ValueError("loads: two levels have the same name")
        for model in self.models:
            for backend in self.backends:
                check_pair(model, backend)
            check_data(model, self.data)
        return self


def check_pair(model: str, backend: str) -> None:
    """Whether a backend trains a model.

    Raises:
        ValueError: The model is unknown, or the backend does not train it.
    """
    from device_agents.workloads import TASKS

    if model != "softmax" and model not in TASKS:
        from emulator.own_code import ALL_TASKS

        if model not in (known := ALL_TASKS.entries()):
            raise ValueError(
                f"models: no model {model!r}; {nearest(model, [*known, 'softmax'])}; "
                "one of your own is given with `--code FILE`"
            )
    if (model == "softmax") != (backend == "numpy"):
        raise ValueError(
            f"backends: {backend!r} does not train {model!r}; numpy trains softmax and nothing else"
        )


def check_data(model: str, data: SampleKind) -> None:
    """Whether there are such samples for a model.

    Raises:
        ValueError: There are none.
    """
    if model == "softmax" and data == "real":
        raise ValueError("data: 'softmax' has no data set; leave it at 'random'")


def load_plan(path: Path) -> Plan:
    """Read ``plan.toml``."""
    return load_toml(path, Plan)


NO_LOAD = PlannedLoad(name="none", cpu_share=0)


class RoundTiming(ClosedModel):
    """How long what is not training lasts.

    Attributes:
        idle_s: The device is left alone before and after the round: the baseline.
        settle_s: And for so long before each of these windows begins.
        start_timeout_s: A round is called off if not all candidates are ready this long after the first.
        report_timeout_s: The server decides without those who have not reported this long after the first
            report; the round then counts as failed.
        deadline_s: For the whole round, kept by the devices.
    """

    idle_s: float = Field(default=10.0, ge=0.5, le=3600)
    settle_s: float = Field(default=3.0, ge=0, le=600)
    start_timeout_s: float = Field(default=1200.0, gt=0, le=86_400)
    report_timeout_s: float = Field(default=600.0, gt=0, le=600)
    deadline_s: float = Field(default=3600.0, gt=0, le=604_800)

    def of_jobs(self) -> JobTiming:
        """The same for one device's job."""
        given = self.model_dump(exclude={"start_timeout_s", "report_timeout_s"})
        # A device has to wait for the decision as long as the server waits for the others.
        return JobTiming(**given, decision_wait_s=self.report_timeout_s)


class RoundSettings(JobSettings):
    """How the devices of a round are measured."""

    timing: RoundTiming = RoundTiming()

    def job_plan(self, **what: Any) -> Plan:
        """The plan of one device's job; ``what`` says what it trains."""
        shared = {name: getattr(self, name) for name in JobSettings.model_fields}
        return Plan(
            **shared,
            timing=self.timing.of_jobs(),
            loads=(NO_LOAD,),
            warmup_epochs=0,  # the probe of a real round finds the device as it is
            **what,
        )
