"""Which code of the user's own a scenario was run with: names and hashes, never the code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from emulator.own_code.files import GivenCode, given_code
from joulefleet.errors import ConfigError

if TYPE_CHECKING:
    from emulator.scenario.model import Scenario

OF_ANOTHER_TASK = ("data", "batch_size", "learning_rate", "momentum", "train_samples", "server_samples")
"""Keys of ``[task]`` that are not kept when a task of the user's own takes the place of the scenario's."""


def with_code(scenario: Scenario, given: GivenCode) -> Scenario:
    """A scenario that is run with files of the user's own.

    A task among them takes the place of the scenario's, unless that names one of several.

    Raises:
        ConfigError: The scenario was run with other code, or it is not clear which task is meant.
    """
    if scenario.code is not None:
        check_code(scenario, given)
        return scenario
    name = scenario.task.name
    if given.tasks and name not in given.tasks:
        if len(given.tasks) > 1:
            raise ConfigError(
                f"task.name = {name!r}, and --code gives {', '.join(given.tasks)}",
                hint=f"name one of them in the scenario: `task.name = {next(iter(given.tasks))!r}`",
            )
        name = next(iter(given.tasks))
        # What another task's data are cut to and replaced by says nothing of these.
        cut = {"data": None, "train_samples": None, "server_samples": None}
        scenario = scenario.model_copy(
            update={"task": scenario.task.model_copy(update={"name": name, **cut})}
        )
    files = dict(given.files)
    earlier = given_code().tasks.get(name)
    if earlier is not None and earlier.code is not None:  # given to this process before
        files[Path(earlier.code.file).name] = earlier.code
    hashes = {file: code.sha256 for file, code in files.items()}
    return scenario.model_copy(update={"code": hashes}) if hashes else scenario


def check_code(scenario: Scenario, given: GivenCode) -> None:
    """Whether the code is at hand that a scenario was run with.

    Raises:
        ConfigError: A file is not given, or it is another one.
    """
    for name, sha256 in (scenario.code or {}).items():
        code = given.files.get(name)
        if code is None:
            raise ConfigError(
                f"scenario {scenario.name!r} was run with code that is not stored with it: {name} "
                f"({sha256[:12]})",
                hint=f"give the file with `--code {name}`, once you know what it does",
            )
        if code.sha256 != sha256:
            raise ConfigError(
                f"{code.file}: is not the {name} that scenario {scenario.name!r} was run with "
                f"({code.sha256[:12]} instead of {sha256[:12]})",
                hint="give the file as it was, or run it anew",
            )
