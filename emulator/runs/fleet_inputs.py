"""What a scenario's fleet is made of: device profiles, and traces.

Traces are read or generated once, then replayed by every seed at its own offsets.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from numpy.typing import NDArray

from device_agents.workloads import Task, build, count_task
from emulator.fleet.conditions import AlwaysThere, Conditions, Replayed
from emulator.fleet.interference import InterferenceModel, Published, Slowing
from emulator.fleet.network import TransferSource
from emulator.fleet.variation import Registration, Variation
from emulator.fleet.world import World
from emulator.scenario.model import FleetSection, LogSd, NetworkSection, TracesSection
from joulefleet.errors import ConfigError
from joulefleet.files import scratch_folder
from joulefleet.seeds import stream_entropy
from power import DeviceProfile, load_profile
from power.reference import Family, TaskFacts, reference_facts
from traces import FleetRecipe, TraceFleet, TraceSet
from traces.merge import SYNTHETIC, network_recordings
from traces.replay import (
    DAY_NS,
    FLAT_FILE,
    FlatTraces,
    NetworkPools,
    PairedNetwork,
    RecordedFacts,
    flatten,
    open_recorded,
    pair,
    parse_policy,
)

MIXED = "mixed"
DAY_S = 86_400
MOST_CHANGES = 4
"""Changes of clocks that are told; recordings of years have two a year."""
REFERENCE_SAMPLES = 600
"""On a device, of a task that is not one of ours; costs are per sample, so it decides the last batch only."""


def recordings(traces: TracesSection) -> RecordedFacts:
    """The traces of a scenario."""
    if traces.source == SYNTHETIC:
        return _generated(traces.model, traces.users, traces.days, traces.seed)
    return _from_disk(traces.source)


def throughput_recordings(network: NetworkSection) -> RecordedFacts:
    """The recordings of throughput that a scenario names."""
    return _generated_network() if network.source == SYNTHETIC else _from_disk(network.source)


def _from_disk(source: str) -> RecordedFacts:
    folder = Path(source)
    if (folder / FLAT_FILE).is_file():
        return open_recorded(folder)
    return _stored(folder, TraceSet(folder).record.sha256())


def conditions_of(fleet: FleetSection, seed: int) -> Conditions:
    """What happens to the devices of a scenario; the seed decides who replays whom from which day."""
    traces = fleet.traces
    if traces is None:
        if isinstance(fleet.network, NetworkSection):
            raise ConfigError(
                "fleet.network: recordings are given to users, and without [fleet.traces] there are none",
                hint='add [fleet.traces], or write network = "profile" for transfers as measured',
            )
        return AlwaysThere(fleet.devices)
    found = recordings(traces)
    start_ns = _start_ns(traces, found)
    recipe = FleetRecipe(
        devices=fleet.devices,
        seed=stream_entropy(seed, "traces") % 2**63,
        epoch_ns=start_ns,
        wrap=traces.at_end == "wrap",
        align_ns=DAY_NS,
        shift=traces.shift,
        jitter_ns=round(traces.jitter_s * 1e9),
    )
    return Replayed(
        TraceFleet.from_recipe(found.flat, recipe, _paired(fleet.network, found.flat, seed)),
        parse_policy(traces.policy),
        start_ns=start_ns,
        by_use=fleet.interference.model is InterferenceModel.LITERATURE,
    )


def _paired(network: TransferSource | NetworkSection, usage: FlatTraces, seed: int) -> PairedNetwork | None:
    """Who is given which recording of throughput.

    Raises:
        ConfigError: There is none of a kind of network that the users are on.
    """
    if not isinstance(network, NetworkSection):
        return None
    try:
        return pair(usage, NetworkPools.of(throughput_recordings(network).flat), seed)
    except ConfigError as error:
        raise ConfigError(
            f"fleet.network.source: {network.source}: {error.message}", hint=error.hint
        ) from error


def with_behaviour(world: World, section: FleetSection, seed: int) -> World:
    """A world in which apps slow training, speeds move and registration errs as the scenario says."""
    fleet, spreads = world.fleet, world.fleet.costs.spreads
    apps: Slowing | None = None
    if section.interference.model is InterferenceModel.LITERATURE and isinstance(world.conditions, Replayed):
        categories, group = world.conditions.app_categories, section.interference.background
        apps = Published(fleet.costs, reference_facts().interference, categories, group, seed)
    time, power = (
        _log_sd(section.variation.time, spreads.time),
        _log_sd(section.variation.power, spreads.power),
    )
    varies = bool(time.any() or power.any())
    variation = Variation(fleet, time, power, section.variation.correlation_s, seed) if varies else None
    unit = _log_sd(section.registration_error, spreads.unit)
    kind = spreads.kind if section.registration_error == "profile" else np.zeros_like(unit)
    errs = bool(kind.any() or unit.any())
    return replace(
        world,
        apps=apps,
        variation=variation,
        registration=Registration(fleet, kind, unit, seed) if errs else None,
    )


def _log_sd(wanted: LogSd, of_profiles: NDArray[np.float64]) -> NDArray[np.float64]:
    """One per profile."""
    return of_profiles if wanted == "profile" else np.full_like(of_profiles, wanted)


def _start_ns(traces: TracesSection, found: RecordedFacts) -> int:
    """When the run begins: that time of day, on the first day of the recordings, in the users' zone."""
    zone = _zone(traces, found.flat)
    first_s = int(found.flat.start_ns.min()) // 10**9
    hour, minute = map(int, traces.start.split(":"))
    day = datetime.fromtimestamp(first_s, UTC if zone is None else zone)
    start = day.replace(hour=hour, minute=minute, second=0, microsecond=0, fold=0)
    if start.astimezone(UTC).astimezone(start.tzinfo).replace(fold=0) != start:
        raise ConfigError(
            f"fleet.traces.start: there is no {traces.start} on {start:%Y-%m-%d} in {zone}, "
            "whose clocks go forward then",
            hint="choose another time of day",
        )
    return int(start.timestamp()) * 10**9


def clock_notes(traces: TracesSection) -> list[str]:
    """What changes of clocks do to a replay, whose days have 24 hours; one sentence each."""
    flat = recordings(traces).flat
    zone = _zone(traces, flat)
    if zone is None:
        return []
    first_s, last_s = int(flat.start_ns.min()) // 10**9, int((flat.start_ns + flat.span_ns).max()) // 10**9
    days = [datetime.fromtimestamp(at_s, zone) for at_s in (*range(first_s, last_s, DAY_S), last_s)]
    changes = [late for early, late in pairwise(days) if late.utcoffset() != early.utcoffset()]
    notes = [
        f"the clocks of {zone} change on or before {change:%Y-%m-%d} in the recordings: days are taken as "
        "24 h, so beyond it times of day are off by the change"
        for change in changes[:MOST_CHANGES]
    ]
    start = datetime.fromtimestamp(_start_ns(traces, recordings(traces)) // 10**9, zone)
    if start.replace(fold=1).utcoffset() != start.replace(fold=0).utcoffset():
        notes.append(f"{traces.start} comes twice on {start:%Y-%m-%d} in {zone}: the first one is taken")
    return notes


def _zone(traces: TracesSection, flat: FlatTraces) -> ZoneInfo | None:
    """The one zone of all users, ``None`` if the recordings' own clock is to be used.

    Raises:
        ConfigError: The scenario and the traces disagree, or the traces among themselves, or neither tells.
    """
    if traces.time_zone == MIXED:
        return None
    if flat.time_zones is None and not traces.time_zone:
        raise ConfigError(
            f"{traces.source}: this flat form does not tell the users' time zone "
            f"(it was made by an earlier version), so {traces.start} is not one moment",
            hint="make it again with `joulefleet traces flatten`, or give fleet.traces.time_zone",
        )
    named = [zone for zone in flat.time_zones or () if zone]
    if traces.time_zone and set(named) - {traces.time_zone}:
        raise ConfigError(
            f"fleet.traces.time_zone is {traces.time_zone!r}, the traces were recorded in {', '.join(named)}",
            hint=f"leave it out, or write {MIXED!r} to let everybody live by their own recording",
        )
    if len(named) > 1:
        raise ConfigError(
            f"the traces were recorded in {len(named)} time zones ({', '.join(named[:4])}), so "
            f"{traces.start} is not one moment",
            hint=f'write `time_zone = "{MIXED}"` to let everybody live by their own recording',
        )
    name = traces.time_zone or (named[0] if named else "")
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ConfigError(
            f"fleet.traces.time_zone: no zone called {name!r}", hint="e.g. Europe/Berlin"
        ) from error


@lru_cache(maxsize=4)
def _stored(folder: Path, sha256: str) -> RecordedFacts:
    return open_recorded(folder)


@lru_cache(maxsize=4)
def _generated(model_name: str, users: int, days: int, seed: int) -> RecordedFacts:
    from traces import synthesise
    from traces.synth import load_model

    model = load_model(model_name)
    with scratch_folder() as folder:
        made = synthesise(model, folder / "set", users=users, days=days, seed=seed)
        return RecordedFacts(flatten(made), made.record.provenance, model.sha256())


@lru_cache(maxsize=1)
def _generated_network() -> RecordedFacts:
    return network_recordings(SYNTHETIC)


def profiles_of(fleet: FleetSection, task: Task) -> list[DeviceProfile]:
    """The profiles that are about the task's model.

    Raises:
        ConfigError: There is none (says what could be scaled from what is there), or a path leads nowhere.
    """
    if isinstance(fleet.profiles, str):
        from power.reference import listed_fleet, reference_fleet

        phones = reference_fleet if fleet.profiles == "reference" else listed_fleet
        return list(phones(task.name if task.code is None else _counted(task)))
    found = [load_profile(path) for name in fleet.profiles for path in _files(Path(name))]
    fitting = [profile for profile in found if profile.model == task.model]
    if not fitting:
        known = ", ".join(sorted({f"{profile.device}/{profile.model}" for profile in found})) or "none"
        raise ConfigError(
            f"no profile is about the model {task.model!r} of task {task.name!r}; there are {known}",
            hint=f"`joulefleet profile scale PROFILE --task {task.name}` estimates one from another model's",
        )
    return fitting


def _counted(task: Task) -> TaskFacts:
    """What the reference phones' costs are computed from, of a task that is not one of ours."""
    from torch import nn

    work, model = count_task(task), build(task)
    layers = list(model.modules())
    family: Family = "convolution"
    if any(isinstance(layer, nn.RNNBase) for layer in layers):
        family = "recurrent"
    elif any(getattr(layer, "groups", 1) > 1 for layer in layers if isinstance(layer, nn.Conv2d)):
        family = "depthwise"
    return TaskFacts(
        model=task.model,
        dataset=task.data_set,
        family=family,
        samples=REFERENCE_SAMPLES,
        batch_size=task.batch_size,
        local_epochs=task.local_epochs,
        flop_per_sample=max(1.0, work.training_flop),
        parameters=work.parameters,
        bytes=work.bytes,
    )


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
