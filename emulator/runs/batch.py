"""Several selectors and seeds of one scenario: a folder each inside one run, and an index of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

from emulator.round.outcome import RoundOutcome
from emulator.runs.emulation import RECORD, Result, emulate, load_result
from emulator.runs.software import SOURCES, check_software, note_accepted, sources_sha256
from emulator.scenario.model import Scenario
from emulator.training.base import OpenTrainer
from joulefleet.config import ClosedModel
from joulefleet.errors import StorageError
from joulefleet.records import StoredRecord, read_record, write_record
from joulefleet.runstore import Run, RunStore

INDEX = "index.json"
KIND = "emulation"


class BatchEntry(ClosedModel):
    """One selector with one seed, and where it is."""

    selector: str
    seed: int
    folder: str


class BatchIndex(StoredRecord):
    """``index.json``: what a run of several emulations holds.

    Attributes:
        scenario: Of all of them, but for the selector.
        planned: All of them, in the order in which they are run.
    """

    scenario: Scenario
    planned: tuple[BatchEntry, ...]

    def scenario_of(self, planned: BatchEntry) -> Scenario:
        """The scenario of one of them; a selector that is not the file's own has its default options."""
        own = self.scenario.selector
        if planned.selector == own.name:
            return self.scenario
        other = own.model_copy(update={"name": planned.selector, "options": {}})
        return self.scenario.model_copy(update={"selector": other})


def plan(scenario: Scenario, selectors: Sequence[str], seeds: Sequence[int]) -> BatchIndex:
    """Every selector with every seed; the seeds of one selector follow each other."""
    planned = tuple(
        BatchEntry(selector=selector, seed=seed, folder=f"{selector}_s{seed}")
        for selector, seed in product(dict.fromkeys(selectors), dict.fromkeys(seeds))
    )
    return BatchIndex(scenario=scenario, planned=planned)


def start(root: Path, index: BatchIndex, text: str) -> Run:
    """A new run folder for a plan; ``text`` is the scenario as it was written."""
    config = {"scenario.toml": text, "scenario.resolved.json": index.scenario.to_json()}
    store = RunStore(root)
    run = store.create(index.scenario.name, kind=KIND, fingerprint=index.sha256(), config=config)
    run.note(**{SOURCES: sources_sha256()})
    write_record(run.path / INDEX, index)
    return run


def resume(path: Path, *, accept_other_software: bool = False) -> tuple[Run, BatchIndex]:
    """Take up a run that was interrupted.

    Raises:
        ConfigError: It was begun with other software, which is not accepted.
    """
    index = read_index(path)
    check_software(path, "start it anew, without --resume", accept=accept_other_software)
    run = RunStore(path.parent).resume(path, fingerprint=index.sha256())
    note_accepted(run, [path])
    return run, index


def read_index(path: Path) -> BatchIndex:
    """The index of a run folder."""
    if not (path / INDEX).is_file():
        raise StorageError(f"{path}: not a run of `joulefleet emulate` (no {INDEX})")
    return read_record(path / INDEX, BatchIndex)


def play(
    run: Run,
    index: BatchIndex,
    on_round: Callable[[BatchEntry, RoundOutcome], None] = lambda *_: None,
    open_trainer: OpenTrainer | None = None,
) -> list[Result]:
    """Run what is not finished yet; returns all results in the order of the plan."""
    results = []
    for planned in index.planned:
        folder = run.path / planned.folder
        if not is_finished(folder):

            def after_round(outcome: RoundOutcome, planned: BatchEntry = planned) -> None:
                on_round(planned, outcome)

            emulate(
                run,
                index.scenario_of(planned),
                planned.seed,
                folder=planned.folder,
                open_trainer=open_trainer,
                on_round=after_round,
            )
        results.append(load_result(folder))
    return results


def is_finished(folder: Path) -> bool:
    """Whether an emulation has come to its end."""
    return (folder / RECORD).is_file() and load_result(folder).record.rounds is not None
