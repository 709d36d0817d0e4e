"""Tasks by name: ours, those that the user has given, and those of installed packages."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from device_agents.workloads import TASKS, OwnCode, Task, module_of
from emulator.own_code.task import make_task
from emulator.training.local import blaming
from joulefleet.errors import ConfigError
from joulefleet.registry import Entry, Registry

ALL_TASKS: Registry[Task] = Registry(
    what="task",
    group="joulefleet.tasks",
    builtin={task.name: ("", f"{task.model} on {task.data_set}") for task in TASKS.values()},
)
"""Those of packages are modules, as a file of the user's own is one."""
_installed: dict[str, Task] = {}


def find_task(name: str) -> Task:
    """The task called ``name``; the file of an installed one is run now.

    Raises:
        ConfigError: There is none (the known ones are listed), or it cannot work.
    """
    if name in TASKS:
        return TASKS[name]
    if name in ALL_TASKS.given:
        return ALL_TASKS.load(name)
    if name not in _installed:
        _installed[name] = _install(_entry(name))
    return _installed[name]


def _entry(name: str) -> Entry:
    try:
        return ALL_TASKS.find(name)
    except ConfigError as error:
        error.hint = f"{error.hint}; one of your own is given with `--code FILE`"
        raise


def _install(entry: Entry) -> Task:
    code = _source(entry)
    with blaming(code):
        module = module_of(code)
    task = make_task(code, module, entry.name)
    if task is None:
        raise ConfigError(
            f"task {entry.name!r} from {entry.source}: {code.file} defines no `data` and `model`"
        )
    return task


def _source(entry: Entry) -> OwnCode:
    """The file of an installed module."""
    try:
        spec = find_spec(entry.target)
        if spec is None or spec.origin is None:
            raise ImportError("no such module")
        return OwnCode(spec.origin, Path(spec.origin).read_text(encoding="utf-8"), entry.target)
    except (ImportError, OSError, ValueError) as error:
        raise ConfigError(
            f"task {entry.name!r} from {entry.source}: {entry.target!r} cannot be loaded: {error}",
            hint='its entry point names a module, as in `housing = "my_package.housing"`',
        ) from error
