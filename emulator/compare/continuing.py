"""How a run goes on that is not whole: a command that exists, made from the one that made the run."""

from __future__ import annotations

import shlex
from pathlib import Path

from emulator.runs.batch import INDEX
from joulefleet.runstore import RunStatus
from joulefleet.runstore.run import RUN_FILE, read_run

ANEW = "play it anew"


def run_of(folder: Path) -> Path | None:
    """The run folder to which the folder of an emulation belongs."""
    return next((one for one in (folder, *folder.parents) if (one / RUN_FILE).is_file()), None)


def how_to_go_on(folder: Path) -> str:
    """A command that plays what is missing of the run to which a folder belongs, and what it does."""
    path = run_of(folder)
    if path is None:
        return ANEW
    record = read_run(path)
    whole = record.status is RunStatus.COMPLETE
    if record.command[1:3] == ("experiment", "run"):
        command = shlex.join(word for word in record.command if word != "--resume")
        if whole:
            return f"`{command} --reuse {path}` takes over the rest and plays these anew"
        return f"`{command} --resume` continues it"
    if (path / INDEX).is_file() and not whole:
        return f"`joulefleet emulate --resume {path}` continues it"
    if record.kind == "federation" and not whole:
        return f"`joulefleet bench federate SCENARIO --resume {path}`, with its scenario, continues it"
    # The demo plays its experiment itself; a run made from Python has no command of ours.
    return f"`{shlex.join(record.command)}` plays it anew" if record.command[1:2] == ("demo",) else ANEW
