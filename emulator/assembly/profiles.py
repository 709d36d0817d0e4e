"""The device profiles of a scenario."""

from __future__ import annotations

from pathlib import Path

from device_agents.workloads.tasks import Task
from emulator.scenario.model import FleetSection
from joulefleet.errors import ConfigError
from power.profile.model import DeviceProfile, load_profile


def profiles_of(fleet: FleetSection, task: Task) -> list[DeviceProfile]:
    """The profiles that are about the task's model.

    Raises:
        ConfigError: There is none (says what could be scaled from what is there), or a path leads nowhere.
    """
    if fleet.profiles == "reference":
        from power.reference.fleet import reference_fleet

        return list(reference_fleet(task.name))
    found = [load_profile(path) for name in fleet.profiles for path in _files(Path(name))]
    fitting = [profile for profile in found if profile.model == task.model]
    if not fitting:
        known = ", ".join(sorted({f"{profile.device}/{profile.model}" for profile in found})) or "none"
        raise ConfigError(
            f"no profile is about the model {task.model!r} of task {task.name!r}; there are {known}",
            hint=f"`joulefleet profile scale PROFILE --task {task.name}` estimates one from another model's",
        )
    return fitting


def _files(path: Path) -> list[Path]:
    """A file itself, or those in a folder, such as `joulefleet profile export --out FOLDER` makes."""
    if not path.exists():
        raise ConfigError(
            f"fleet.profiles: {path}: no such file or folder",
            hint="paths are relative to the scenario file; `joulefleet profile export` writes some",
        )
    found = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not found:
        raise ConfigError(f"fleet.profiles: {path}: a folder without profiles (*.json)")
    return found
