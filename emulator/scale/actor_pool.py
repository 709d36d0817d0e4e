"""`ActorPool`: Ray actors that take calls as they are free, and whose loss costs time only.

Ray restarts an actor that died (``max_restarts``) on whatever node has room, and repeats there the request to
join (``max_task_retries``). Its call goes to whoever is free in the meantime: a retry that waits for the same
actor would wait for ever once a node is gone and nobody else has a processor to spare.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from emulator.scale.actor import NotJoined, TrainingActor
from joulefleet.errors import ConfigError, JoulefleetError

if TYPE_CHECKING:
    from device_agents.workloads import Task
    from emulator.scale.actor import ActorAnswer, ActorLocation
    from emulator.training.client_data import ClientData

ATTEMPTS = 4
"""A call that ended its actor so many times ends the run: a fault that comes back is not the cluster's."""

PATIENCE_S = 600.0
"""How long to wait without a single actor, which an autoscaler may need minutes to find a machine for."""

_NOTICE_S = 15.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ActorCall:
    """A method of `TrainingActor` and its arguments; ``home`` is the member that has the clients' states."""

    method: str
    arguments: tuple[Any, ...]
    home: int | None = None


@dataclass(frozen=True, slots=True)
class PoolAnswer:
    """An answer, and which member gave it."""

    member: int
    answer: ActorAnswer[Any]


class ActorPool:
    """Actors of one processor and one thread each.

    Args:
        size: How many; those that find no room on the cluster join when there is some.
        task: What is trained, and how.
        clients: Everybody's data; it crosses the network once per node.
        implementation: Of training.
    """

    def __init__(self, size: int, task: Task, clients: ClientData, implementation: str) -> None:
        import ray

        if size < 1:
            raise ConfigError(
                "training on Ray needs at least one actor", hint="is there a node with a processor?"
            )
        self.lost = 0
        # Kept: a restarted actor needs it again.
        self._entry: tuple[Any, ...] = task, ray.put(clients), implementation
        actor: Any = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)(TrainingActor)
        self._actors = [actor.remote() for _ in range(size)]
        self._present: dict[int, ActorLocation] = {}
        self._joining: dict[Any, int] = {}
        for member in range(size):
            self._ask_to_join(member)

    def __len__(self) -> int:
        return len(self._actors)

    @property
    def present(self) -> dict[int, ActorLocation]:
        """The members that can work, as far as is known."""
        return dict(self._present)

    def run(self, calls: Sequence[ActorCall]) -> list[PoolAnswer]:
        """Answers in the order of the calls; started in their order, whoever is free takes the next.

        Raises:
            JoulefleetError: A call failed, ended its actor again and again, or no actor could be had.
        """
        work = _Work(calls)
        seen_s = time.monotonic()
        try:
            while work.unfinished:
                self._give(work)
                finished = self._wait([*self._joining, *work.running])  # the first that is ready counts
                if finished or work.running:
                    seen_s = time.monotonic()
                elif time.monotonic() - seen_s > PATIENCE_S:
                    _nobody()
                for reference in finished:
                    self._take(work, reference)
        finally:
            self._abandon(work)
        return [work.answers[number] for number in range(len(calls))]

    def close(self) -> None:
        """End the actors."""
        import ray

        for actor in self._actors:
            ray.kill(actor)
        self._actors, self._present, self._joining, self._entry = [], {}, {}, ()

    def _give(self, work: _Work) -> None:
        busy = {member for member, _ in work.running.values()}
        for member in self._present:
            if member in busy:
                continue
            number = work.next_for(member, self._present)
            if number is not None:
                call = work.calls[number]
                method = getattr(self._actors[member], call.method).options(max_task_retries=0)
                work.running[method.remote(*call.arguments)] = member, number

    def _wait(self, references: list[Any]) -> list[Any]:
        import ray

        finished, _ = ray.wait(references, num_returns=1, timeout=_NOTICE_S)
        if not finished:
            away = len(self) - len(self._present)
            if away:
                _log.warning("%d of %d Ray actors wait for a processor of the cluster", away, len(self))
        found: list[Any] = finished
        return found

    def _take(self, work: _Work, reference: Any) -> None:
        """A call's answer, or a member that joins."""
        if reference in self._joining:
            self._joined(reference)
            return
        import ray
        from ray.exceptions import ObjectLostError, OutOfMemoryError, RayActorError, RayTaskError

        member, number = work.running.pop(reference)
        try:
            work.answers[number] = PoolAnswer(member, ray.get(reference))
        except (RayActorError, ObjectLostError, OutOfMemoryError) as error:
            self._left(member, error)
            work.again(number, error)
        except RayTaskError as error:
            if not isinstance(error.cause, NotJoined):
                _failed(error)
            self._left(member, error.cause)
            work.again(number, error.cause)

    def _joined(self, reference: Any) -> None:
        import ray
        from ray.exceptions import RayError, RayTaskError

        member = self._joining.pop(reference)
        try:
            self._present[member] = ray.get(reference)
        except RayTaskError as error:
            _failed(error)
        except RayError as error:
            raise JoulefleetError(
                f"a Ray actor did not start: {error}",
                hint="joulefleet and torch must be installed on every node, in the same versions",
            ) from error

    def _left(self, member: int, error: Exception) -> None:
        where = self._present.pop(member)
        self.lost += 1
        _log.warning("a Ray actor was lost (process %d, node %s): %s", where.process, where.node_id, error)
        self._ask_to_join(member)

    def _ask_to_join(self, member: int) -> None:
        self._joining[self._actors[member].join.remote(*self._entry)] = member

    def _abandon(self, work: _Work) -> None:
        """After an error or an interrupt: whoever is still at work for nobody starts anew."""
        import ray

        for member, _ in work.running.values():
            ray.kill(self._actors[member], no_restart=False)
            del self._present[member]
            self._ask_to_join(member)


class _Work:
    """Calls, and how far they are."""

    def __init__(self, calls: Sequence[ActorCall]) -> None:
        self.calls = calls
        self.running: dict[Any, tuple[int, int]] = {}  # reference: (member, call)
        self.answers: dict[int, PoolAnswer] = {}
        self._waiting = list(range(len(calls)))
        self._attempts: dict[int, int] = {}

    @property
    def unfinished(self) -> bool:
        return len(self.answers) < len(self.calls)

    def next_for(self, member: int, present: dict[int, ActorLocation]) -> int | None:
        """The first call that this member has the clients of, or that nobody present has."""
        for place, number in enumerate(self._waiting):
            home = self.calls[number].home
            if home == member or home not in present:
                return self._waiting.pop(place)
        return None

    def again(self, number: int, error: Exception) -> None:
        """Put back a call whose actor was lost."""
        attempts = self._attempts[number] = self._attempts.get(number, 0) + 1
        if attempts >= ATTEMPTS:
            raise JoulefleetError(
                f"the same work ended {attempts} Ray actors, the last one with: {error}",
                hint="mostly memory: fewer actors per node (trainer.workers), or nodes with more memory",
            ) from error
        self._waiting.insert(0, number)


def _failed(error: Any) -> NoReturn:
    """What went wrong inside an actor, as it would have been here."""
    if isinstance(error.cause, JoulefleetError):
        raise error.cause from None
    raise JoulefleetError(f"a Ray actor failed:\n{error}") from None


def _nobody() -> NoReturn:
    raise JoulefleetError(
        f"no Ray actor could be started within {PATIENCE_S:.0f} s",
        hint="`ray status` shows what the cluster has and who takes it; each actor needs one CPU",
    )
