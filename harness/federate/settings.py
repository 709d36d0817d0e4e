"""``federate.toml``: how a scenario is played on a bench. Everything has a default."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from emulator import Scenario
from harness.bench.plan import NO_LOAD, Plan, PlannedLoad, RoundSettings, RoundTiming
from joulefleet.config import ClosedModel, load_toml


class FederateTiming(RoundTiming):
    """How long what is not training lasts; what is late is left out of the round, which goes on.

    Attributes:
        load_only_s: A background load runs alone for so long before the training, where there is one.
    """

    load_only_s: float = Field(default=5.0, ge=0.5, le=3600)


class Condition(ClosedModel):
    """Something that is different on a device from a round on.

    Attributes:
        device: Where.
        from_round: The first round in which it holds; later entries of the same device replace it.
        load: What its agent runs beside the training; without it the load stays as it was.
        link_bps: What its link carries, bits per second, as you set it on a router or relay. The bench cannot
            change a link: this is noted with the round, for predictions of it.
    """

    device: str
    from_round: int = Field(default=1, ge=1)
    load: PlannedLoad | None = None
    link_bps: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.load is None and self.link_bps is None:
            raise ValueError("neither load nor link_bps: nothing is different")
        if self.load is not None and self.load.kind == "memory":
            raise ValueError("load.kind: the load curve of a profile is about processors, use 'cpu'")
        return self


class FederateSettings(RoundSettings):
    """How a scenario is played on a bench.

    Attributes:
        devices: Names from the inventory, in the order of the partition; empty for all that have a meter.
        backend: What trains on the devices.
        threads: Of the backend; 0 leaves it to the backend.
        quiet: Whether the devices send nothing during a round but what the round needs.
        telemetry_hz: Rate of temperature, frequency and the like on the device.
        sync_pattern: Whether bursts are played for the alignment of clocks.
        sync: The bursts.
        timing: How long what is not training lasts.
        cooldown: Rest of a device before each round.
        abort: When a device's part is ended at once.
        retry: ``attempts`` is how many rounds in a row a device may fail before it is out of this session.
        conditions: What changes on the way.
    """

    backend: Literal["torch", "onnxruntime"] = "onnxruntime"
    timing: FederateTiming = FederateTiming()
    conditions: tuple[Condition, ...] = ()

    def plan(self, scenario: Scenario) -> Plan:
        """What the bench has to know to measure one device's part of a round."""
        return self.job_plan(
            name="federate",
            models=(scenario.task.name,),
            backends=(self.backend,),
            local_epochs=scenario.protocol.local_epochs,
            batch_size=scenario.task.batch_size or 0,
        )

    def load(self, device: str, number: int) -> PlannedLoad:
        """What runs beside the training on a device in a round."""
        said = [c.load for c in self._holding(device, number) if c.load is not None]
        return said[-1] if said else NO_LOAD

    def link_bps(self, device: str, number: int) -> float | None:
        """What the device's link was said to carry in a round; None if nothing was said."""
        said = [c.link_bps for c in self._holding(device, number) if c.link_bps is not None]
        return said[-1] if said else None

    def _holding(self, device: str, number: int) -> list[Condition]:
        """The latest last."""
        found = [c for c in self.conditions if c.device == device and c.from_round <= number]
        return sorted(found, key=lambda c: c.from_round)


def load_settings(path: Path | None) -> FederateSettings:
    """Read ``federate.toml``; the defaults without one."""
    return FederateSettings() if path is None else load_toml(path, FederateSettings)
