"""How one device's part of a round is measured: what `probing.toml` and `federate.toml` have in common."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from harness.bench.plan import JobSettings, JobTiming, Plan, PlannedLoad
from joulefleet.config import ClosedModel

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
