"""One conversation with an agent: clock pings, rounds with their probe decision, collecting what is left.

Every wait has a deadline; whatever comes from the device is checked before it is used.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from device_agents.job import Job
from device_agents.payload.link.wire import MAX_COLLECT_BYTES, MAX_JOURNAL_BYTES, TRANSFER_TIMEOUT_S
from device_agents.protocol import (
    Blob,
    Chunk,
    EpochMarker,
    Hello,
    JobStatus,
    MarkerMessage,
    Ok,
    Pong,
    ProbeDone,
)
from device_agents.session.job_record import JobRecord, read_job
from device_agents.session.link import AgentLink, LiveMessage
from device_agents.session.running_job import (
    GRACE_S,
    MAX_RESULT_BYTES,
    JobResult,
    RunningJob,
    failure_of,
)
from device_agents.transport import Channel
from joulefleet.errors import DeviceError, DeviceProtocolError

MAX_LOG_BYTES = 1 << 20
MAX_EARLY_MARKERS = 16


@dataclass(frozen=True, slots=True)
class Ping:
    """One clock exchange: when it left, when the device saw it, when the answer was here."""

    sent_ns: int
    t_dev_ns: int
    received_ns: int

    @property
    def round_trip_ns(self) -> int:
        """Host time from sending to receiving."""
        return self.received_ns - self.sent_ns


class AgentSession:
    """Talks to one agent.

    Args:
        channel: A fresh agent.
        timeout_s: How long it may be silent, outside quiet jobs.
        on_marker: Called with each marker as soon as the host has it, so that none is lost with the session.
        on_live: Called with everything that a non-quiet job sends as it happens.
    """

    def __init__(
        self,
        channel: Channel,
        *,
        timeout_s: float = 60.0,
        on_marker: Callable[[EpochMarker], None] = lambda _: None,
        on_live: Callable[[LiveMessage], None] = lambda _: None,
    ) -> None:
        self._on_marker = on_marker
        self._on_live = on_live
        self._markers: list[EpochMarker] = []
        self._next_marker = 0
        self._early: dict[int, EpochMarker] = {}
        self._link = AgentLink(channel, timeout_s=timeout_s, on_live=self._live)

    @property
    def hello(self) -> Hello:
        """What the agent said about itself."""
        return self._link.hello

    @property
    def markers(self) -> tuple[EpochMarker, ...]:
        """Every marker that has arrived, also when the session failed later."""
        return tuple(self._markers)

    def ping(self, count: int) -> list[Ping]:
        """Exchange clocks ``count`` times."""
        with self._link.within(self._link.timeout_s, f"the exchange of clocks ({count} times)"):
            return [self._ping() for _ in range(count)]

    def _ping(self) -> Ping:
        # Not to be guessed: an answer that is sent before its ping would make a round trip of no time, and
        # the clock fit would be as sure of its offset as the round trip is short.
        nonce = secrets.randbits(53)
        sent_ns = time.monotonic_ns()
        self._link.send({"type": "ping", "nonce": nonce})
        pong = self._link.expect(Pong)
        received_ns = time.monotonic_ns()
        if pong.nonce != nonce:
            raise DeviceProtocolError(f"the agent answered ping {pong.nonce} where {nonce} was due")
        return Ping(sent_ns, pong.t_dev_ns, received_ns)

    def run_round(
        self,
        job: Job,
        decide: Callable[[ProbeDone], bool] = lambda _: True,
        *,
        blobs: Mapping[str, bytes] | None = None,
        job_id: str | None = None,
    ) -> JobResult:
        """Run a job: probe, ask ``decide`` whether to go on, wait for the end, have all its markers.

        Args:
            job: What to do.
            decide: Given the probe's report, whether the device goes on.
            blobs: The bytes of what the job names: ``model``, ``shard``, ``task``, ``graph-32``.
            job_id: Name of the job on the device, for `attach` after a lost link; invented if not given.

        Raises:
            DeviceError: The job failed; its markers are in `markers`.
            DeviceBusy: Another job runs on the device.
            DeviceUnreachable: The link is down; a new session can `attach` to the job.
        """
        job_id = job_id or new_job_id()
        self._next_marker = 0
        self._early = {}
        start = len(self._markers)
        work = RunningJob(self._link, job, job_id, decide, blobs or {})
        done = work.run()
        failure = failure_of(done)
        self._complete_markers(job_id, job, failure)
        if failure is not None:
            raise failure
        return JobResult(job_id, work.probe, done, tuple(self._markers[start:]), work.model, work.times)

    def cancel(self, job_id: str) -> None:
        """End the job that `run_round` waits for, which then raises; from another thread."""
        self._link.send({"type": "cancel", "job_id": job_id})

    def cancel_orphan(self, job_id: str) -> None:
        """End a job that outlived the link it was started over."""
        self._ask("cancel_orphan", job_id=job_id)

    def require_free(self) -> None:
        """Make sure that no job runs on the device, whoever has started it.

        Raises:
            DeviceBusy: One does; says which.
        """
        self._ask("require_free")

    def attach(self, job_id: str, *, wait_s: float) -> JobRecord:
        """Wait until a job started over another link has ended, then collect it.

        A job that is still running after ``wait_s`` is collected as far as it got.
        """
        return self._read(self._status(job_id, wait_s))

    def collect(self, job_id: str) -> JobRecord:
        """What a job has left on the device so far."""
        return self._read(self._status(job_id, 0.0))

    def fetch_result(self, job_id: str, *, max_bytes: int = MAX_RESULT_BYTES) -> bytes:
        """The trained weights that a job left on the device; see `running_job.read_model`."""
        with self._link.within(TRANSFER_TIMEOUT_S, f"the transfer of the result of job {job_id}"):
            self._link.send({"type": "fetch", "job_id": job_id})
            header = self._link.expect(Blob)
            return self._link.receive_blob(header, max_bytes, TRANSFER_TIMEOUT_S)

    def forget(self, job_id: str) -> None:
        """Remove a finished job from the device."""
        self._ask("forget", job_id=job_id)

    def clear_cache(self) -> None:
        """Remove every cached blob from the device."""
        self._ask("clear_cache")

    def _ask(self, kind: str, **more: str) -> None:
        """A command that is answered with a word."""
        with self._link.within(self._link.timeout_s, kind):
            self._link.send({"type": kind, **more})
            self._link.expect(Ok)

    def _status(self, job_id: str, wait_s: float) -> JobStatus:
        with self._link.within(wait_s + GRACE_S, f"the wait for the end of job {job_id}"):
            self._link.send({"type": "attach", "job_id": job_id, "timeout_s": wait_s})
            status = self._link.expect(JobStatus, wait_s + GRACE_S)
        if status.job_id != job_id:
            raise DeviceProtocolError(f"the agent speaks of job {status.job_id!r}, not {job_id!r}")
        return status

    def _read(self, status: JobStatus) -> JobRecord:
        journal = self._file(status.job_id, "journal", status.journal_bytes, MAX_JOURNAL_BYTES)
        telemetry = self._file(status.job_id, "telemetry", status.telemetry_bytes, MAX_JOURNAL_BYTES)
        log = self._file(status.job_id, "log", min(status.log_bytes, MAX_LOG_BYTES), MAX_LOG_BYTES)
        return read_job(status, journal, telemetry, log)

    def _complete_markers(self, job_id: str, job: Job, failure: DeviceError | None) -> None:
        """Get the markers that a quiet job kept to itself; its telemetry stays there until asked for."""
        try:
            if job.quiet:
                status = self._status(job_id, 0.0)
                journal = self._file(job_id, "journal", status.journal_bytes, MAX_JOURNAL_BYTES)
                for marker in read_job(status, journal, b"", b"").markers:
                    self._keep(marker)
            if self._early:
                raise DeviceProtocolError(f"marker {self._next_marker} of job {job_id} is missing")
        except DeviceError:
            if failure is None:  # else the failure is the news, whatever its journal looks like
                raise

    def _file(self, job_id: str, name: str, size: int, max_bytes: int) -> bytes:
        """A file of a job, piece by piece; no more than the size that the device has stated."""
        if size > max_bytes:
            raise DeviceProtocolError(
                f"{name} of job {job_id} has {size} bytes, more than the {max_bytes} allowed"
            )
        data = bytearray()
        with self._link.within(TRANSFER_TIMEOUT_S, f"the transfer of the {name} of job {job_id}"):
            while len(data) < size:
                limit = min(MAX_COLLECT_BYTES, size - len(data))
                request = {"type": "collect", "job_id": job_id, "file": name, "offset": len(data)}
                self._link.send({**request, "max_bytes": limit})
                chunk = self._link.expect(Chunk)
                if (chunk.job_id, chunk.file, chunk.offset) != (job_id, name, len(data)) or not chunk.size:
                    raise DeviceProtocolError(f"the agent sent another piece of a journal than {request}")
                data += self._link.receive_block(chunk.size, limit, TRANSFER_TIMEOUT_S)
        return bytes(data)

    def _live(self, message: LiveMessage) -> None:
        if isinstance(message, MarkerMessage):
            self._keep(message.marker)
        self._on_live(message)

    def _keep(self, marker: EpochMarker) -> None:
        """Pass markers on in their order. One may come early: from a quiet job whose disk is full."""
        if marker.seq < self._next_marker or len(self._early) > MAX_EARLY_MARKERS:
            raise DeviceProtocolError(f"marker {marker.seq} arrived where {self._next_marker} was due")
        self._early[marker.seq] = marker
        while (due := self._early.pop(self._next_marker, None)) is not None:
            self._next_marker += 1
            self._markers.append(due)
            self._on_marker(due)


def new_job_id() -> str:
    """A name that no job has had."""
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(6)
