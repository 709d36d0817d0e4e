"""One federated round on the bench: every participant at the same time, each under its own meter."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.bench.job.attempt import Bench
from harness.bench.job.ending import Ending, Stopped
from harness.bench.job.failures import attempts_before, ends_the_run, failed_record, put_aside
from harness.bench.job.stages import Stage
from harness.bench.journal import JOBS
from harness.evidence.capture import CAPTURE_FILE, Capture, open_capture
from harness.federate.participant import LocalWork, Participation
from harness.federate.server import FederatedServer
from harness.probing.schedule import RoundJob
from harness.rounds.bench_run.runner import POLL_S
from harness.rounds.measured import MeasuredPart, read_part
from joulefleet.errors import DataQualityError, describe
from joulefleet.records import storage_error

if TYPE_CHECKING:
    from numpy.typing import NDArray

Note = Callable[[str, RoundJob, dict[str, object]], None]


@dataclass(slots=True)
class Participant:
    """A device in a round.

    Attributes:
        client: Its number in the partition.
        job: Its part.
        local: What it trains.
        stage: The last that began.
        error: Why its part failed; None if there is a capture.
        model: The weights that it sent.
        capture: What was measured.
        part: The same in seconds and joules.
    """

    client: int
    job: RoundJob
    local: LocalWork
    ending: Ending = field(default_factory=Ending)
    stage: Stage = Stage.RESERVE
    error: BaseException | None = None
    model: dict[str, NDArray[Any]] | None = None
    capture: Capture | None = None
    part: MeasuredPart | None = None

    @property
    def device(self) -> str:
        """Its name."""
        return self.job.cell.device

    @property
    def reason(self) -> str:
        """Why its part failed, in one sentence."""
        return "" if self.error is None else f"{self.stage.value}: {describe(self.error)}"


def play_round(
    bench: Bench,
    server: FederatedServer,
    participants: Sequence[Participant],
    stop: threading.Event,
    note: Note = lambda *_: None,
    last_end_s: dict[str, float] | None = None,
) -> None:
    """Run all parts. Who fails is left out, with its evidence put aside; the others go on.

    Args:
        bench: What all rounds share.
        server: Lets them begin, and decides.
        participants: Filled in with what became of them.
        stop: Ends the round when set.
        note: Told what happens to each part: the event, the job, further facts.
        last_end_s: Monotonic time at which each device's round before ended.

    Raises:
        KeyboardInterrupt: ``stop`` was set; nothing of the round counts.
        StorageError: Nothing can be stored.
    """
    parts = [_Part(bench, server, one, note, (last_end_s or {}).get(one.device)) for one in participants]
    for part in parts:
        part.thread.start()
    for part in parts:
        while part.thread.is_alive():
            part.thread.join(POLL_S)
            if stop.is_set():
                for one in participants:
                    one.ending.request(Stopped("the run was stopped"))
    for part in parts:
        part.settle(whole=not stop.is_set())
    if stop.is_set():
        raise KeyboardInterrupt
    fatal = [one.error for one in participants if one.error is not None and ends_the_run(one.error)]
    if fatal:
        raise fatal[0]
    if server.failure is not None:
        raise server.failure


class _Part:
    """One participant's thread."""

    def __init__(
        self, bench: Bench, server: FederatedServer, one: Participant, note: Note, last_end_s: float | None
    ) -> None:
        self._bench = bench
        self._server = server
        self._one = one
        self._note = note
        self._last_end_s = last_end_s
        self._attempt = attempts_before(bench.run, one.job.name) + 1
        self._folder: Path = bench.run / JOBS / one.job.name
        self.thread = threading.Thread(target=self._work, name=one.job.name, daemon=True)

    def settle(self, *, whole: bool) -> None:
        """Keep the capture, or put aside what there is; a round that was stopped has no whole captures."""
        one = self._one
        if one.error is None and whole:
            self._read()
        if (one.error is not None or not whole) and self._folder.exists():
            error = one.error or Stopped("the run was stopped")
            put_aside(
                self._bench.run, self._folder, failed_record(one.job.name, self._attempt, one.stage, error)
            )

    def _read(self) -> None:
        """A capture that has no energy of the kind that is charged is this participant's failure."""
        one = self._one
        try:
            capture = open_capture(self._folder)
            one.part = read_part(capture, one.local.energy)
            one.capture = capture
        except DataQualityError as error:
            self._failed(error)

    def _work(self) -> None:
        one = self._one
        try:
            self._participate()
        except BaseException as error:
            if not (self._folder / CAPTURE_FILE).exists():  # else it failed after it was finished
                self._server.lost(one.device)
                self._failed(error)
        finally:
            self._bench.board.clear(one.device)

    def _failed(self, error: BaseException) -> None:
        one = self._one
        one.error = error
        self._note("part_failed", one.job, {"stage": one.stage.value, "error": describe(error)})

    def _participate(self) -> None:
        one = self._one
        self._begin(Stage.RESERVE)
        try:
            self._folder.mkdir(parents=True)
        except OSError as error:
            raise storage_error(self._folder, error) from error
        work = Participation(
            self._bench,
            one.job,
            self._attempt,
            self._folder,
            one.ending,
            self._begin,
            self._last_end_s,
            server=self._server,
            local=one.local,
        )
        try:
            work.run()
        finally:  # what fails after the capture was finished does not undo the update
            one.model = work.model

    def _begin(self, stage: Stage) -> None:
        one = self._one
        one.stage = stage
        self._note("stage", one.job, {"attempt": self._attempt, "stage": stage.value})
        self._bench.board.set(one.device, job=one.job.name, attempt=self._attempt, stage=stage.value, epoch=0)
        if stage is Stage.ROUND:
            self._server.wait_for_all(one.device, one.ending)
