"""`TraceFleet`: what N devices are doing at a time, and whether they may train; `TraceQuery` for one trace.

Every answer is a pure function of the traces and the time. Asking twice, in any order and at any distance,
gives the same answers: there is no cursor to move.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.model import InteractionTrace, Intervals
from traces.replay import flags as packed
from traces.replay.devices import (
    NEVER_NS,
    DeviceMap,
    Devices,
    FleetRecipe,
    NextChange,
    Place,
    RecordingTime,
    Same,
    Times,
    map_devices,
    one_device_per_user,
    whole_ns,
)
from traces.replay.eligibility import Eligibility, eligibility_of, level_at
from traces.replay.flat import FlatTraces, flatten
from traces.replay.intensity import IntensityTable
from traces.replay.paired import PairedNetwork
from traces.replay.policy import Policy, battery_terms, evaluate, parse_policy
from traces.replay.segments import Segments, cut_windows, uses
from traces.replay.steps import Steps


@dataclass(frozen=True, slots=True, eq=False)
class TraceState:
    """What devices are doing at a time; one entry per device.

    Attributes:
        screen: 1 on, 0 off, -1 unknown.
        plugged: 1 a charger is connected, 0 not, -1 unknown.
        available: The source's own verdict; 1 yes, 0 no, -1 unknown.
        network: A `NetworkKind`, -1 unknown.
        covered: The recorder ran.
        app: Number of the foreground app (``FlatTraces.apps``), -1 none, -2 unknown.
        cpu: CPU intensity, 0 to 1, NaN unknown.
        memory: Memory intensity, 0 to 1, NaN unknown.
        battery: Level, 0 to 1, NaN unknown.
    """

    screen: NDArray[np.int8]
    plugged: NDArray[np.int8]
    available: NDArray[np.int8]
    network: NDArray[np.int8]
    covered: NDArray[np.bool_]
    app: NDArray[np.int32]
    cpu: NDArray[np.float32]
    memory: NDArray[np.float32]
    battery: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class MeanIntensity:
    """Time-weighted means over a window; one entry per device.

    Attributes:
        cpu: Mean CPU intensity over the part of the window where it is known, NaN if there is none.
        memory: Mean memory intensity, likewise.
        known: Share of the window where the intensity is known, 0 to 1.
    """

    cpu: NDArray[np.float64]
    memory: NDArray[np.float64]
    known: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class NetworkRates:
    """Throughput at a time, bits per second; one entry per device, NaN unknown."""

    down_bps: NDArray[np.float64]
    up_bps: NDArray[np.float64]


FOR_EVER_NS = 2**62
"""A period after which no recording begins again: 146 years."""


class TraceFleet:
    """N devices that replay the traces of U users.

    Times are POSIX nanoseconds: one for all devices, or one per device asked about. ``devices`` picks some
    (in any order, also repeatedly); by default all are. A fleet of one device takes any number of times.
    """

    def __init__(self, flat: FlatTraces, devices: DeviceMap, network: PairedNetwork | None = None) -> None:
        self.flat = flat
        self._network = network
        self._time = RecordingTime(flat.start_ns, flat.span_ns, devices)
        end = flat.state.offset[1:] - 1
        self._whole = [total[end] for total in (flat.cpu_s, flat.memory_s, flat.known_ns)]
        # Pure memos: working them out again would give the same arrays.
        self._eligibility: dict[Policy, Eligibility] = {}
        self._changes: dict[Policy | None, NextChange] = {}

    @classmethod
    def from_recipe(
        cls, flat: FlatTraces, recipe: FleetRecipe, network: PairedNetwork | None = None
    ) -> TraceFleet:
        """The fleet of a recipe; what the network gives was perhaps recorded by others."""
        return cls(flat, map_devices(flat, recipe), network)

    def __len__(self) -> int:
        return len(self._time)

    @property
    def map(self) -> DeviceMap:
        """Who replays whom."""
        return self._time.map

    def users(self, devices: NDArray[np.integer] | slice) -> NDArray[np.int32]:
        """The users that some devices replay."""
        return self._time.users(devices)

    def some(self, devices: NDArray[np.integer]) -> TraceFleet:
        """These devices as a fleet of their own, numbered from 0 on."""
        whole = self.map
        own = replace(whole, user=whole.user[devices], phase_ns=whole.phase_ns[devices])
        fleet = TraceFleet(self.flat, own, self._network)
        fleet._eligibility, fleet._changes = self._eligibility, self._changes  # of users, not of devices
        return fleet

    def state_at(self, t_ns: Times, devices: Devices = None) -> TraceState:
        """Everything known about each device at a time."""

        def state(user: NDArray[np.int32], x_ns: NDArray[np.int64], _: Place) -> tuple[NDArray[Any], ...]:
            x_ns = self._time.inside(user, x_ns)
            step = self.flat.state.at(user, x_ns)
            return (
                self.flat.flags.take(step),
                self.flat.app.take(step),
                self.flat.cpu.take(step),
                self.flat.memory.take(step),
                level_at(self.flat, self.flat.battery.at(user, x_ns), x_ns),
            )

        kinds = (np.uint16, np.int32, np.float32, np.float32, np.float64)
        flags, *others = self._time.ask(t_ns, devices, state, kinds)
        return TraceState(
            packed.fact(flags, "screen"),
            packed.fact(flags, "plugged"),
            packed.fact(flags, "available"),
            packed.network(flags),
            packed.covered(flags),
            *others,
        )

    def eligible(self, t_ns: Times, policy: Policy | str, devices: Devices = None) -> NDArray[np.bool_]:
        """Which devices may train at a time; unknown counts as no (`traces.replay.policy`)."""
        rule = self.eligibility(policy)

        def answer(user: NDArray[np.int32], x_ns: NDArray[np.int64], _: Place) -> tuple[NDArray[Any], ...]:
            return (rule.yes.take(rule.steps.at(user, self._time.inside(user, x_ns))),)

        return self._time.ask(t_ns, devices, answer, (np.bool_,))[0]

    def eligible_at_level(
        self, t_ns: Times, policy: Policy | str, level: NDArray[np.float64], devices: Devices = None
    ) -> NDArray[np.bool_]:
        """As `eligible`, if the batteries of the devices were at other levels (0 to 1) than recorded."""
        rule = _parsed(policy)
        terms = battery_terms(rule)

        def answer(
            user: NDArray[np.int32], x_ns: NDArray[np.int64], place: Place
        ) -> tuple[NDArray[Any], ...]:
            flags = self.flat.flags.take(self.flat.state.at(user, self._time.inside(user, x_ns)))
            return (evaluate(rule, flags, {term: term.holds(level[place]) for term in terms}) == packed.TRUE,)

        return self._time.ask(t_ns, devices, answer, (np.bool_,))[0]

    def ever_eligible(self, policy: Policy | str) -> NDArray[np.bool_]:
        """Which devices may train at some time or other."""
        rule = self.eligibility(policy)
        return np.asarray(np.logical_or.reduceat(rule.yes, rule.steps.offset[:-1])[self.users(slice(None))])

    @cached_property
    def lowest_level_of_users(self) -> NDArray[np.float64]:
        """The lowest battery level that was ever read of each user (not device); infinite where none was."""
        level = self.flat.level
        known = np.where(np.isnan(level), np.inf, level)
        return np.asarray(np.minimum.reduceat(known, self.flat.battery.offset[:-1]))

    @cached_property
    def _uses(self) -> NDArray[np.int64]:
        return uses(self.flat)

    @cached_property
    def has_throughput(self) -> bool:
        """Whether anybody's throughput was ever read, in one direction or both."""
        if self._network is not None:
            return True
        return bool(np.any(~np.isnan(self.flat.down_bps)) or np.any(~np.isnan(self.flat.up_bps)))

    def battery_at(self, t_ns: Times, devices: Devices = None) -> NDArray[np.float64]:
        """Battery level, 0 to 1, linear between readings; NaN where unknown."""

        def level(user: NDArray[np.int32], x_ns: NDArray[np.int64], _: Place) -> tuple[NDArray[Any], ...]:
            x_ns = self._time.inside(user, x_ns)
            return (level_at(self.flat, self.flat.battery.at(user, x_ns), x_ns),)

        return self._time.ask(t_ns, devices, level, (np.float64,))[0]

    def throughput_at(self, t_ns: Times, devices: Devices = None) -> NetworkRates:
        """Network throughput as last read; NaN where unknown."""

        def rates(user: NDArray[np.int32], x_ns: NDArray[np.int64], _: Place) -> tuple[NDArray[Any], ...]:
            x_ns = self._time.inside(user, x_ns)
            if self._network is not None:
                return self._network.at(user, x_ns, self.flat.flags.take(self.flat.state.at(user, x_ns)))
            step = self.flat.throughput.at(user, x_ns)
            return self.flat.down_bps.take(step), self.flat.up_bps.take(step)

        return NetworkRates(*self._time.ask(t_ns, devices, rates, (np.float64, np.float64)))

    def next_change(
        self, t_ns: Times, devices: Devices = None, *, policy: Policy | str | None = None
    ) -> NDArray[np.int64]:
        """The first time after ``t_ns`` at which a device's state is different; `NEVER_NS` if it stays.

        The state is that of `state_at` without the battery level, which drifts all the time. With a policy,
        the first time at which its answer is different.
        """
        change = self._next_change(policy)
        times = np.asarray(t_ns, np.int64)

        def after(user: NDArray[np.int32], x_ns: NDArray[np.int64], place: Place) -> tuple[NDArray[Any], ...]:
            wait_ns = change.after(user, x_ns, self._time.inside(user, x_ns))
            now_ns = times[place] if times.ndim else times
            return (np.where(wait_ns == NEVER_NS, NEVER_NS, now_ns + wait_ns),)

        return self._time.ask(t_ns, devices, after, (np.int64,))[0]

    def intensity(self, t0_ns: Times, t1_ns: Times, devices: Devices = None) -> MeanIntensity:
        """Mean app intensity over ``[t0_ns, t1_ns)``, exact: from integrals, not from samples.

        `segments` gives the intensities themselves, for what does not depend on them linearly.
        """
        window = _window_ns(t0_ns, t1_ns)

        def means(user: NDArray[np.int32], x_ns: NDArray[np.int64], place: Place) -> tuple[NDArray[Any], ...]:
            length_ns = window[place] if window.ndim else window
            cpu_s, memory_s, known_ns = self._difference(user, x_ns, length_ns)
            with np.errstate(invalid="ignore", divide="ignore"):  # 0 / 0 is the NaN of "nothing known"
                known_s = known_ns * 1e-9
                shares = (cpu_s / known_s, memory_s / known_s, known_ns / length_ns)
            return tuple(np.clip(share, 0.0, 1.0) for share in shares)  # rounding of the integrals

        times = np.asarray(t0_ns, np.int64)
        if window.ndim and not times.ndim:
            times = np.broadcast_to(times, window.shape)
        return MeanIntensity(*self._time.ask(times, devices, means, (np.float64,) * 3))

    def segments(
        self, t0_ns: Times, t1_ns: Times, devices: Devices = None, *, by_use: bool = False
    ) -> Segments:
        """Where in ``[t0_ns, t1_ns)`` the app intensity of each device changes, and what it is in between.

        With ``by_use`` also where one app follows another, and which app and use of it each stretch is.
        The work of device ``i`` is then a sum over ``offset[i]:offset[i + 1]``; see `Segments`.
        """
        _window_ns(t0_ns, t1_ns)
        n = self._time.asked(devices, t0_ns, t1_ns)
        begin_ns, end_ns = (np.broadcast_to(t, (n,)) for t in (t0_ns, t1_ns))
        user, x_ns = self._time.ask(
            begin_ns, devices, lambda user, x_ns, _: (user, x_ns), (np.int32, np.int64)
        )
        period_ns = self._time.period_ns.take(user) if self._time.wrap else np.full(n, FOR_EVER_NS)
        use = self._uses if by_use else None
        return cut_windows(self.flat, user, x_ns, period_ns, begin_ns, end_ns, use)

    def eligibility(self, policy: Policy | str) -> Eligibility:
        """When each user (not device) is eligible under a policy."""
        rule = _parsed(policy)
        if rule not in self._eligibility:
            self._eligibility[rule] = eligibility_of(self.flat, rule)
        return self._eligibility[rule]

    def _next_change(self, policy: Policy | str | None) -> NextChange:
        rule = None if policy is None else _parsed(policy)
        if rule not in self._changes:
            steps, same = self._stepped(rule)
            self._changes[rule] = NextChange(steps, same, self._time)
        return self._changes[rule]

    def _stepped(self, policy: Policy | None) -> tuple[Steps, Same]:
        if policy is not None:
            rule = self.eligibility(policy)
            return rule.steps, lambda a, b: rule.yes[a] == rule.yes[b]
        flat = self.flat
        # As bits, because NaN (unknown) equals NaN here.
        columns = (flat.flags, flat.app, flat.cpu.view(np.uint32), flat.memory.view(np.uint32))
        return flat.state, lambda a, b: np.logical_and.reduce([column[a] == column[b] for column in columns])

    def _difference(
        self, user: NDArray[np.int32], x_ns: NDArray[np.int64], length_ns: NDArray[np.int64]
    ) -> list[NDArray[Any]]:
        """CPU seconds, memory seconds and known nanoseconds from ``x_ns`` on for ``length_ns``."""
        end_ns = x_ns + length_ns
        before = self._integrals(user, x_ns)
        if not self._time.wrap:
            after = self._integrals(user, end_ns)
            return [late - early for late, early in zip(after, before, strict=True)]
        period = self._time.period_ns.take(user)
        rounds = end_ns // period
        after = self._integrals(user, end_ns - rounds * period)
        parts = zip(after, before, self._whole, strict=True)
        return [late - early + rounds * whole.take(user) for late, early, whole in parts]

    def _integrals(self, user: NDArray[np.int32], x_ns: NDArray[np.int64]) -> list[NDArray[Any]]:
        """CPU seconds, memory seconds and known nanoseconds since the user's start."""
        flat = self.flat
        x_ns = self._time.clipped(user, x_ns)
        step = flat.state.at(user, x_ns)
        elapsed_ns = x_ns - flat.state.t_ns.take(step)
        cpu = flat.cpu.take(step)
        known = ~np.isnan(cpu)
        elapsed_ns *= known
        elapsed_s = elapsed_ns * 1e-9
        return [
            flat.cpu_s.take(step) + np.where(known, cpu, 0.0) * elapsed_s,
            flat.memory_s.take(step) + np.where(known, flat.memory.take(step), 0.0) * elapsed_s,
            flat.known_ns.take(step) + elapsed_ns,
        ]


def _parsed(policy: Policy | str) -> Policy:
    return parse_policy(policy) if isinstance(policy, str) else policy


def _window_ns(t0_ns: Times, t1_ns: Times) -> NDArray[np.int64]:
    window = np.asarray(whole_ns(t1_ns) - whole_ns(t0_ns))
    if np.any(window <= 0):
        raise ValueError("t1_ns: not after t0_ns")
    return window


class TraceQuery(TraceFleet):
    """One trace, prepared once and asked as often as wanted; times are arrays.

    Outside ``[start_ns, end_ns)`` everything is unknown.

    Args:
        trace: Without errors (`traces.quality.checks`), else `DataQualityError`.
        table: Intensities of apps; by default the one that ships with joulefleet.
    """

    def __init__(self, trace: InteractionTrace, table: IntensityTable | None = None) -> None:
        flat = flatten([trace], table)
        super().__init__(flat, one_device_per_user(flat))
        self.trace = trace

    @property
    def apps(self) -> tuple[str, ...]:
        """Names behind the numbers in ``TraceState.app``."""
        return self.flat.apps

    def eligible_intervals(self, policy: Policy | str) -> Intervals:
        """When the phone may train, within the recording."""
        rule = self.eligibility(policy)
        on = np.flatnonzero(rule.yes[:-1])
        edges = rule.steps.t_ns + self.trace.start_ns
        return Intervals(edges[on], edges[on + 1])
