"""A run opened for reading: what its jobs measured, as data frames for notebooks and tables for exports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from harness.bench.job.failures import ATTEMPT_FILE, FAILED, AttemptRecord
from harness.evidence.capture import CAPTURE_FILE, Capture, open_capture, verify_capture
from harness.profiles.build import build_profile
from harness.profiles.cells import by_cell
from harness.results.findings import finding_table
from harness.results.overview import JobLine, overview
from harness.results.profile_table import profile_table
from harness.results.tables import (
    JobCapture,
    RunTable,
    epoch_table,
    job_table,
    marker_table,
    phase_table,
    probing_round_table,
)
from harness.rounds.record import FEDERATION, PROBING, ROUNDS, FederatedRoundRecord
from joulefleet.errors import ConfigError, DataQualityError, JoulefleetError, StorageError, describe
from joulefleet.provenance import Origin, weakest
from joulefleet.records import read_record
from joulefleet.runstore.run import RUN_FILE, read_run
from joulefleet.runstore.store import summarise
from power import DeviceProfile

if TYPE_CHECKING:
    import pandas as pd

    from harness.results.emulations import JoinedTable

CUT_SHORT = {"Stopped": "pending", "Killed": "killed"}
"""States of jobs whose last attempt did not fail by itself, by the type of its error."""


class StoredRun:
    """A run on disk, finished or not. Nothing is written; what was read once is kept.

    Attributes:
        path: Its folder.
        record: Its ``run.json``.
        problems: Why a part of it could not be read or a profile not be built, by where; found on the way.
    """

    def __init__(self, path: Path) -> None:
        if not (path / RUN_FILE).is_file():
            raise StorageError(f"{path}: not a run", hint="`joulefleet runs list` shows them")
        self.path = path
        self.record = read_run(path)
        self.problems: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<{self.record.kind} run {self.path.name}, {self.state}>"

    @property
    def state(self) -> str:
        """As in ``joulefleet runs list``."""
        return summarise(self.path).state

    @cached_property
    def captures(self) -> tuple[JobCapture, ...]:
        """Every finished capture in it. One that cannot be read is among the problems."""
        return tuple(self._captures())

    def _captures(self) -> Iterator[JobCapture]:
        for file in sorted(self.path.rglob(CAPTURE_FILE)):
            where = file.parent.relative_to(self.path)
            if FAILED in where.parts:
                continue
            try:
                capture = open_capture(file.parent)
                job = JobCapture(where.name, capture, tuple(verify_capture(capture)))
                job.phases  # noqa: B018 - kept; what cannot be integrated must not stop the others later
            except (JoulefleetError, OSError) as error:
                self.problems[where.name] = describe(error)
            else:
                yield job

    @cached_property
    def job_lines(self) -> tuple[JobLine, ...]:
        """Its jobs; of a run without a plan of jobs, its captures and what did not become one."""
        if self.record.kind == "bench" and (self.path / "config" / "plan.toml").is_file():
            try:
                return overview(self.path).jobs
            except ConfigError as error:  # the plan of another version
                self.problems["config"] = error.message
            except StorageError as error:  # captures stand for themselves
                self.problems["journal"] = error.message
        found = {
            job.job: JobLine(job.job, "finished", attempt=job.capture.record.attempt) for job in self.captures
        }
        for line in (*self._lines_of_rounds(), *self._lines_of_attempts()):
            found.setdefault(line.name, line)
        return tuple(found[name] for name in sorted(found))

    def _lines_of_rounds(self) -> Iterator[JobLine]:
        """What a federation noted of its rounds: parts that failed may have left nothing else behind."""
        if self.record.kind != FEDERATION:
            return
        attempts = Counter(attempt.job for attempt in self.failed_attempts)
        for file in sorted((self.path / ROUNDS).glob("*.json")):
            try:
                parts = read_record(file, FederatedRoundRecord).parts
            except JoulefleetError as error:
                self.problems[f"{ROUNDS}/{file.name}"] = error.message
                continue
            for part in parts:
                state = "failed" if part.failure else "finished"
                yield JobLine(part.job, state, attempt=attempts[part.job], error=part.failure)

    def _lines_of_attempts(self) -> Iterator[JobLine]:
        """The last attempt of every job of which one did not become a capture."""
        for one in {attempt.job: attempt for attempt in self.failed_attempts}.values():
            state = CUT_SHORT.get(one.error_type, "failed")
            yield JobLine(one.job, state, one.stage, one.attempt, error=one.message)

    @cached_property
    def failed_attempts(self) -> tuple[AttemptRecord, ...]:
        """Attempts that did not become a capture, with why."""
        return tuple(sorted(self._attempts(), key=lambda attempt: (attempt.job, attempt.attempt)))

    def _attempts(self) -> Iterator[AttemptRecord]:
        for file in (self.path / FAILED).glob(f"*/{ATTEMPT_FILE}"):
            try:
                yield read_record(file, AttemptRecord)
            except JoulefleetError as error:
                self.problems[f"{FAILED}/{file.parent.name}"] = error.message

    @cached_property
    def device_profiles(self) -> tuple[DeviceProfile, ...]:
        """Built from the captures that are still what was recorded. Why one is missing is a problem."""
        whole = [job.capture for job in self.captures if not job.changed]
        return tuple(self._profiles(whole))

    def _profiles(self, captures: list[Capture]) -> Iterator[DeviceProfile]:
        for key, found in by_cell(captures).items():
            try:
                yield build_profile(found)
            except DataQualityError as error:
                self.problems[f"profile of {key.device}, {key.workload}, {key.backend}"] = error.message

    @property
    def origin(self) -> Origin | None:
        """The weakest claim of its captures, or `EMULATED` for emulations; None without any."""
        origins = [job.origin for job in self.captures]
        if not origins and self._has_emulations():
            return Origin.EMULATED
        return weakest(origins) if origins else None

    @cached_property
    def emulations(self) -> tuple[JoinedTable, ...]:
        """Tables of the rounds and participants of its emulations; nothing if it has none."""
        from harness.results.emulations import emulation_tables  # brings most of the emulator with it

        return emulation_tables(self.path)

    def _has_emulations(self) -> bool:
        from emulator.runs import emulations_below

        return bool(emulations_below(self.path))

    def check_has_tables(self) -> None:
        """Before a folder is made that would hold empty tables only.

        Raises:
            DataQualityError: The run has neither jobs nor emulations.
        """
        if not self.job_lines and not self._has_emulations():
            raise DataQualityError(
                f"{self.path}: a run of kind {self.record.kind!r} without jobs or rounds: nothing to write",
                hint="runs of `joulefleet emulate`, `experiment`, `bench` and `probing` have some",
            )

    def tables(self) -> tuple[RunTable, ...]:
        """Everything but the samples."""
        return (
            job_table(self.job_lines),
            epoch_table(self.captures),
            phase_table(self.captures),
            profile_table(self.device_profiles),
            self.finding_table(),
            marker_table(self.captures),
            *([probing_round_table(self.path)] if self.record.kind == PROBING else []),
        )

    def finding_table(self) -> RunTable:
        """What a reader of the numbers must know, the most severe first."""
        finished = {job.name for job in self.job_lines if job.state == "finished"}
        parts = (self.captures, self.failed_attempts, finished, self.device_profiles)
        return finding_table(*parts, self.problems)  # last: reading the others finds problems

    def rounds(self) -> pd.DataFrame:
        """One row per round, of emulations and federations with its costs, of probing runs who took part.

        Raises:
            DataQualityError: A run of this kind has no rounds.
        """
        if self.record.kind == PROBING:
            return probing_round_table(self.path).frame()
        return self._joined("rounds")

    def clients(self) -> pd.DataFrame:
        """One row per participant and round of emulations and federations.

        Raises:
            DataQualityError: A run of this kind has none.
        """
        return self._joined("clients")

    def _joined(self, name: str) -> pd.DataFrame:
        for table in self.emulations:
            if table.name == name:
                return table.frame()
        raise DataQualityError(
            f"{self.path}: a run of kind {self.record.kind!r} has no table of {name}",
            hint="runs of `joulefleet emulate`, `experiment` and `bench federate` have one",
        )

    def epochs(self) -> pd.DataFrame:
        """One row per epoch: seconds, gross joules with interval, watts, net joules."""
        return epoch_table(self.captures).frame()

    def phases(self) -> pd.DataFrame:
        """One row per phase, idle time included."""
        return phase_table(self.captures).frame()

    def profiles(self) -> pd.DataFrame:
        """One row per phase, background load or power of every profile, each mean beside its interval."""
        return profile_table(self.device_profiles).frame()

    def findings(self) -> pd.DataFrame:
        """What a reader of the numbers must know."""
        return self.finding_table().frame()

    def markers(self) -> pd.DataFrame:
        """One row per marker, on the device's clock and the host's."""
        return marker_table(self.captures).frame()

    def jobs(self) -> pd.DataFrame:
        """One row per job, whatever became of it."""
        return job_table(self.job_lines).frame()


def open_run(path: str | Path) -> StoredRun:
    """Any run on disk, finished or not: bench, probing, federation, emulation, experiment or demo.

    Examples:
        >>> open_run("runs/20260101T120000Z_bench_1a2b3c4d").epochs()

    Raises:
        StorageError: There is no run there.
    """
    return StoredRun(Path(path))
