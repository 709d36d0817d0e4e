"""Runs of emulations: selectors and seeds of one scenario, a folder each inside one run, and their index.

The command line and `run` write the same kind of run, so each can go on with what the other began.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path

from emulator.own_code.files import GivenCode, use_code
from emulator.round.outcome import RoundOutcome
from emulator.round.selector import Selector
from emulator.runs.emulation import OnRound, emulate
from emulator.runs.opening import reopen, start, stoppable, stopped
from emulator.runs.planning import BatchIndex, EmulationPlan, P, check_selectors, plan
from emulator.runs.result import BatchResult, Result, is_finished, load_result
from emulator.scenario.code import with_code
from emulator.scenario.load import load_scenario, scenario_text
from emulator.scenario.model import Scenario
from emulator.scenario.sweep import Lists, Selected
from emulator.training.base import OpenTrainer
from joulefleet.errors import ConfigError, DamagedEmulation, JoulefleetError, NobodyLeft, StorageError
from joulefleet.runstore import Run
from power import DeviceProfile


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
        ConfigError, NobodyLeft: Some cannot be played, likewise.
    """
    results: list[Result] = []
    failed: dict[str, JoulefleetError] = {}
    for planned in index.planned:
        folder = run.path / planned.folder
        scenario = index.scenario_of(planned)
        if not _is_finished(folder, scenario, failed):

            def after_round(outcome: RoundOutcome, planned: P = planned) -> None:
                on_round(planned, outcome)

            try:
                emulate(
                    run,
                    scenario,
                    planned.seed,
                    folder=planned.folder,
                    swept=tuple(planned.settings or ()),
                    selector=deepcopy(selector),
                    profiles=profiles,
                    open_trainer=open_trainer,
                    on_round=after_round,
                )
            except (DamagedEmulation, ConfigError, NobodyLeft) as error:
                if len(index.planned) == 1 and not isinstance(error, DamagedEmulation):
                    raise
                failed[str(folder)] = error
        if str(folder) not in failed:
            results.append(load_result(folder))
    if failed:
        raise all_but(failed, len(index.planned))
    return results


def all_but(failed: Mapping[str, JoulefleetError], count: int) -> JoulefleetError:
    """What is said when some emulations of a plan cannot be played and the others have been.

    Args:
        failed: Folders to why.
        count: Of all.
    """
    first = next(iter(failed.values()))
    if any(isinstance(error, StorageError) for error in failed.values()):
        return StorageError(
            f"{len(failed)} of {count} emulations are damaged, the others are finished: {first.message}",
            hint=f"remove {', '.join(failed)}, then resume: they begin again",
        )
    folder = Path(next(iter(failed))).name
    return type(first)(
        f"{len(failed)} of {count} emulations cannot be played, the others are finished: "
        f"{folder}: {first.message}",
        hint=first.hint,
    )


def _is_finished(folder: Path, scenario: Scenario, failed: dict[str, JoulefleetError]) -> bool:
    try:
        return is_finished(folder, scenario.protocol.rounds)
    except (ConfigError, StorageError) as error:  # its record says nothing that can be read
        failed[str(folder)] = StorageError(error.message)
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
    index = plan(found, None, [found.seeds[0] if seed is None else seed])
    if len(index.planned) > 1:
        raise ConfigError(
            f"scenario {found.name!r} is a sweep of {len(index.planned)} variants",
            hint="`joulefleet.emulate` (`emulator.run_all`) runs them all",
        )
    if selector is not None:
        name = re.sub(r"[^\w.-]+", "-", selector.name)
        entry = index.planned[0].model_copy(
            update={"selector": name, "folder": f"{name}_s{index.planned[0].seed}"}
        )
        index = index.model_copy(update={"planned": (entry,)})
    given = _given(selector=selector, profiles=profiles)
    index = index.model_copy(update={"given": given or None})
    with start(Path(out), index, written) as stored:
        return _played(stored, index, selector, profiles, on_round)[0]


def run_all(
    scenario: Scenario | str | Path,
    *,
    selectors: Sequence[Selected] | None = None,
    seeds: Sequence[int] | None = None,
    settings: Lists | None = None,
    profiles: Sequence[DeviceProfile] | None = None,
    code: Sequence[Path | str] = (),
    out: Path | str = "emulations",
    on_round: OnRound = lambda _: None,
) -> BatchResult:
    """Run a scenario with several selectors, settings and seeds, as ``joulefleet emulate`` does.

    Examples:
        >>> run = emulate("quick", selectors=["fedavg", "oort:mode=official"], seeds=[0, 1])
        >>> run.rounds.groupby("method")["energy_j_honest"].sum()
        >>> emulate("quick", settings={"protocol.k": [3, 5], "reward.alpha": [1, 2]})

    Args:
        scenario: Itself, its file, or the name of a preset.
        selectors: Names, with options behind a colon where they are not the default; or tables with ``name``
            and ``options``. By default the scenario's own.
        seeds: By default the scenario's own.
        settings: Keys of the scenario to lists of values; every combination is run.
        profiles: Instead of those that the scenario names.
        code: Files of one's own to run: tasks, selectors, rewards, aggregations. A task among them takes the
            place of the scenario's.
        out: Folder in which the run's folder is made.
        on_round: Called after each round.

    Raises:
        ConfigError: The scenario, a selector or a profile does not fit.
    """
    found, written = _read(scenario, use_code(*code))
    index = plan(found, selectors, seeds, settings)
    check_selectors(index)  # before anything is left behind
    index = index.model_copy(update={"given": _given(profiles=profiles) or None})
    with start(Path(out), index, written) as stored:
        return BatchResult(tuple(_played(stored, index, None, profiles, on_round)), path=stored.path)


def resume(
    path: Path | str,
    *,
    selector: Selector | None = None,
    profiles: Sequence[DeviceProfile] | None = None,
    code: Sequence[Path | str] = (),
    accept_other_software: bool = False,
    more_rounds: int = 0,
    on_round: OnRound = lambda _: None,
) -> BatchResult:
    """Go on with a run that was interrupted, of Python or of the command line; returns all its results.

    Examples:
        >>> resume("emulations/RUN").rounds
        >>> resume("emulations/RUN", more_rounds=20)  # a complete one, as if it had been longer at once

    Args:
        path: The run folder.
        selector: As it was given to `run`, if it was.
        profiles: Likewise.
        code: The files that it was begun with, unchanged.
        accept_other_software: Whether to go on if it was begun with other software; the run then says so.
        more_rounds: How many rounds to add to each emulation of a complete run.
        on_round: Called after each round.

    Raises:
        ConfigError: It was begun with something else, or what it says of itself was edited.
        StorageError: It is complete, or somebody is writing it.
    """
    use_code(*code)
    if type(more_rounds) is not int or more_rounds < 0:
        raise ConfigError(f"more_rounds is {more_rounds!r}", hint="give a whole number from 1 on")
    given = _given(selector=selector, profiles=profiles)
    stored, index = reopen(
        Path(path), given=given, accept_other_software=accept_other_software, more_rounds=more_rounds
    )
    with stored:
        return BatchResult(tuple(_played(stored, index, selector, profiles, on_round)), path=stored.path)


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
    with stoppable(stopped(run.path, index)):
        return play(run, index, lambda _, outcome: on_round(outcome), selector=selector, profiles=profiles)


def _given(**objects: object) -> tuple[str, ...]:
    return tuple(name for name, value in objects.items() if value is not None)
