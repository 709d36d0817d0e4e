"""Small worlds for tests: profiles with round numbers, traces whose every change is known, engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.fleet.batteries import Batteries
from emulator.fleet.conditions import AlwaysThere, Conditions, Replayed
from emulator.fleet.network import Network, TransferSource
from emulator.fleet.state import FleetState, fleet_from_profiles
from emulator.fleet.world import World
from emulator.round.engine import Engine
from emulator.round.outcome import RoundOutcome
from emulator.round.reward import Budgets, signed
from emulator.round.rules import RewardRules, RoundRules
from emulator.round.selector import Probe, Selector
from emulator.selectors.fedavg import FedAvg
from joulefleet.provenance import Origin, Provenance
from power.profile.model import Battery, DeviceProfile, LoadPoint, PhaseCost, Quantity, TransferCost
from tests.emulator.tiny_trainer import CLASSES, TinyTrainer
from traces.model import AppSessions, BatteryPoints, Fact, InteractionTrace, Intervals, Throughput
from traces.replay.devices import one_device_per_user
from traces.replay.flat import flatten
from traces.replay.fleet import TraceFleet
from traces.storage.trace_set import new_trace_set

SECOND_NS = 10**9
HOUR_S = 3600


def profile(
    epoch_s: float = 2.0,
    epoch_j: float = 3.0,
    *,
    samples: int = 100,
    curve: Sequence[tuple[float, float, float]] = ((0.0, 1.0, 1.0), (1.0, 3.0, 1.5)),
    battery: Battery | None = None,
    transfer_s: float = 0.5,
    **changes: Any,
) -> DeviceProfile:
    def cost(seconds: float, joules: float) -> dict[str, Quantity]:
        energy = Quantity(mean=joules)
        gross = Quantity(mean=joules + seconds)
        return {
            "duration_s": Quantity(mean=seconds), "gross_j": gross, "net_j": energy, "marginal_j": energy,
        }  # fmt: skip

    epoch, link = PhaseCost(**cost(epoch_s, epoch_j)), TransferCost(**cost(transfer_s, transfer_s / 2))
    settings: dict[str, Any] = {
        "device": "phone", "model": "mlp", "dataset": "digits", "backend": "numpy", "samples": samples,
        "batch_size": 32, "probe": epoch, "epoch": epoch, "download": link, "upload": link,
        "idle_power_w": Quantity(mean=0.1), "wait_power_w": Quantity(mean=0.4),
        "load_curve": tuple(LoadPoint(load=a, slowdown=b, energy_factor=c) for a, b, c in curve),
        "battery": battery, "provenance": Provenance(origin=Origin.LITERATURE, basis="test"),
    }  # fmt: skip
    return DeviceProfile(**{**settings, **changes})


def spans(pieces: Sequence[tuple[float, float]], begin_s: int = 0) -> Intervals:
    """Intervals from seconds."""
    edges = np.array([[round(a * 1e9), round(b * 1e9)] for a, b in pieces], np.int64).reshape(-1, 2)
    edges += begin_s * SECOND_NS
    return Intervals(edges[:, 0], edges[:, 1])


def user(
    name: str = "u",
    *,
    hours: float = 24,
    begin_s: int = 0,
    busy: Sequence[tuple[float, float, float]] = (),
    charging: Sequence[tuple[float, float]] | None = None,
    battery: Sequence[tuple[float, float]] | None = None,
    rates: Sequence[tuple[float, float, float]] | None = None,
) -> InteractionTrace:
    """A recording of some hours: loads as (from, to, cpu), readings as (at, ...)."""
    sessions = spans([(a, b) for a, b, _ in busy], begin_s)
    return InteractionTrace(
        name,
        begin_s * SECOND_NS,
        begin_s * SECOND_NS + round(hours * HOUR_S * 1e9),
        screen=Fact(Intervals.none()),
        plugged=None if charging is None else Fact(spans(charging, begin_s)),
        apps=AppSessions(
            sessions.start_ns,
            sessions.end_ns,
            np.zeros(len(busy), np.int32),
            ("app",),
            cpu=np.array([cpu for _, _, cpu in busy]),
            memory=np.zeros(len(busy)),
        ),
        battery=None if battery is None else BatteryPoints(*_points(battery)),
        throughput=None if rates is None else Throughput(*_points(rates)),
        relative_time=True,
    )


def _points(rows: Sequence[tuple[float, ...]]) -> list[NDArray[Any]]:
    columns = np.array(rows, float).T
    return [(columns[0] * 1e9).astype(np.int64), *columns[1:]]


def replay(users: Sequence[InteractionTrace], policy: str = "recorded") -> Replayed:
    flat = flatten(users)
    return Replayed(TraceFleet(flat, one_device_per_user(flat)), policy)


def trace_set(
    folder: Path, people: Sequence[InteractionTrace], zones: Mapping[str, str] | None = None
) -> Path:
    with new_trace_set(folder) as writer:
        for person in people:
            zone = (zones or {}).get(person.user, "")
            writer.add(replace(person, time_zone=zone, relative_time=not zone))
        writer.describe(Provenance(origin=Origin.EMULATED, basis="test"))
    return folder


def fleet(
    profiles: Sequence[DeviceProfile], sizes: Sequence[int] | NDArray[np.int64], **options: Any
) -> FleetState:
    return fleet_from_profiles(profiles, np.asarray(sizes, np.int64), rng=np.random.default_rng(0), **options)


def world(
    state: FleetState,
    conditions: Conditions | None = None,
    *,
    link: TransferSource = TransferSource.PROFILE,
    model_bytes: int = 1000,
    **battery: float,
) -> World:
    there = conditions or AlwaysThere(len(state))
    return World(state, there, Batteries(state, there, **battery), Network(state, there, link, model_bytes))


class Prober(FedAvg):
    """Random, but after a probe."""

    name = "prober"
    probe = Probe.EPOCH
    needs = frozenset({"loss", "epoch_s", "epoch_j", "comm_s"})


def engine(
    selector: Selector | None = None,
    *,
    place: World | None = None,
    trainer: TinyTrainer | None = None,
    devices: int = 10,
    seed: int = 0,
    **rules: Any,
) -> Engine:
    trainer = trainer or TinyTrainer(devices, seed)
    place = place or world(fleet([profile()], trainer.sizes, speed_spread=0.3))
    settings = {"rounds": 4, "k": 3, "candidates": 6, "local_epochs": 5, **rules}
    budgets = Budgets(time_s=5.0, energy_j=30.0)
    chooser = FedAvg() if selector is None else selector
    return Engine(
        place, trainer, chooser, RoundRules(**settings), RewardRules(signed, budgets), seed, classes=CLASSES
    )


def play(e: Engine) -> list[RoundOutcome]:
    outcomes = []
    while not e.done:
        outcomes.append(e.play())
    return outcomes
