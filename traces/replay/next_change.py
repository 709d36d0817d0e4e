"""When a step function next changes for a device, across the seam where a recording repeats or ends."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from traces.replay.devices import DeviceMap
from traces.replay.steps import Steps

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

    def __init__(self, steps: Steps, same: Same, devices: DeviceMap) -> None:
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
