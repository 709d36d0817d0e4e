"""Run folders of several emulations: a new one, one that is taken up again, one that is extended."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from emulator.own_code.files import given_code
from emulator.runs.planning import BatchIndex
from emulator.runs.result import is_finished
from emulator.runs.software import check_software, note_accepted, source_facts
from emulator.scenario.code import check_code
from joulefleet.errors import ConfigError, StorageError
from joulefleet.files import file_sha256
from joulefleet.records import read_record, write_record
from joulefleet.runstore import Run, RunStatus, RunStore
from joulefleet.runstore.run import read_run

INDEX = "index.json"
KIND = "emulation"


def start(root: Path, index: BatchIndex, text: str | None = None) -> Run:
    """A new run folder for a plan; ``text`` is the scenario as it was written, if it was."""
    config = {} if text is None else {"scenario.toml": text}
    config["scenario.resolved.json"] = index.scenario.to_json()
    hashes = {name: hashlib.sha256(said.encode()).hexdigest() for name, said in config.items()}
    index = index.model_copy(update={"config": hashes})
    return RunStore(root).create(
        index.scenario.name,
        kind=KIND,
        fingerprint=index.fingerprint,
        config=config,
        facts=source_facts(),
        records={INDEX: index},
    )


def reopen(
    path: Path, *, given: Sequence[str] = (), accept_other_software: bool = False, more_rounds: int = 0
) -> tuple[Run, BatchIndex]:
    """Take up a run that was interrupted, or one that is complete to play more rounds.

    Args:
        path: The run folder.
        given: What the caller hands over as objects, as in `BatchIndex.given`.
        accept_other_software: Whether to go on if it was begun with other software; the run then says so.
        more_rounds: How many rounds to add to each emulation of a complete run.

    Raises:
        ConfigError: It was begun with other software, which is not accepted, or with objects that are not
            given again, or what it says of itself was edited.
        StorageError: It is complete, or it is not and more rounds are asked for.
    """
    index = read_index(path)
    check_code(index.scenario, given_code())
    _check_config(path, index)
    complete = read_run(path).status is RunStatus.COMPLETE and not _left(path, index)
    if complete and not more_rounds:
        raise StorageError(
            f"{path}: is complete",
            hint=f"`joulefleet report {path}` makes its page; `--more-rounds N` plays on",
        )
    if more_rounds and not complete:
        raise StorageError(
            f"{path}: is not complete, so it has no last round to play on from",
            hint=f"first `{resuming(path, index)}`",
        )
    if set(given) != set(index.given or ()):
        begun = " and ".join(index.given or ()) or "nothing"
        raise ConfigError(
            f"{path}: was begun with {begun} given as Python objects, "
            f"now with {' and '.join(given) or 'nothing'}",
            hint=f"`{resuming(path, index)}` continues it",
        )
    check_software(path, "start it anew, without --resume", accept=accept_other_software)
    run = RunStore(path.parent).resume(path, fingerprint=index.fingerprint, complete=True)
    if more_rounds:
        index = index.model_copy(update={"more_rounds": (index.more_rounds or 0) + more_rounds})
        write_record(path / INDEX, index, replace=True)
    note_accepted(run, [path])
    return run, index


def _check_config(path: Path, index: BatchIndex) -> None:
    """Notice edits of the files that say what is run: they would change nothing, and say what is not so."""
    for name, sha256 in (index.config or {}).items():
        file = path / "config" / name
        if not file.is_file() or file_sha256(file) != sha256:
            what = "was edited" if file.is_file() else "was removed"
            raise ConfigError(
                f"{file}: {what} since the run began, and a run goes on with what it was begun with",
                hint=f"put it back as it was, or start anew: `joulefleet emulate {file}`",
            )


def _left(path: Path, index: BatchIndex) -> bool:
    """Whether a run that calls itself complete has something to play: it was killed as it was extended."""
    return index.more_rounds is not None and not all(
        is_finished(path / one.folder, index.scenario_of(one).protocol.rounds) for one in index.planned
    )


def resuming(path: Path, index: BatchIndex) -> str:
    """The command, or where objects have to be given again the call, that goes on with a run."""
    if not index.given:
        code = "".join(f" --code {name}" for name in index.scenario.code or ())
        return f"joulefleet emulate --resume {path}{code}"
    return f"emulator.resume({str(path)!r}, {', '.join(f'{name}=...' for name in index.given)})"


def stopped(path: Path, index: BatchIndex) -> str:
    """Where a run is, and how to go on with it."""
    return f"it is in {path}; `{resuming(path, index)}` goes on"


def read_index(path: Path) -> BatchIndex:
    """The index of a run folder."""
    if not (path / INDEX).is_file():
        raise StorageError(
            f"{path}: not a run of `joulefleet emulate` (no {INDEX})",
            hint="if it was killed as it began, nothing is in it: give the same command again",
        )
    return read_record(path / INDEX, BatchIndex)


@contextmanager
def stoppable(how: str) -> Iterator[None]:
    """What is stopped by hand says where it is and how to go on."""
    try:
        yield
    except KeyboardInterrupt as stop:
        stop.add_note(how)
        raise
