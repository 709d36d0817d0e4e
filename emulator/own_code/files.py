"""`use_code`: what files of the user's own offer, made known to this process."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from device_agents.workloads import OwnCode, Task, module_of
from emulator.own_code.find import ALL_TASKS
from emulator.own_code.task import make_task
from emulator.round.reward import REWARDS
from emulator.round.rules import AGGREGATIONS
from emulator.round.selector import Selector
from emulator.selectors.registry import SELECTORS
from emulator.training.local import blaming
from joulefleet.budgets import CONFIG_BYTES, OverBudget, read_bounded
from joulefleet.errors import ConfigError
from joulefleet.registry import Registry

OFFERS = "`data` and `model` (a task), classes of selectors, or dictionaries `rewards` and `aggregations`"


@dataclass(slots=True)
class GivenCode:
    """What this process was given.

    Attributes:
        files: The code, by the name of its file.
        tasks: By name.
        selectors: Name to the file that it comes from.
    """

    files: dict[str, OwnCode] = field(default_factory=dict)
    tasks: dict[str, Task] = field(default_factory=dict)
    selectors: dict[str, str] = field(default_factory=dict)


_given = GivenCode()


def given_code() -> GivenCode:
    """All that `use_code` was called with so far."""
    return _given


def use_code(*paths: Path | str) -> GivenCode:
    """Run files of the user's own, and make known what they offer: in this process, from now on.

    Examples:
        >>> use_code("my_task.py")

    Returns:
        What these files offer.

    Raises:
        ConfigError: A file cannot be read or run, offers nothing, or something that cannot work. The message
            names the file and, where there is one, the line.
    """
    return use_files(_read(Path(path)) for path in paths)


def use_files(files: Iterable[OwnCode]) -> GivenCode:
    """The same with files that were read already, as on another node of a cluster."""
    found = GivenCode()
    listed = list(files)
    for code in listed:
        known = found.files.setdefault(Path(code.file).name, code)
        if known.sha256 != code.sha256:
            raise ConfigError(
                f"{known.file} and {code.file}: two files of one name", hint="rename one of them"
            )
    for code in listed:
        _use(code, found)
    _given.files.update(found.files)
    _given.tasks.update(found.tasks)
    _given.selectors.update(found.selectors)
    return found


def code_of(selector: str) -> OwnCode | None:
    """The file that a selector comes from, if it is one of those that were given."""
    return _given.files.get(_given.selectors.get(selector, ""))


def _read(path: Path) -> OwnCode:
    if path.is_dir():
        raise ConfigError(f"--code {path}: is a folder", hint="name one Python file, such as my_task.py")
    try:
        return OwnCode(str(path), read_bounded(path, CONFIG_BYTES).decode())
    except (OSError, OverBudget, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"--code {path}: {reason}", hint="name one Python file, such as my_task.py"
        ) from error


def _use(code: OwnCode, found: GivenCode) -> None:
    with blaming(code):
        module = module_of(code)
    name = str(getattr(module, "name", Path(code.file).stem))
    if hasattr(module, "data"):
        ALL_TASKS.check_free(name, code.file)
    task = make_task(code, module, name)
    if task is not None:
        ALL_TASKS.give(name, task, code.file)
        found.tasks[name] = task
    selectors = dict(_selectors(code, module))
    rewards, aggregations = (_functions(code, module, group) for group in ("rewards", "aggregations"))
    if task is None and not (selectors or rewards or aggregations):
        raise ConfigError(
            f"{code.file}: offers nothing", hint=f"it may define {OFFERS}; see docs/own-code.md"
        )
    groups: tuple[tuple[Registry[Any], Mapping[str, Any]], ...] = (
        (SELECTORS, selectors),
        (REWARDS, rewards),
        (AGGREGATIONS, aggregations),
    )
    for registry, things in groups:
        for known_as, thing in things.items():
            registry.give(known_as, thing, code.file)
    found.selectors.update(dict.fromkeys(selectors, Path(code.file).name))


def _selectors(code: OwnCode, module: ModuleType) -> Iterable[tuple[str, type[Selector]]]:
    """Selectors that the file itself defines; one that it imports is somebody else's."""
    for thing in vars(module).values():
        if inspect.isclass(thing) and issubclass(thing, Selector) and thing.__module__ == module.__name__:
            if inspect.isabstract(thing) or thing.__name__.startswith("_"):
                continue
            name = getattr(thing, "name", None)
            if not isinstance(name, str) or not name:
                raise ConfigError(
                    f"{code.file}: class {thing.__name__} has no `name`", hint="see docs/selectors.md"
                )
            yield name, thing


def _functions(code: OwnCode, module: ModuleType, group: str) -> dict[str, Any]:
    found = getattr(module, group, {})
    usable = isinstance(found, Mapping) and all(isinstance(n, str) and callable(f) for n, f in found.items())
    if not usable:
        raise ConfigError(
            f"{code.file}: `{group}` is not a dictionary of functions by name",
            hint=f'as in `{group} = {{"mine": my_function}}`',
        )
    return dict(found)
