"""``probing.toml``: the rounds to run on a bench, with and without early exit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from device_agents import Backend
from harness.bench.plan import Label, Plan, Repetitions, RoundSettings, SampleKind, check_data, check_pair
from joulefleet.config import load_toml

Count = Annotated[int, Field(ge=1, le=10_000)]
Keep = Literal["random", "fastest"]


class ProbingPlan(RoundSettings):
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
    repetitions: int = Field(default=5, ge=1, le=1000)
    seed: int = Field(default=0, ge=0, lt=2**63)
    order: Literal["random", "listed"] = "random"

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
        return self.job_plan(
            name=self.name,
            models=(self.task,),
            backends=(self.backend,),
            local_epochs=self.local_epochs,
            samples=self.samples,
            device_samples=self.device_samples,
            data=self.data,
            batch_size=self.batch_size,
            seed=self.seed,
            repetitions=Repetitions(count=self.repetitions),
        )


def load_probing_plan(path: Path) -> ProbingPlan:
    """Read a probing plan."""
    return load_toml(path, ProbingPlan)
