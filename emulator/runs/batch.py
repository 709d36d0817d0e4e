"""Runs of emulations: selectors and seeds of one scenario, a folder each inside one run, and their index.

The command line and `run` write the same kind of run, so each can go on with what the other began.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from itertools import product
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar

from emulator.own_code.files import GivenCode, given_code, use_code
from emulator.round.outcome import RoundOutcome
from emulator.round.selector import Selector
from emulator.runs.assembly import make_selector
from emulator.runs.emulation import OnRound, emulate
from emulator.runs.result import BatchResult, Result, is_finished, load_result
from emulator.runs.software import check_software, note_accepted, note_sources
from emulator.scenario.code import check_code, with_code
from emulator.scenario.load import load_scenario, scenario_text
from emulator.scenario.model import Scenario
from emulator.training.base import OpenTrainer
from joulefleet.config import ClosedModel
from joulefleet.errors import ConfigError, DamagedEmulation, StorageError
from joulefleet.records import StoredRecord, read_record, write_record
from joulefleet.runstore import Run, RunStatus, RunStore
from joulefleet.runstore.folder import InsidePath
from joulefleet.runstore.run import read_run
from power import DeviceProfile

INDEX = "index.json"
KIND = "emulation"


class PlannedEmulation(Protocol):
    """One emulation of a plan."""

    @property
    def folder(self) -> str:
        """Inside the run."""

    @property
    def seed(self) -> int:
        """Its seed."""


P = TypeVar("P", bound=PlannedEmulation)


class EmulationPlan(Protocol[P]):
    """Selectors with seeds (`BatchIndex`), or those of several scenarios (an experiment)."""

    @property
    def planned(self) -> tuple[P, ...]:
        """All of them, in the order in which they are run."""

    def scenario_of(self, planned: P, /) -> Scenario:
        """The scenario of one of them."""


class BatchEntry(ClosedModel):
    """One selector with one seed, and where it is."""

    selector: str
    seed: int
    folder: InsidePath


class BatchIndex(StoredRecord):
    """``index.json``: what a run of several emulations holds.

    Attributes:
        scenario: Of all of them, but for the selector.
        planned: All of them, in the order in which they are run.
        given: What Python handed over as objects (``selector``, ``profiles``): no file describes them.
    """

    LATER: ClassVar[frozenset[str]] = frozenset({"given"})

    scenario: Scenario
    planned: tuple[BatchEntry, ...]
    given: tuple[str, ...] | None = None

    def scenario_of(self, planned: BatchEntry) -> Scenario:
        """The scenario of one of them; a selector that is not the file's own has its default options."""
        own = self.scenario.selector
        if planned.selector == own.name or "selector" in (self.given or ()):
            return self.scenario
        other = own.model_copy(update={"name": planned.selector, "options": {}})
        return self.scenario.model_copy(update={"selector": other})


def plan(scenario: Scenario, selectors: Sequence[str], seeds: Sequence[int]) -> BatchIndex:
    """Every selector with every seed; the seeds of one selector follow each other.

    Raises:
        ConfigError: There is none, or they are not lists of names and of numbers.
    """
    if isinstance(selectors, str) or not selectors or not all(isinstance(name, str) for name in selectors):
        raise ConfigError(
            f"selectors {selectors!r}: not a list of names",
            hint="`emulator.run(..., selector=...)` takes an object; `joulefleet list selectors` shows names",
        )
    if isinstance(seeds, str | int) or not seeds or not all(isinstance(s, int) and s >= 0 for s in seeds):
        raise ConfigError(f"seeds {seeds!r}: not a list of whole numbers from 0 on", hint="e.g. [0, 1, 2]")
    planned = tuple(
        BatchEntry(selector=selector, seed=seed, folder=f"{selector}_s{seed}")
        for selector, seed in product(dict.fromkeys(selectors), dict.fromkeys(seeds))
    )
    return BatchIndex(scenario=scenario, planned=planned)


def start(root: Path, index: BatchIndex, text: str | None = None) -> Run:
    """A new run folder for a plan; ``text`` is the scenario as it was written, if it was."""
    config = {} if text is None else {"scenario.toml": text}
    config["scenario.resolved.json"] = index.scenario.to_json()
    store = RunStore(root)
    run = store.create(index.scenario.name, kind=KIND, fingerprint=index.sha256(), config=config)
    note_sources(run)
    write_record(run.path / INDEX, index)
    return run


def reopen(
    path: Path, *, given: Sequence[str] = (), accept_other_software: bool = False
) -> tuple[Run, BatchIndex]:
    """Take up a run that was interrupted.

    Args:
        path: The run folder.
        given: What the caller hands over as objects, as in `BatchIndex.given`.
        accept_other_software: Whether to go on if it was begun with other software; the run then says so.

    Raises:
        ConfigError: It was begun with other software, which is not accepted, or with objects that are not
            given again.
    """
    index = read_index(path)
    check_code(index.scenario, given_code())
    if read_run(path).status is RunStatus.COMPLETE:
        raise StorageError(f"{path}: is complete", hint=f"`joulefleet report {path}` makes its page")
    if set(given) != set(index.given or ()):
        begun = " and ".join(index.given or ()) or "nothing"
        raise ConfigError(
            f"{path}: was begun with {begun} given as Python objects, "
            f"now with {' and '.join(given) or 'nothing'}",
            hint=f"`{resuming(path, index)}` continues it",
        )
    check_software(path, "start it anew, without --resume", accept=accept_other_software)
    run = RunStore(path.parent).resume(path, fingerprint=index.sha256())
    note_accepted(run, [path])
    return run, index


def resuming(path: Path, index: BatchIndex) -> str:
    """The command, or where objects have to be given again the call, that goes on with a run."""
    if not index.given:
        return f"joulefleet emulate --resume {path}"
    return f"emulator.resume({str(path)!r}, {', '.join(f'{name}=...' for name in index.given)})"


def read_index(path: Path) -> BatchIndex:
    """The index of a run folder."""
    if not (path / INDEX).is_file():
        raise StorageError(f"{path}: not a run of `joulefleet emulate` (no {INDEX})")
    return read_record(path / INDEX, BatchIndex)


def play(
    run: Run,
    index: EmulationPlan[P],
    on_round: Callable[[P, RoundOutcome], None] = lambda *_: None,
    open_trainer: OpenTrainer | None = None,
    *,
    selector: Selector | None = None,
    profiles: Sequence[DeviceProfile] | None = None,
) -> list[Result]:
    """Run what is not finished yet; returns all results in the order of the plan.

    Raises:
        StorageError: What was stored of some emulations is damaged. All others have come to their end.
    """
    results: list[Result] = []
    damaged: dict[str, str] = {}
    for planned in index.planned:
        folder = run.path / planned.folder
        if not _is_finished(folder, damaged):

            def after_round(outcome: RoundOutcome, planned: P = planned) -> None:
                on_round(planned, outcome)

            try:
                emulate(
                    run,
                    index.scenario_of(planned),
                    planned.seed,
                    folder=planned.folder,
                    selector=deepcopy(selector),
                    profiles=profiles,
                    open_trainer=open_trainer,
                    on_round=after_round,
                )
            except DamagedEmulation as error:
                damaged[str(folder)] = error.message
        if str(folder) not in damaged:
            results.append(load_result(folder))
    if damaged:
        raise StorageError(
            f"{len(damaged)} of {len(index.planned)} emulations are damaged, the others are finished: "
            f"{next(iter(damaged.values()))}",
            hint=f"remove {', '.join(damaged)}, then resume: they begin again",
        )
    return results


def _is_finished(folder: Path, damaged: dict[str, str]) -> bool:
    try:
        return is_finished(folder)
    except (ConfigError, StorageError) as error:  # its record says nothing that can be read
        damaged[str(folder)] = error.message
        return True


def run(
    scenario: Scenario | str | Path,
    *,
    seed: int | None = None,
    selector: Selector | None = None,
    profiles: Sequence[DeviceProfile] | None = None,
    code: Sequence[Path | str] = (),
    out: Path | str = "emulations",
    on_round: OnRound = lambda _: None,
) -> Result:
    """Run a scenario with one selector and one seed; `run_all` takes several.

    Args:
        scenario: Itself, its file, or the name of a preset.
        seed: By default the scenario's first.
        selector: An object instead of the selector that the scenario names, e.g. one under development. A
            copy of it plays: given again, it begins again.
        profiles: Instead of those that the scenario names, e.g. for a model of one's own.
        code: Files of one's own to run: tasks, selectors, rewards, aggregations. A task among them takes the
            place of the scenario's.
        out: Folder in which the run's folder is made.
        on_round: Called after each round.
    """
    found, written = _read(scenario, use_code(*code))
    name = found.selector.name if selector is None else re.sub(r"[^\w.-]+", "-", selector.name)
    index = plan(found, [name], [found.seeds[0] if seed is None else seed])
    given = _given(selector=selector, profiles=profiles)
    index = index.model_copy(update={"given": given or None})
    with start(Path(out), index, written) as stored:
        return _played(stored, index, selector, profiles, on_round)[0]


def run_all(
    scenario: Scenario | str | Path,
    *,
    selectors: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    profiles: Sequence[DeviceProfile] | None = None,
    code: Sequence[Path | str] = (),
    out: Path | str = "emulations",
    on_round: OnRound = lambda _: None,
) -> BatchResult:
    """Run a scenario with several selectors and seeds, as ``joulefleet emulate`` does.

    Example:
        >>> run = emulate("quick", selectors=["fedavg", "oort"], seeds=[0, 1])
        >>> run.rounds.groupby("selector")["energy_j_honest"].sum()

    Args:
        scenario: Itself, its file, or the name of a preset.
        selectors: Names, each with its default options; by default the scenario's own.
        seeds: By default the scenario's own.
        profiles: Instead of those that the scenario names.
        code: Files of one's own to run: tasks, selectors, rewards, aggregations. A task among them takes the
            place of the scenario's.
        out: Folder in which the run's folder is made.
        on_round: Called after each round.

    Raises:
        ConfigError: The scenario, a selector or a profile does not fit.
    """
    found, written = _read(scenario, use_code(*code))
    names = [found.selector.name] if selectors is None else selectors
    index = plan(found, names, found.seeds if seeds is None else seeds)
    for planned in index.planned:  # a misspelt name or option is found now, and no run is left behind
        make_selector(index.scenario_of(planned))
    index = index.model_copy(update={"given": _given(profiles=profiles) or None})
    with start(Path(out), index, written) as stored:
        return BatchResult(stored.path, tuple(_played(stored, index, None, profiles, on_round)))


def resume(
    path: Path | str,
    *,
    selector: Selector | None = None,
    profiles: Sequence[DeviceProfile] | None = None,
    code: Sequence[Path | str] = (),
    accept_other_software: bool = False,
    on_round: OnRound = lambda _: None,
) -> BatchResult:
    """Go on with a run that was interrupted, of Python or of the command line; returns all its results.

    Example:
        >>> resume("emulations/RUN").rounds

    Args:
        path: The run folder.
        selector: As it was given to `run`, if it was.
        profiles: Likewise.
        code: The files that it was begun with, unchanged.
        accept_other_software: Whether to go on if it was begun with other software; the run then says so.
        on_round: Called after each round.

    Raises:
        ConfigError: It was begun with something else.
        StorageError: It is complete, or somebody is writing it.
    """
    use_code(*code)
    given = _given(selector=selector, profiles=profiles)
    stored, index = reopen(Path(path), given=given, accept_other_software=accept_other_software)
    with stored:
        return BatchResult(stored.path, tuple(_played(stored, index, selector, profiles, on_round)))


def _read(scenario: Scenario | str | Path, given: GivenCode) -> tuple[Scenario, str | None]:
    """A scenario, and its text if it was written."""
    if isinstance(scenario, Scenario):
        return with_code(scenario, given), None
    return with_code(load_scenario(scenario), given), scenario_text(str(scenario))


def _played(
    run: Run,
    index: BatchIndex,
    selector: Selector | None,
    profiles: Sequence[DeviceProfile] | None,
    on_round: OnRound,
) -> list[Result]:
    return play(run, index, lambda _, outcome: on_round(outcome), selector=selector, profiles=profiles)


def _given(**objects: object) -> tuple[str, ...]:
    return tuple(name for name, value in objects.items() if value is not None)
