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

from device_agents import AgentSession, Ping, build_bundle, start_agent
from harness.bench.job.bind import JobEvidence, bind
from harness.bench.job.cooldown import DeviceState, ask_state, cool, leave_alone, require_enough_samples, rest
from harness.bench.job.failures import (
    attempts_before,
    device_job_id,
    failed_record,
    keep_device_record,
    put_aside,
    settle_orphans,
    write_log,
)
from harness.bench.job.hooks import Ending, Hooks, SoFar, Stage
from harness.bench.job.live_status import DeviceDisplay, StatusBoard
from harness.bench.job.metering import Metering
from harness.bench.job.workload import Assignment, agent_job
from harness.bench.journal import JOBS, Note
from harness.bench.matrix import BenchJob
from harness.bench.plan import Plan
from harness.evidence.capture import CAPTURE_FILE, MARKERS_FILE, HostWindow
from harness.inventory import Device, Inventory, connect, installation
from joulefleet.errors import ConfigError, DeviceError, JoulefleetError, MeterBusy
from joulefleet.files import storage_error
from joulefleet.runstore import Journal

if TYPE_CHECKING:
    from device_agents import HostTimes
    from device_agents.protocol import EpochMarker, ProbeDone
    from device_agents.transport import Channel, Transport
    from power import MeterConfig, SampleBlock

log = logging.getLogger(__name__)

PINGS = 20
HOST_TIMES_FILE = "host_times.jsonl"
"""Clock exchanges, idle windows and the round's messages of an attempt without a capture."""

BUSY_POLL_S = 1.0
"""How often a meter that another process holds is asked for."""

WAITING = "in use by another process"

CANCEL_GRACE_S = 10.0
"""How long a device may take to end a job that is cancelled; then the link is cut, which ends it too."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What all jobs of a run share.

    Attributes:
        run: The run's folder.
        run_id: Part of the jobs' names on the devices.
        inventory_path: Beside it lie the pinned host keys.
        note: Told what happens to each job.
        on_capture: Given the folder of each new capture, to write what is derived from it.
        wait_for_meters: Whether a job waits for a meter that another process holds, rather than failing.
        settled: Earlier attempts that are known to have left nothing on a device.
        last_end_s: Monotonic time at which each device's last job ended.
    """

    run: Path
    run_id: str
    plan: Plan
    inventory: Inventory
    inventory_path: Path
    board: StatusBoard
    note: Note = lambda *_, **__: None
    on_capture: Callable[[Path], object] = lambda _: None
    wait_for_meters: bool = False
    settled: set[str] = field(default_factory=set)
    last_end_s: dict[str, float] = field(default_factory=dict)


class Attempt:
    """One attempt at one job.

    Args:
        bench: What all jobs share.
        job: What to measure.
        assignment: What its device trains.
        hooks: Where the caller takes part.
        ending: Ends it from outside.

    Attributes:
        number: From 1 on.
        folder: Where its evidence goes.
        stage: The last that began.
        waited_s: For whoever held its meter.
    """

    def __init__(
        self,
        bench: Bench,
        job: BenchJob,
        assignment: Assignment,
        hooks: Hooks | None = None,
        ending: Ending | None = None,
    ) -> None:
        self._bench = bench
        self.job = job
        self._assignment = assignment
        self.hooks = hooks or Hooks()
        self.ending = ending or Ending()
        self.number = attempts_before(bench.run, job.name) + 1
        self.folder = bench.run / JOBS / job.name
        self.stage = Stage.RESERVE
        self.waited_s = 0.0
        self._display = DeviceDisplay(bench.board, job.cell.device)
        self._pings: list[Ping] = []
        self._idle: list[HostWindow] = []

    @property
    def job_id(self) -> str:
        """Its name on the device."""
        return device_job_id(self._bench.run_id, self.job.number, self.number)

    @property
    def captured(self) -> bool:
        """Whether there is a capture; what fails after it was written does not undo it."""
        return (self.folder / CAPTURE_FILE).exists()

    def run(self) -> None:
        """All stages. Afterwards ``folder`` holds a finished capture.

        Raises:
            JoulefleetError: It failed; what there is of it is in ``folder``.
            Stopped: The user stopped it.
        """
        try:
            self._at(Stage.RESERVE)
            self._make_folder()
            self._run()
        except BaseException as error:
            reason = self.ending.reason
            if reason is not None and error is not reason:
                raise reason from error  # what followed from ending it is not the news
            raise
        finally:
            self._display.clear()
            self._bench.last_end_s[self.job.cell.device] = time.monotonic()

    def put_aside(self, error: BaseException) -> None:
        """Move what there is of it to ``failed/``, with the reason."""
        if self.folder.exists():
            put_aside(
                self._bench.run, self.folder, failed_record(self.job.name, self.number, self.stage, error)
            )

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True)
        except OSError as error:
            raise storage_error(self.folder, error) from error

    def _run(self) -> None:
        plan = self._bench.plan
        self._at(Stage.COOLDOWN)
        rest(plan.cooldown, self._bench.last_end_s.get(self.job.cell.device), self.ending)
        if plan.cooldown.temperature_c is not None:
            with self._connect() as transport:
                cool(plan.cooldown, transport, self.ending, on_temperature=self._display.temperature)
        self._at(Stage.METER)
        with self._metering() as metering:
            require_enough_samples(plan.timing, metering.rate_hz, loaded=self.job.cell.load.cpu_share > 0)
            self._at(Stage.CONNECT)
            with self._connect() as transport:
                self._with_device(transport, metering)
        self._at(Stage.RELEASE)
        try:
            self._bench.on_capture(self.folder)
        except JoulefleetError as error:  # the job is finished without what is derived from it
            log.warning("%s: no table of its epochs: %s", self.job.name, error)

    @contextlib.contextmanager
    def _metering(self) -> Iterator[Metering]:
        """The meter, recording; if the run waits for meters, not before whoever holds it has let it go."""
        waits = self._bench.wait_for_meters

        def failed(error: BaseException) -> None:
            if not (waits and isinstance(error, MeterBusy)):
                self.ending.request(error)

        with contextlib.ExitStack() as stack:
            while True:
                metering = Metering(
                    self._meter(),
                    self.folder,
                    on_block=self._see,
                    on_failure=failed,
                    current_max_a=self._bench.plan.abort.current_max_a,
                )
                try:
                    stack.enter_context(metering)
                    break
                except MeterBusy as error:
                    if not waits or any(self.folder.iterdir()):  # it was lost after it had begun
                        raise
                    self._wait_for_meter(error)
            yield metering

    def _wait_for_meter(self, error: MeterBusy) -> None:
        if self.waited_s == 0:
            self._bench.note("waiting", self.job.name, attempt=self.number, note=error.message)
            self._display.set(phase=WAITING)
        self.ending.sleep(BUSY_POLL_S)
        self.waited_s += BUSY_POLL_S

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
                on_live=self._display.message,
            )
            settle_orphans(
                session, self._bench.run, self._bench.run_id, self.job.cell.device, self._bench.settled
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
        work = self._assignment.work
        order = agent_job(
            self._bench.plan, self.job, self._assignment, session.hello.cpus, self._device.limits
        )
        self._at(Stage.IDLE_BEFORE)
        self._exchange_clocks(session)
        self._leave_alone(channel)
        self._at(Stage.ROUND)
        with self._rescued(session):
            with self._cancelled_from_outside(session, channel):
                result = session.run_round(order, self._decide, blobs=work.blobs(), job_id=self.job_id)
            self._note_times("round", result.times)
            self.ending.check()
            self.hooks.on_result(result)
            self._at(Stage.IDLE_AFTER)
            self._leave_alone(channel)
            self._exchange_clocks(session)
            self._at(Stage.COLLECT)
            record = session.collect(self.job_id)
        write_log(self.folder, record)
        return JobEvidence(
            folder=self.folder,
            capture_id=f"{self._bench.run_id}/{self.job.name}",
            job=self.job,
            session=self._bench.plan.repetitions.session(self.job.session),
            attempt=self.number,
            order=order,
            work=work,
            device=self._device,
            state=state,
            hello=session.hello,
            result=result,
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
        plan = self._bench.plan
        with channel.without_keepalive() if plan.quiet else contextlib.nullcontext():
            self.ending.sleep(plan.timing.settle_s)
            window = leave_alone(plan.timing.idle_s, self.ending)
        self._idle.append(window)
        self._note_times("idle", window)

    def _note_times(self, kind: str, *times: Ping | HostWindow | HostTimes) -> None:
        """Host times that only ``capture.json`` would hold, on disk in case that there will be none."""
        with Journal(self.folder / HOST_TIMES_FILE) as journal:
            for one in times:
                row = asdict(one) if isinstance(one, Ping) else one.model_dump()
                journal.append({"kind": kind, **row})

    def _see(self, block: SampleBlock) -> None:
        self.hooks.on_block(block)
        self._display.block(block)

    def _decide(self, probe: ProbeDone) -> bool:
        """Ask whoever runs the job; by default on, after a while: the wait is measured too."""
        so_far = SoFar(time.monotonic_ns(), tuple(self._pings), tuple(self._idle))
        self._display.set(phase="wait", epoch=1)
        if self.hooks.decide is None:
            going_on = not self.ending.wait(self._bench.plan.timing.decision_wait_s)
        else:
            going_on = self.hooks.decide(probe, so_far)
        self._display.set(phase="epoch" if going_on else "stopped")
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
        self._display.marker(marker)

    def _at(self, stage: Stage) -> None:
        self.ending.check()
        self.stage = stage
        self._bench.note("stage", self.job.name, attempt=self.number, stage=stage.value)
        self._display.set(job=self.job.name, attempt=self.number, stage=stage.value, epoch=0)
        self.hooks.on_stage(stage)

    @property
    def _device(self) -> Device:
        return self._bench.inventory.device(self.job.cell.device)

    def _connect(self) -> Transport:
        return connect(self._device, self._bench.inventory_path)

    def _meter(self) -> MeterConfig:
        meter = self._bench.inventory.meter_of(self.job.cell.device)
        if meter is None:
            raise ConfigError(f"device {self.job.cell.device!r} has no meter")
        return meter

    def _check_state(self, state: DeviceState) -> None:
        """A device that would end the job at once is not even asked."""
        if state.temperature_c is not None:
            self._display.temperature(state.temperature_c)
        limits = (self._bench.plan.abort.battery_min_level, self._device.limits.battery_min_level)
        least = max((limit for limit in limits if limit is not None), default=0.0)
        if state.battery_level is not None and state.battery_level < least:
            raise DeviceError(
                f"battery at {state.battery_level:.0%}, below {least:.0%}",
                hint="charge the device, then resume the run",
            )
