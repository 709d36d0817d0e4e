"""Scenario files and presets."""

from __future__ import annotations

import difflib
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from joulefleet.errors import ConfigError

if TYPE_CHECKING:
    from emulator.scenario.model import Scenario


def _presets() -> dict[str, str]:
    folder = resources.files("emulator.scenario") / "presets"
    return {
        file.name.removesuffix(".toml"): file.read_text(encoding="utf-8")
        for file in sorted(folder.iterdir(), key=lambda file: file.name)
        if file.name.endswith(".toml")
    }


def preset_names() -> list[str]:
    """Scenarios that come with joulefleet."""
    return list(_presets())


def preset_summaries() -> dict[str, str]:
    """Each preset with the first sentence of its file."""
    return {name: text.partition("\n")[0].removeprefix("#").strip() for name, text in _presets().items()}


def preset_text(name: str) -> str:
    """A preset as it is written: a beginning for one's own file.

    Raises:
        ConfigError: There is no such preset; the known ones are listed.
    """
    presets = _presets()
    if name not in presets:
        near = difflib.get_close_matches(name, presets, n=1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigError(f"no preset called {name!r}", hint=f"{meant}presets: {', '.join(presets)}")
    return presets[name]


def scenario_text(name_or_path: str) -> str:
    """The file as it is written."""
    preset = _presets().get(name_or_path)
    return Path(name_or_path).read_text(encoding="utf-8") if preset is None else preset


def load_scenario(name_or_path: str | Path) -> Scenario:
    """A scenario by file or by the name of a preset; files it names are found relative to it.

    Examples:
        >>> load_scenario("quick").protocol.rounds

    Raises:
        ConfigError: There is none, or it does not fit the schema.
    """
    # Not at the top: the presets are also listed, where nothing is played.
    from emulator.scenario.model import Scenario
    from emulator.scenario.sweep import typed_sweep
    from joulefleet.config import load_toml, parse_toml

    name = str(name_or_path)
    preset = _presets().get(name)
    if preset is not None:
        return parse_toml(preset, Scenario, name=f"preset {name}")
    path = Path(name)
    if path.suffix == ".py" or (not path.exists() and path.suffix != ".toml"):
        presets = f"presets: {', '.join(preset_names())}"
        code = f"a task of your own goes beside a scenario: `quick --code {name}`; "
        raise ConfigError(
            f"no scenario file and no preset called {name!r}",
            hint=code + presets if path.suffix == ".py" else presets,
        )
    folder, scenario = path.parent.resolve(), load_toml(path, Scenario)
    try:
        return found_from(folder, typed_sweep(scenario, folder))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", hint=error.hint) from error


def found_from(folder: Path, scenario: Scenario) -> Scenario:
    """With the files it names found from a folder, wherever it is played or resumed."""
    from emulator.selectors.neural.policy import POLICY_SUFFIX

    fleet, selector = scenario.fleet, scenario.selector
    if not isinstance(fleet.profiles, str):
        fleet = fleet.model_copy(update={"profiles": tuple(str(folder / name) for name in fleet.profiles)})
    for name in ("traces", "network"):
        section = getattr(fleet, name)
        source = getattr(section, "source", "synthetic")
        if source != "synthetic":
            found = section.model_copy(update={"source": str(folder / source)})
            fleet = fleet.model_copy(update={name: found})
    policy = selector.options.get("policy")
    if isinstance(policy, str) and policy.endswith(POLICY_SUFFIX):
        options = {**selector.options, "policy": str(folder / policy)}
        selector = selector.model_copy(update={"options": options})
    return scenario.model_copy(update={"fleet": fleet, "selector": selector})
