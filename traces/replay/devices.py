"""From U recorded users to N devices: each device replays one user, shifted in time. Nothing is copied.

At time ``t`` a device is where its user was ``x = t - start + phase`` nanoseconds into the recording. With
``wrap`` the recording repeats for ever, with a period of its span rounded up to whole ``align_ns``; the
padding is unknown. Shifts are whole multiples of ``align_ns`` too, so that with a day (the default) night
stays night. Without ``wrap`` a device is unknown before its recording begins and after it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from joulefleet.records import StoredRecord
from joulefleet.seeds import generator
from traces.replay.flat import FlatTraces
from traces.replay.steps import Steps

DAY_NS = 86_400 * 10**9
# Parts of this many devices keep the working arrays of a question in the processor's second-level cache.
PART = 1 << 15
Times = int | NDArray[np.int64]
Devices = NDArray[np.integer] | None
Place = slice | NDArray[np.integer]
Kernel = Callable[[NDArray[np.int32], NDArray[np.int64], Place], tuple[NDArray[Any], ...]]
"""From users, times in their recordings and which of those asked they are, to answers."""


class FleetRecipe(StoredRecord):
    """How devices are made from users; the same recipe over the same traces gives the same devices.

    Attributes:
        devices: How many.
        seed: Root of the random choices.
        epoch_ns: The time at which the replay begins; every unshifted device is then in the first
            ``align_ns`` of its recording.
        wrap: Repeat a recording for ever; else stop at its end.
        align_ns: Shifts and periods are multiples of this; 0 for any nanosecond and a period of exactly the
            span.
        shift: Start each device at a random place of its recording; else all at the beginning.
        jitter_ns: Up to this much is added to or taken from each shift, so that devices that replay the
            same user do not switch in lock-step.
    """

    devices: int = Field(gt=0, le=100_000_000)
    seed: int = Field(default=0, ge=0)
    epoch_ns: int = 0
    wrap: bool = True
    align_ns: int = Field(default=DAY_NS, ge=0)
    shift: bool = True
    jitter_ns: int = Field(default=0, ge=0)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceMap:
    """Which user each device replays, and where in the recording it is.

    Attributes:
        user: Index of the user, one per device.
        phase_ns: Shift, one per device; with ``wrap`` in ``[0, period)``.
        period_ns: One per user.
        wrap: Whether recordings repeat.
    """

    user: NDArray[np.int32]
    phase_ns: NDArray[np.int64]
    period_ns: NDArray[np.int64]
    wrap: bool

    def __len__(self) -> int:
        return len(self.user)


def map_devices(flat: FlatTraces, recipe: FleetRecipe) -> DeviceMap:
    """Deal users to devices, each as often as any other up to one, in random order and with random shifts."""
    rng = generator(recipe.seed, "trace fleet")
    users = len(flat)
    rounds, rest = divmod(recipe.devices, users)
    everyone = np.arange(users, dtype=np.int32)
    dealt = np.concatenate([np.tile(everyone, rounds), rng.permutation(users)[:rest].astype(np.int32)])
    user = rng.permutation(dealt)
    unit = max(recipe.align_ns, 1)
    period = -(-flat.span_ns // unit) * unit
    # Without a shift, the recording of every user begins within one unit before the epoch.
    phase = (-((recipe.epoch_ns - flat.start_ns) // unit) * unit)[user]
    if recipe.shift:
        phase = phase + rng.integers(0, (period // unit)[user]) * unit
    if recipe.jitter_ns:
        phase = phase + rng.integers(-recipe.jitter_ns, recipe.jitter_ns + 1, recipe.devices)
    if recipe.wrap:
        phase = phase % period[user]
    return DeviceMap(user, phase.astype(np.int64), period, recipe.wrap)


def one_device_per_user(flat: FlatTraces) -> DeviceMap:
    """Every user once, as recorded."""
    users = np.arange(len(flat), dtype=np.int32)
    return DeviceMap(users, np.zeros(len(flat), np.int64), flat.span_ns, wrap=False)


def whole_ns(t_ns: Times) -> NDArray[np.int64]:
    """Times as an array.

    Raises:
        ValueError: They are not integers: a float would be off by up to 128 ns today.
    """
    times = np.asarray(t_ns)
    if times.dtype.kind != "i":
        raise ValueError(f"t_ns: must be integers, got {times.dtype}")
    return times.astype(np.int64, copy=False)


class RecordingTime:
    """Maps (device, time) to (user, nanoseconds since the start of that user's recording).

    Args:
        start_ns: Begin of each user's recording.
        span_ns: Length of each user's recording.
        devices: Which user each device replays, and how far shifted.
    """

    def __init__(self, start_ns: NDArray[np.int64], span_ns: NDArray[np.int64], devices: DeviceMap) -> None:
        self.wrap, self.period_ns = devices.wrap, devices.period_ns
        self._start = start_ns
        self._span = span_ns
        self._padded = bool(np.any(devices.period_ns > span_ns))
        # All devices are asked in the order of their place in the flat arrays: memory is then read front to
        # back, which is about twice as fast as in the order of the devices. The map itself is not kept: it
        # would be another twelve bytes per device.
        self._order = np.lexsort((devices.phase_ns, devices.user)).astype(np.int32)
        self._rank = np.empty_like(self._order)
        self._rank[self._order] = np.arange(len(devices), dtype=np.int32)
        self._user = devices.user[self._order]
        self._phase = devices.phase_ns[self._order]

    def __len__(self) -> int:
        return len(self._rank)

    @property
    def map(self) -> DeviceMap:
        """What it was made of."""
        return DeviceMap(*self._who(slice(None)), self.period_ns, self.wrap)

    def users(self, devices: NDArray[np.integer] | slice) -> NDArray[np.int32]:
        """Whom some devices replay."""
        return self._who(devices)[0]

    def _who(self, devices: NDArray[np.integer] | slice) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        place = self._rank[devices]
        return self._user.take(place), self._phase.take(place)

    def ask(
        self, t_ns: Times, devices: Devices, kernel: Kernel, kinds: Sequence[type[np.generic]]
    ) -> list[NDArray[Any]]:
        """Answers of a kernel for each device, one array per kind.

        The kernel sees places as they fall: with ``wrap`` from 0 to below the period, else any number.
        """
        times = whole_ns(t_ns)
        n = self.asked(devices, times)
        if devices is None and n != len(self):
            devices = np.zeros(n, np.int64)
        if times.ndim and times.shape != (n,):
            raise ValueError(f"t_ns: {times.shape} times for {n} devices")
        shared = self._shared(times) if not times.ndim else None
        answers: list[NDArray[Any]] = [np.empty(n, kind) for kind in kinds]
        for part, place, user, phase in self._parts(n, devices):
            if shared is None:
                x_ns = self._wrapped(times[place] - self._start.take(user) + phase, user)
            else:
                x_ns = shared.take(user)
                x_ns += phase
                self._wrap_once(x_ns, user)
            for answer, found in zip(answers, kernel(user, x_ns, place), strict=True):
                answer[part] = found
        # One array after the other: scattering into all of them part by part would thrash the caches.
        return [answer.take(self._rank) for answer in answers] if devices is None else answers

    def asked(self, devices: Devices, *times: Times) -> int:
        """How many answers are wanted: one per device, or one per time if there is only one device."""
        if devices is not None:
            return len(devices)
        return max(map(np.size, times)) if len(self) == 1 else len(self)

    def inside(self, user: NDArray[np.int32], x_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Places brought into the recording; what lies outside goes to its end, where nothing is known."""
        if self.wrap:
            return np.minimum(x_ns, self._span.take(user)) if self._padded else x_ns
        span = self._span.take(user)
        return np.where((x_ns >= 0) & (x_ns < span), x_ns, span)

    def clipped(self, user: NDArray[np.int32], x_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Places brought to the nearer end of the recording."""
        return np.clip(x_ns, 0, self._span.take(user))

    def _parts(
        self, n: int, devices: Devices
    ) -> Iterator[tuple[slice, Place, NDArray[np.int32], NDArray[np.int64]]]:
        """Where the answers go, which devices they are of, their users and phases; a part at a time."""
        for begin in range(0, n, PART):
            part = slice(begin, begin + PART)
            if devices is None:
                yield part, self._order[part], self._user[part], self._phase[part]
            else:
                yield part, part, *self._who(devices[part])

    def _shared(self, t_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where an unshifted device of each user is; one division per user instead of one per device."""
        x_ns = t_ns - self._start
        return x_ns % self.period_ns if self.wrap else x_ns

    def _wrap_once(self, x_ns: NDArray[np.int64], user: NDArray[np.int32]) -> None:
        """Bring a sum of two numbers below the period below it again."""
        if self.wrap:
            period = self.period_ns.take(user)
            period *= x_ns >= period
            x_ns -= period

    def _wrapped(self, x_ns: NDArray[np.int64], user: NDArray[np.int32]) -> NDArray[np.int64]:
        return x_ns % self.period_ns.take(user) if self.wrap else x_ns


NEVER_NS = int(np.iinfo(np.int64).max)
"""Stands for "no further change"."""

Same = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.bool_]]
"""Whether two steps, given by their numbers, have equal values."""


class NextChange:
    """The next change after a place in a recording.

    Neighbouring steps differ, except that a user's last step (from the span on nothing is known) may repeat
    the one before it.

    Args:
        steps: The step function.
        same: Compares two of its steps.
        devices: Says whether and with which period recordings repeat.
    """

    def __init__(self, steps: Steps, same: Same, devices: DeviceMap | RecordingTime) -> None:
        self._steps = steps
        first, end = steps.offset[:-1], steps.offset[1:] - 1
        real_end = ~same(end - 1, end)
        if devices.wrap:
            # Without padding the recording begins again before its last step is reached.
            real_end &= devices.period_ns > steps.t_ns[end]
        self._last = np.where(real_end, end, end - 1)
        second = steps.t_ns[first + 1]
        only_one = self._last == first
        # Before the recording nothing is known, as after it.
        self._from_before = np.where(~same(first, end), 0, np.where(only_one, NEVER_NS, second))
        if devices.wrap:
            seam = np.where(only_one, NEVER_NS, devices.period_ns + second)
            self._after_last = np.where(~same(first, self._last), devices.period_ns, seam)
        else:
            self._after_last = np.full(len(first), NEVER_NS)

    def after(
        self, user: NDArray[np.int32], x_ns: NDArray[np.int64], inside_ns: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Nanoseconds until the next change, `NEVER_NS` if there is none.

        Args:
            user: Index of the user.
            x_ns: Place in the recording, possibly outside.
            inside_ns: The same place as `Steps.at` takes it.
        """
        step = self._steps.at(user, inside_ns)
        over = step >= self._last.take(user)
        next_ns = self._steps.t_ns.take(np.where(over, step, step + 1))
        next_ns = np.where(over, self._after_last.take(user), next_ns)
        next_ns = np.where(x_ns < 0, self._from_before.take(user), next_ns)
        return np.where(next_ns == NEVER_NS, NEVER_NS, next_ns - x_ns)
