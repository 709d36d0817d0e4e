"""One attempt at one job: the meter starts first and stops last, everything else happens in between."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from device_agents.deploy.bundle import build_bundle
from device_agents.deploy.install import start_agent
from device_agents.protocol import EpochMarker, Heartbeat, ProbeDone, TelemetryMessage
from device_agents.session.agent_session import AgentSession, Ping
from harness.bench.job.bind import JobEvidence, bind
from harness.bench.job.board import PowerShown, StatusBoard
from harness.bench.job.device_state import DeviceState, ask_state
from harness.bench.job.ending import Ending
from harness.bench.job.leftovers import device_job_id, keep_device_record, settle_orphans, write_log
from harness.bench.job.metering import Metering
from harness.bench.job.rest import cool, leave_alone, require_enough_samples, rest
from harness.bench.job.stages import Stage
from harness.bench.job.workload import Workload, Workloads, agent_job
from harness.bench.matrix import BenchJob
from harness.bench.plan import Plan
from harness.evidence.capture import MARKERS_FILE, HostWindow
from harness.inventory import Device, Inventory, connect, installation
from joulefleet.errors import ConfigError, DeviceError, JoulefleetError
from joulefleet.runstore import Journal

if TYPE_CHECKING:
    from device_agents.job import Job
    from device_agents.session.link import Live
    from device_agents.session.running_job import JobResult
    from device_agents.transport import Channel, Transport
    from power.meter import MeterConfig
    from power.model import SampleBlock

log = logging.getLogger(__name__)

PINGS = 20
HOST_TIMES_FILE = "host_times.jsonl"
"""Clock exchanges and idle windows of an attempt without a capture."""

CANCEL_GRACE_S = 10.0
"""How long a device may take to end a job that is cancelled; then the link is cut, which ends it too."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What all jobs of a run share.

    Attributes:
        run: The run's folder.
        run_id: Part of the jobs' names on the devices.
        inventory_path: Beside it lie the pinned host keys.
        settled: Earlier attempts that are known to have left nothing on a device.
    """

    run: Path
    run_id: str
    plan: Plan
    inventory: Inventory
    inventory_path: Path
    workloads: Workloads
    board: StatusBoard
    settled: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Attempt:
    """One attempt at one job.

    Attributes:
        bench: What all jobs share.
        job: What to do.
        number: From 1 on.
        folder: Exists and is empty.
        ending: Ends it from outside.
        on_stage: Told each stage before it begins.
        last_end_s: Monotonic time at which the device's job before ended; None if there was none.
    """

    bench: Bench
    job: BenchJob
    number: int
    folder: Path
    ending: Ending
    on_stage: Callable[[Stage], None]
    last_end_s: float | None = None
    _pings: list[Ping] = field(default_factory=list)
    _idle: list[HostWindow] = field(default_factory=list)

    @property
    def job_id(self) -> str:
        """Its name on the device."""
        return device_job_id(self.bench.run_id, self.job.number, self.number)

    def run(self) -> None:
        """All stages. Afterwards ``folder`` holds a finished capture.

        Raises:
            JoulefleetError: It failed; what there is of it is in ``folder``.
            Stopped: The user stopped it.
        """
        try:
            self._run()
        except BaseException as error:
            reason = self.ending.reason
            if reason is not None and error is not reason:
                raise reason from error  # what followed from ending it is not the news
            raise

    def _run(self) -> None:
        plan = self.bench.plan
        self._at(Stage.COOLDOWN)
        rest(plan.cooldown, self.last_end_s, self.ending)
        if plan.cooldown.temperature_c is not None:
            with self._connect() as transport:
                cool(plan.cooldown, transport, self.ending, on_temperature=self._show_temperature)
        self._at(Stage.METER)
        metering = Metering(
            self._meter(),
            self.folder,
            on_block=self._listener(),
            on_failure=self.ending.request,
            current_max_a=plan.abort.current_max_a,
        )
        with metering:
            require_enough_samples(plan.timing, metering.rate_hz, loaded=self.job.cell.load.cpu_share > 0)
            self._at(Stage.CONNECT)
            with self._connect() as transport:
                self._with_device(transport, metering)
        self._at(Stage.RELEASE)
        self._tabulate()

    def _tabulate(self) -> None:
        """The epochs as a table. The job is finished without it, so a failure is only said."""
        from harness.outputs import write_epochs

        try:
            write_epochs(self.folder)
        except JoulefleetError as error:
            log.warning("%s: no table of its epochs: %s", self.job.name, error)

    def _with_device(self, transport: Transport, metering: Metering) -> None:
        self._at(Stage.DEPLOY)
        state = ask_state(transport)
        self._check_state(state)
        place = installation(self._device)
        with (
            start_agent(transport, build_bundle(), place) as channel,
            Journal(self.folder / MARKERS_FILE) as markers,
        ):
            session = AgentSession(
                channel,
                on_marker=lambda m: self._mark(m, markers),
                on_live=self._live,
            )
            settle_orphans(
                session, self.bench.run, self.bench.run_id, self.job.cell.device, self.bench.settled
            )
            evidence = self._measure(session, channel, state)
            metering.wait_until(time.monotonic_ns())
            metering.stop()
            markers.sync()
            self._at(Stage.VERIFY)
            bind(evidence)
            (self.folder / HOST_TIMES_FILE).unlink(missing_ok=True)  # the capture holds them now
            with contextlib.suppress(DeviceError):  # the capture is whole: what is left there does no harm
                session.forget(self.job_id)

    def _measure(self, session: AgentSession, channel: Channel, state: DeviceState) -> JobEvidence:
        """From the first idle second to the last record collected."""
        order, work = self._order(session.hello.cpus)
        self._at(Stage.IDLE_BEFORE)
        self._exchange_clocks(session)
        self._leave_alone(channel)
        self._at(Stage.ROUND)
        with self._rescued(session):
            with self._cancelled_from_outside(session, channel):
                result = session.run_round(order, self._decide, blobs=work.blobs(), job_id=self.job_id)
            self.ending.check()
            self._take(result)
            self._at(Stage.IDLE_AFTER)
            self._leave_alone(channel)
            self._exchange_clocks(session)
            self._at(Stage.COLLECT)
            record = session.collect(self.job_id)
        write_log(self.folder, record)
        return JobEvidence(
            folder=self.folder,
            capture_id=f"{self.bench.run_id}/{self.job.name}",
            job=self.job,
            attempt=self.number,
            order=order,
            work=work,
            device=self._device,
            state=state,
            hello=session.hello,
            record=record,
            pings=tuple(self._pings),
            idle=tuple(self._idle),
        )

    def _exchange_clocks(self, session: AgentSession) -> None:
        pings = session.ping(PINGS)
        self._pings += pings
        self._note_times("ping", *pings)

    def _leave_alone(self, channel: Channel) -> None:
        """An idle window: the baseline of the round, so its link is as silent as the round's."""
        plan = self.bench.plan
        with channel.without_keepalive() if plan.quiet else contextlib.nullcontext():
            self.ending.sleep(plan.timing.settle_s)
            window = leave_alone(plan.timing.idle_s, self.ending)
        self._idle.append(window)
        self._note_times("idle", window)

    def _note_times(self, kind: str, *times: Ping | HostWindow) -> None:
        """Host times that only ``capture.json`` would hold, on disk in case that there will be none."""
        with Journal(self.folder / HOST_TIMES_FILE) as journal:
            for one in times:
                row = one.model_dump() if isinstance(one, HostWindow) else asdict(one)
                journal.append({"kind": kind, **row})

    def _order(self, cpus: int | None) -> tuple[Job, Workload]:
        """What the agent is told to do, and what it takes for that."""
        plan, cell, workloads = self.bench.plan, self.job.cell, self.bench.workloads
        work = workloads.of(cell)
        samples = workloads.samples(cell.device)
        return agent_job(plan, self.job, work, samples, cpus, self._device.limits), work

    def _take(self, result: JobResult) -> None:
        """The trained weights came back; a measurement has no use for them."""

    def _listener(self) -> Callable[[SampleBlock], None]:
        """Who sees the samples as they come in."""
        return PowerShown(self.bench.board, self.job.cell.device)

    def _decide(self, _: ProbeDone) -> bool:
        """Always on, after a while: the wait is measured too. Unless the job has to end."""
        self.bench.board.set(self.job.cell.device, phase="wait", epoch=1)
        going_on = not self.ending.wait(self.bench.plan.timing.decision_wait_s)
        self.bench.board.set(self.job.cell.device, phase="epoch")
        return going_on

    @contextlib.contextmanager
    def _cancelled_from_outside(self, session: AgentSession, channel: Channel) -> Iterator[None]:
        """The device ends the job when the host does: told so if it listens, cut off if it does not."""
        over = threading.Event()

        def cancel() -> None:
            with contextlib.suppress(DeviceError):
                session.cancel(self.job_id)
            if not over.wait(CANCEL_GRACE_S):
                channel.close()

        with self.ending.calling(cancel):
            try:
                yield
            finally:
                over.set()

    @contextlib.contextmanager
    def _rescued(self, session: AgentSession) -> Iterator[None]:
        """After a failure, what the device has of the round, if it can still be asked."""
        try:
            yield
        except Exception:
            with contextlib.suppress(JoulefleetError):
                keep_device_record(self.folder, session.collect(self.job_id))
            raise

    def _mark(self, marker: EpochMarker, markers: Journal) -> None:
        markers.append(marker.model_dump(mode="json"))
        if marker.edge == "start":
            self.bench.board.set(self.job.cell.device, phase=marker.kind.value, epoch=marker.epoch)

    def _live(self, message: Live) -> None:
        if isinstance(message, TelemetryMessage):
            known = [c for c in message.values.get("temperature_c", ()) if c is not None]
            if known:
                self._show_temperature(max(known))
        elif isinstance(message, Heartbeat) and message.phase:
            self.bench.board.set(self.job.cell.device, phase=str(message.phase), epoch=message.epoch)

    def _show_temperature(self, temperature_c: float) -> None:
        self.bench.board.set(self.job.cell.device, temperature_c=temperature_c)

    def _at(self, stage: Stage) -> None:
        self.ending.check()
        self.on_stage(stage)

    @property
    def _device(self) -> Device:
        return self.bench.inventory.device(self.job.cell.device)

    def _connect(self) -> Transport:
        return connect(self._device, self.bench.inventory_path)

    def _meter(self) -> MeterConfig:
        meter = self.bench.inventory.meter_of(self.job.cell.device)
        if meter is None:
            raise ConfigError(f"device {self.job.cell.device!r} has no meter")
        return meter

    def _check_state(self, state: DeviceState) -> None:
        """A device that would end the job at once is not even asked."""
        if state.temperature_c is not None:
            self._show_temperature(state.temperature_c)
        limits = (self.bench.plan.abort.battery_min_level, self._device.limits.battery_min_level)
        least = max((limit for limit in limits if limit is not None), default=0.0)
        if state.battery_level is not None and state.battery_level < least:
            raise DeviceError(
                f"battery at {state.battery_level:.0%}, below {least:.0%}",
                hint="charge the device, then resume the run",
            )
