"""A round's local work as the host sees it: hand over the job, answer what the agent asks, until the end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from device_agents.job import BlobRef, Job
from device_agents.payload.link.wire import TRANSFER_TIMEOUT_S
from device_agents.protocol import Accepted, AgentError, Blob, Done, EpochMarker, ProbeDone, Want
from device_agents.session.host_times import Exchange, HostTimes
from device_agents.session.link import AgentLink, error_of
from joulefleet.errors import ConfigError, DeviceError, DeviceProtocolError, DeviceUnreachable

if TYPE_CHECKING:
    from numpy.typing import NDArray

GRACE_S = 30.0
"""How long after its own deadline an agent may take to say so."""

MAX_RESULT_BYTES = 256 << 20
"""Largest model that is taken from a device when its size is not known from what was sent to it."""

MAX_CLOCK_SKEW = 1e-3
"""Relative; twice what a working quartz may be off on both sides (`harness.clock.line.MAX_SKEW_PPM`)."""

HEADER_SLACK_BYTES = 65_536
"""The same arrays may be described at a different length; `read_model` then checks them one by one."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """What a round's local work left behind.

    Attributes:
        job_id: Name of the job on the device.
        probe: The probe's report; None if the job asked for none.
        done: The end.
        markers: In the order they were stamped.
        model: The trained weights, if the job asked for them.
        times: When the host said and heard what.
    """

    job_id: str
    probe: ProbeDone | None
    done: Done
    markers: tuple[EpochMarker, ...]
    model: dict[str, NDArray[Any]] | None
    times: HostTimes


class RunningJob:
    """Runs one job over a link. The device drives; each of its requests is answered once."""

    def __init__(
        self,
        link: AgentLink,
        job: Job,
        job_id: str,
        decide: Callable[[ProbeDone], bool],
        blobs: Mapping[str, bytes],
    ) -> None:
        _check_blobs(job, blobs)
        self._link = link
        self._job = job
        self._job_id = job_id
        self._decide = decide
        self._blobs = dict(blobs)
        self._refs = job.blob_refs()
        self._sent_model = blobs.get("model")
        self.probe: ProbeDone | None = None
        self.model: dict[str, NDArray[Any]] | None = None
        self._sent_ns = 0
        self._done_ns = 0
        self._exchanges: list[Exchange] = []

    @property
    def times(self) -> HostTimes:
        """When the host said and heard what, of a job that is over."""
        return HostTimes(sent_ns=self._sent_ns, exchanges=tuple(self._exchanges), done_ns=self._done_ns)

    def run(self) -> Done:
        """Until the agent says that the job is over, however it ended.

        Raises:
            DeviceError: The agent refused the job, answered nonsense, or was not done `GRACE_S` after the
                job's deadline.
            DeviceUnreachable: The link is down; the job goes on or stops as it was told.
        """
        self._sent_ns = time.monotonic_ns()
        self._link.send({"type": "job", "job_id": self._job_id, **self._job.model_dump(mode="json")})
        with (
            self._link.without_keepalive() if self._job.quiet else contextlib.nullcontext(),
            self._link.within(self._job.deadline_s + GRACE_S, "the job"),
        ):
            return self._converse()

    def _converse(self) -> Done:
        # A quiet agent says nothing between phases: only its own deadline bounds the silence.
        silence_s = self._job.deadline_s + GRACE_S if self._job.quiet else None
        accepted = False
        while True:
            message = self._link.next(silence_s if accepted else None)
            heard_ns = time.monotonic_ns()
            if isinstance(message, AgentError):
                raise error_of(message.code, message.message)
            due = Want | ProbeDone | Blob | Done if accepted else Accepted | Done
            if not isinstance(message, due):
                raise DeviceProtocolError(f"the agent sent {message.type!r}, which is not due")
            self._mine(message)
            if isinstance(message, Done):  # a failure also before it was accepted: no journal can be begun
                if not accepted and message.outcome in ("finished", "stopped"):
                    raise DeviceProtocolError("the agent says that a job is over which it never accepted")
                self._done_ns = heard_ns
                return message
            if isinstance(message, Accepted):
                accepted = True
            else:
                self._answer(message, heard_ns)

    def _mine(self, message: Accepted | Want | ProbeDone | Blob | Done) -> None:
        if message.job_id != self._job_id:
            raise DeviceProtocolError(f"the agent speaks of job {message.job_id!r}, not {self._job_id!r}")

    def _answer(self, message: Want | ProbeDone | Blob, heard_ns: int) -> None:
        if isinstance(message, Want):
            self._hand_over(message, heard_ns)
        elif isinstance(message, ProbeDone):
            self._report(message, heard_ns)
        else:
            self._take(message, heard_ns)

    def _note(self, what: str, heard_ns: int, answer: Literal["", "continue", "stop"] = "") -> None:
        """An answer is about to leave."""
        sent_ns = time.monotonic_ns()
        self._exchanges.append(Exchange(what=what, heard_ns=heard_ns, sent_ns=sent_ns, answer=answer))

    def _hand_over(self, want: Want, heard_ns: int) -> None:
        data = self._blobs.pop(want.name, None)
        if data is None:
            raise DeviceProtocolError(f"the agent asked for {want.name!r}, which is not due")
        ref = self._refs[want.name]
        self._note(want.name, heard_ns)
        self._link.send({"type": "blob", "job_id": self._job_id, "name": want.name, **ref.model_dump()}, data)

    def _report(self, probe: ProbeDone, heard_ns: int) -> None:
        if not self._job.probe or self.probe is not None:
            raise DeviceProtocolError("the agent reported a probe that was not due")
        # The decision rests on this duration, so it is checked before anything else is known.
        since_ns = heard_ns - (self._exchanges[-1].sent_ns if self._exchanges else self._sent_ns)
        if probe.duration_ns > since_ns * (1 + MAX_CLOCK_SKEW):
            raise DeviceProtocolError(
                f"the agent says that its first epoch took {probe.duration_ns * 1e-9:.6g} s, "
                f"{since_ns * 1e-9:.6g} s after it had what it needed for it"
            )
        self.probe = probe
        action: Literal["continue", "stop"] = "continue" if self._decide(probe) else "stop"
        self._note("probe", heard_ns, action)
        self._link.send({"type": "decide", "job_id": self._job_id, "action": action})

    def _take(self, header: Blob, heard_ns: int) -> None:
        if not self._job.upload or self.model is not None:
            raise DeviceProtocolError("the agent sent a result that was not due")
        limit = MAX_RESULT_BYTES if self._sent_model is None else len(self._sent_model) + HEADER_SLACK_BYTES
        data = self._link.receive_blob(header, limit, TRANSFER_TIMEOUT_S)
        # The device's upload lasts until it hears this, so what the host makes of the bytes comes after it.
        self._note("result", heard_ns)
        self._link.send({"type": "got", "job_id": self._job_id, "name": header.name, "sha256": header.sha256})
        self.model = read_model(data, self._sent_model)


def _check_blobs(job: Job, blobs: Mapping[str, bytes]) -> None:
    """Every blob that the job names has to be there, and be it."""
    refs = job.blob_refs()
    if set(blobs) != set(refs):
        odd = ", ".join(sorted(set(blobs) ^ set(refs)))
        raise ConfigError(f"job: {odd} is either named by the job or given as bytes, not both")
    for name, ref in refs.items():
        if BlobRef.of(blobs[name]) != ref:
            raise ConfigError(f"job: the bytes of {name} are not those the job names")


def read_model(data: bytes, like: bytes | None) -> dict[str, NDArray[Any]]:
    """Weights from a device: same names, shapes and types as those sent to it.

    Raises:
        DeviceProtocolError: They are not.
    """
    from device_agents.payload.tensors import unpack_arrays

    try:
        arrays = unpack_arrays(data)
    except (ValueError, RecursionError) as error:
        raise DeviceProtocolError(f"the agent sent weights that do not parse: {error}") from error
    if like is not None:
        sent = unpack_arrays(like)
        wanted = {name: (array.dtype, array.shape) for name, array in sent.items()}
        found = {name: (array.dtype, array.shape) for name, array in arrays.items()}
        if wanted != found:
            wrong = min(name for name, _ in set(wanted.items()) ^ set(found.items()))
            raise DeviceProtocolError(f"the agent sent other weights than it was given: {wrong!r:.80}")
    return arrays


def failure_of(done: Done) -> DeviceError | None:
    """The error that a job's end amounts to; None if it did what it was told."""
    if done.outcome in ("finished", "stopped"):
        return None
    if done.outcome == "failed":
        return error_of(done.code, done.message)
    if done.outcome == "link_lost":
        return DeviceUnreachable(f"the agent gave up on this host: {done.message or 'the link was down'}")
    if done.outcome == "deadline":
        return DeviceError("the job did not end before its deadline", hint="raise deadline_s, or train less")
    if done.outcome == "limit":
        return DeviceError(
            f"the device ended the job: {done.message}",
            hint="let it cool down or charge, or change the limit",
        )
    return DeviceError("the job was cancelled")
