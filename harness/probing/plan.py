"""``probing.toml``: the rounds to run on a bench, with and without early exit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from device_agents.job import Backend, SyncPattern
from harness.bench.plan import (
    Abort,
    Cooldown,
    JobTiming,
    Label,
    Plan,
    PlannedLoad,
    Repetitions,
    Retry,
    SampleKind,
    check_data,
    check_pair,
)
from joulefleet.config import ClosedModel, load_toml

Count = Annotated[int, Field(ge=1, le=10_000)]
Keep = Literal["random", "fastest"]
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


class ProbingPlan(ClosedModel):
    """The same round both ways, for some numbers of candidates and of devices that are kept.

    In each repetition and for each M one vanilla round is run, and one probing round for each K, all with the
    same candidates and the same order of the data.

    Attributes:
        name: Becomes part of the run's folder.
        devices: Names from the inventory; empty for all that have a meter.
        task: ``softmax``, or a task such as ``mnist-lenet5``.
        backend: What trains.
        candidates: M: how many devices take part. Which ones is drawn anew in each repetition.
        chosen: K: how many of them go on after the probe. Pairs with K above M are left out.
        keep: Who they are: ``random``, or those with the ``fastest`` first epoch; the saving depends on it.
        local_epochs: Of a round, the probe included.
        samples: Training samples on each device.
        device_samples: Other numbers for some of the devices.
        data: ``random`` or ``real`` ones, as in a plan of `joulefleet bench run`.
        batch_size: Samples per step; 0 for the task's own.
        threads: Of the backend; 0 leaves it to the backend.
        repetitions: How often everything is run. One gives no interval.
        seed: Of candidates, choice, order of rounds, data and weights.
        order: Of the rounds of one repetition: drawn, so that whatever drifts falls on all alike, or as
            ``listed``: for each M vanilla first, then each K.
        quiet: Whether the devices send nothing during a round but what the round needs.
        telemetry_hz: Rate of temperature, frequency and the like on the device.
        sync_pattern: Whether bursts are played for the alignment of clocks.
        sync: The bursts.
    """

    name: Label = "probing"
    devices: tuple[str, ...] = ()
    task: str
    backend: Backend
    candidates: tuple[Count, ...] = Field(min_length=1)
    chosen: tuple[Count, ...] = Field(min_length=1)
    keep: Keep = "random"
    local_epochs: int = Field(default=5, ge=2, le=10_000)
    samples: int = Field(default=320, gt=0, le=10_000_000)
    device_samples: dict[str, Annotated[int, Field(gt=0, le=10_000_000)]] = Field(default_factory=dict)
    data: SampleKind = "random"
    batch_size: int = Field(default=0, ge=0, le=1_000_000)
    threads: int = Field(default=0, ge=0, le=1024)
    repetitions: int = Field(default=5, ge=1, le=1000)
    seed: int = Field(default=0, ge=0, lt=2**63)
    order: Literal["random", "listed"] = "random"
    quiet: bool = True
    telemetry_hz: float = Field(default=2.0, gt=0, le=5)
    sync_pattern: bool = True
    sync: SyncPattern = SyncPattern()
    timing: RoundTiming = RoundTiming()
    cooldown: Cooldown = Cooldown()
    abort: Abort = Abort()
    retry: Retry = Retry()

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        for name in ("devices", "candidates", "chosen"):
            values = getattr(self, name)
            if len(set(values)) != len(values):
                raise ValueError(f"{name}: something is listed twice")
        if max(self.chosen) > max(self.candidates):
            raise ValueError(f"chosen: {max(self.chosen)} of {max(self.candidates)} candidates cannot go on")
        if min(self.candidates) < min(self.chosen):
            raise ValueError(
                f"candidates: of {min(self.candidates)} no {min(self.chosen)} can go on, which is the least K"
            )
        check_pair(self.task, self.backend)
        check_data(self.task, self.data)
        return self

    def pairs(self) -> list[tuple[int, int]]:
        """Every M and K that can be."""
        return [(m, k) for m in self.candidates for k in self.chosen if k <= m]

    def bench(self) -> Plan:
        """What the bench has to know to measure one candidate's part of a round."""
        return Plan(
            name=self.name,
            devices=self.devices,
            models=(self.task,),
            backends=(self.backend,),
            loads=(NO_LOAD,),
            local_epochs=self.local_epochs,
            samples=self.samples,
            device_samples=self.device_samples,
            data=self.data,
            batch_size=self.batch_size,
            threads=self.threads,
            warmup_epochs=0,  # the probe of a real round finds the device as it is
            seed=self.seed,
            quiet=self.quiet,
            telemetry_hz=self.telemetry_hz,
            sync_pattern=self.sync_pattern,
            sync=self.sync,
            repetitions=Repetitions(count=self.repetitions),
            # The device has to wait for the decision as long as the server waits for the others.
            timing=JobTiming(
                idle_s=self.timing.idle_s,
                settle_s=self.timing.settle_s,
                decision_wait_s=self.timing.report_timeout_s,
                deadline_s=self.timing.deadline_s,
            ),
            cooldown=self.cooldown,
            abort=self.abort,
            retry=self.retry,
        )


def load_probing_plan(path: Path) -> ProbingPlan:
    """Read a probing plan."""
    return load_toml(path, ProbingPlan)
