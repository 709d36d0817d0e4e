"""Step functions of many users in one array, with an index that finds the step in force in constant time.

Every user's time is cut into buckets of ``2**shift`` nanoseconds, about four per step. For each bucket the
index keeps the step in force at its start. A query reads the entries of its bucket and of the next one; where
they agree (nearly always) that is the answer, else a bisection between them finds it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BUCKETS_PER_STEP = 4


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Where the steps of U users begin.

    The steps of user ``u`` are ``t_ns[offset[u]:offset[u + 1]]``, in nanoseconds since the start of that
    user's recording. They increase strictly; the first is 0 and the last is the user's span, from which on
    nothing is known.

    Attributes:
        t_ns: Begin of each step.
        offset: First step of each user, and the total.
        shift: Width of each user's buckets, as a power of two.
        bucket: First bucket of each user, and the total.
        in_force: Per bucket the step in force at its start.
    """

    t_ns: NDArray[np.int64]
    offset: NDArray[np.int64]
    shift: NDArray[np.int64]
    bucket: NDArray[np.int64]
    in_force: NDArray[np.int32]

    @classmethod
    def index(cls, t_ns: NDArray[np.int64], offset: NDArray[np.int64]) -> Steps:
        """Build the index over steps that are already in place."""
        count = np.diff(offset)
        span_ns = t_ns[offset[1:] - 1] if len(count) else np.empty(0, np.int64)
        shift = _shifts(span_ns, count)
        # Buckets up to the one that holds the span, and one more to read the end of the last one.
        buckets = (span_ns >> shift) + 2
        bucket = np.concatenate([[0], np.cumsum(buckets)]).astype(np.int64)
        of_step = np.repeat(shift, count)
        # A step at the very start of a bucket is in force there, hence the rounding up.
        rounded = (t_ns + (np.int64(1) << of_step) - 1) >> of_step
        begun = np.bincount(np.repeat(bucket[:-1], count) + rounded, minlength=int(bucket[-1]))
        in_force = (np.cumsum(begun) - 1).astype(np.int32)
        return cls(t_ns, offset, shift, bucket, in_force)

    def __len__(self) -> int:
        return len(self.t_ns)

    @property
    def users(self) -> int:
        """How many users."""
        return len(self.offset) - 1

    def at(self, user: NDArray[np.int32], x_ns: NDArray[np.int64]) -> NDArray[np.int32]:
        """The step in force for each user at each time since the start of its recording.

        Args:
            user: Index of the user.
            x_ns: From 0 to the user's span, both included.
        """
        bucket = self.bucket.take(user)
        bucket += x_ns >> self.shift.take(user)
        low = self.in_force.take(bucket)
        bucket += 1
        high = self.in_force.take(bucket)
        open_ = np.flatnonzero(low != high)
        if len(open_):
            low[open_] = self._bisect(low.take(open_), high.take(open_), x_ns.take(open_))
        return low

    def _bisect(
        self, low: NDArray[np.int32], high: NDArray[np.int32], x_ns: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """The last step in ``[low, high]`` that begins at or before ``x_ns``."""
        for _ in range(int((high - low).max()).bit_length()):
            middle = (low + high + 1) >> 1
            begun = self.t_ns.take(middle) <= x_ns
            low = np.where(begun, middle, low)
            high = np.where(begun, high, middle - 1)
        return low

    def user_of_step(self) -> NDArray[np.int32]:
        """The user each step belongs to."""
        return np.repeat(np.arange(self.users, dtype=np.int32), np.diff(self.offset))


def _shifts(span_ns: NDArray[np.int64], count: NDArray[np.int64]) -> NDArray[np.int64]:
    """Per user the smallest power of two that gives at most `BUCKETS_PER_STEP` buckets per step."""
    wanted = np.maximum(span_ns // (BUCKETS_PER_STEP * np.maximum(count, 1)), 1)
    return np.asarray(np.ceil(np.log2(wanted)), np.int64)
