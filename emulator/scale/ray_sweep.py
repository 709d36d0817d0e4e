"""`play_sweep`: selectors x seeds x scenarios as Ray tasks, one emulation and one processor each.

A task works in a folder of its own node and sends back the files, so that the cluster needs no shared disk.
Ray runs a task again whose worker or node died; nothing of it was stored, so nothing is there twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from device_agents.workloads import OwnCode
from emulator.own_code.files import given_code, use_files
from emulator.runs.batch import all_but
from emulator.runs.emulation import emulate
from emulator.runs.planning import EmulationPlan, P, PlannedEmulation
from emulator.runs.result import EMULATION_FILE, Result, is_finished, load_result
from joulefleet.errors import ConfigError, DamagedEmulation, JoulefleetError, NobodyLeft
from joulefleet.files import scratch_folder, write_atomic
from joulefleet.runstore import Run, RunStore
from joulefleet.runstore.folder import stays_inside

if TYPE_CHECKING:
    from emulator.scenario.model import Scenario

Files = dict[str, bytes]


OnDone = Callable[[P, int, int], None]

RETRIES = 3
"""Of an emulation whose worker or node died; an error of its own is not tried again."""


def play_sweep(
    sweep: Sequence[tuple[Run, EmulationPlan[P]]], on_done: OnDone[P] = lambda *_: None
) -> list[list[Result]]:
    """Run what is not finished yet of several plans at once, on the cluster that is `connected`.

    Args:
        sweep: Plans, each with the run that it is stored in.
        on_done: Called with each emulation that came to its end, how many have, and of how many.

    Returns:
        For each plan all results, in its order.

    Raises:
        StorageError, ConfigError, NobodyLeft: Some cannot be played; all others have come to their end.
    """
    import ray

    task: Any = ray.remote(num_cpus=1, max_retries=RETRIES)(_emulated)
    own_code = tuple(given_code().files.values())
    under_way: dict[Any, tuple[Run, P]] = {}
    for run, index in sweep:
        for planned in unfinished(run, index):
            folder = run.subfolder(planned.folder)
            before = _files(folder) if (folder / EMULATION_FILE).exists() else {}
            reference = task.remote(index.scenario_of(planned), planned, before, own_code)
            under_way[reference] = run, planned
    total = len(under_way)
    failed: dict[str, JoulefleetError] = {}
    try:
        while under_way:
            (reference,), _ = ray.wait(list(under_way), num_returns=1)
            run, planned = under_way.pop(reference)
            try:
                _store(run.subfolder(planned.folder), _answer(reference, planned))
            except (DamagedEmulation, ConfigError, NobodyLeft) as error:
                if total == 1 and not isinstance(error, DamagedEmulation):
                    raise
                failed[str(run.path / planned.folder)] = error
            on_done(planned, total - len(under_way), total)
    finally:
        for reference in under_way:
            ray.cancel(reference, force=True)
    if failed:
        raise all_but(failed, sum(len(index.planned) for _, index in sweep))
    return [[load_result(run.path / one.folder) for one in index.planned] for run, index in sweep]


def unfinished(run: Run, index: EmulationPlan[P]) -> list[P]:
    """What a plan still has to do."""
    return [
        planned
        for planned in index.planned
        if not is_finished(run.path / planned.folder, index.scenario_of(planned).protocol.rounds)
    ]


def _emulated(
    scenario: Scenario,
    planned: PlannedEmulation,
    before: Mapping[str, bytes],
    own_code: Sequence[OwnCode] = (),
) -> Files:
    """One emulation, from what there is of it to its end, somewhere on the cluster."""
    from emulator.training.choose import open_trainer

    use_files(own_code)
    with (
        scratch_folder() as root,
        RunStore(root).create(scenario.name, kind="emulation", fingerprint="") as run,
    ):
        folder = run.subfolder(planned.folder)
        _store(folder, before)
        alone = partial(_with_one_worker, open_trainer)
        swept = tuple(planned.settings or ())
        emulate(run, scenario, planned.seed, folder=planned.folder, swept=swept, open_trainer=alone)
        return _files(folder)


def _with_one_worker(open_trainer: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    return open_trainer(*arguments, **{**options, "workers": 1})


def _answer(reference: Any, planned: PlannedEmulation) -> Files:
    import ray
    from ray.exceptions import RayError, RayTaskError

    try:
        files: Files = ray.get(reference)
    except RayTaskError as error:
        if isinstance(error.cause, JoulefleetError):
            raise error.cause from None
        raise JoulefleetError(f"{planned.folder} failed on the cluster:\n{error}") from None
    except RayError as error:
        raise JoulefleetError(
            f"{planned.folder} was lost {RETRIES + 1} times on the cluster: {error}",
            hint="mostly memory; `--resume` runs what is not finished",
        ) from error
    return files


def _files(folder: Path) -> Files:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _store(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write an emulation's files, the one that says that it is finished last."""
    for name in sorted(files, key=lambda name: name == EMULATION_FILE):
        target = folder / stays_inside(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(target, files[name], replace=True)
    for path in folder.rglob("*"):
        if path.is_file() and str(path.relative_to(folder)) not in files:
            path.unlink()  # e.g. a table of a run that was interrupted, which is now closed
