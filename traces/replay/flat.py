"""The flat form: all users of a trace set in a few long arrays, made for questions about many devices.

`flatten` turns traces into it; `traces.replay.flat_store` keeps it on disk, memory-mapped. Values of the
arrays between two steps:

* flags, app, cpu and memory are constant;
* the integrals ``cpu_s`` and ``memory_s`` (intensity x seconds since the user's start) and ``known_ns`` (time
  with a known intensity) grow linearly, so that the mean over any window is exact and needs two look-ups;
* the battery level is linear (``level + slope_per_ns * elapsed``); NaN where unknown;
* the throughput is constant; NaN where unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from joulefleet.errors import DataQualityError
from traces.model import InteractionTrace, interval_channels, point_channels
from traces.quality.checks import require_replayable
from traces.replay.intensity import IntensityTable, default_table
from traces.replay.steps import Steps
from traces.replay.timeline import (
    MAX_BLOCK_NS,
    AppIndex,
    ReadingBlock,
    StateBlock,
    TimeAxis,
    reading_block,
    state_block,
)

BLOCK_USERS = 1024
BLOCK_ROWS = 1_000_000
STEP_ARRAYS = ("t_ns", "offset", "shift", "bucket", "in_force")
VALUE_ARRAYS = {
    "state": ("flags", "app", "cpu", "memory", "cpu_s", "memory_s", "known_ns"),
    "battery": ("level", "slope_per_ns"),
    "throughput": ("down_bps", "up_bps"),
}
"""The three groups of steps and the values each carries."""


@dataclass(frozen=True, slots=True, eq=False)
class FlatTraces:
    """Traces of U users, ready to be asked.

    Attributes:
        users: Their names.
        start_ns: Begin of each recording, POSIX nanoseconds.
        span_ns: Length of each recording.
        state: Steps of facts, network, app and intensity.
        battery: Steps of the battery level.
        throughput: Steps of the network throughput.
        apps: Names behind the numbers in ``app``.
        categories: Category of each app.
        time_zones: All that the users name, sorted; the empty string for "unknown". ``None`` if they were
            not kept: flat forms of earlier versions on disk.
    """

    users: tuple[str, ...]
    start_ns: NDArray[np.int64]
    span_ns: NDArray[np.int64]
    state: Steps
    flags: NDArray[np.uint16]
    app: NDArray[np.int32]
    cpu: NDArray[np.float32]
    memory: NDArray[np.float32]
    cpu_s: NDArray[np.float64]
    memory_s: NDArray[np.float64]
    known_ns: NDArray[np.int64]
    battery: Steps
    level: NDArray[np.float64]
    slope_per_ns: NDArray[np.float64]
    throughput: Steps
    down_bps: NDArray[np.float64]
    up_bps: NDArray[np.float64]
    apps: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    time_zones: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.users)


class ArraySink(Protocol):
    """Takes arrays in parts and gives them back whole."""

    def append(self, name: str, part: NDArray[Any]) -> None:
        """Add to the end of the array called ``name``."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Every array, complete."""


class MemorySink:
    """Keeps the arrays in memory."""

    def __init__(self) -> None:
        self._parts: dict[str, list[NDArray[Any]]] = {}

    def append(self, name: str, part: NDArray[Any]) -> None:
        """Add to the end of an array."""
        self._parts.setdefault(name, []).append(part)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Every array, complete."""
        return {name: np.concatenate(parts) for name, parts in self._parts.items()}


def flatten(
    traces: Iterable[InteractionTrace], table: IntensityTable | None = None, sink: ArraySink | None = None
) -> FlatTraces:
    """Bring traces into the flat form, a block of users at a time.

    Args:
        traces: Without errors (`traces.quality.checks`), else they are refused.
        table: Intensities of apps; by default the one that ships with joulefleet.
        sink: Where the arrays grow; by default in memory.

    Raises:
        DataQualityError: A trace has errors, or there is no trace at all.
    """
    apps = AppIndex(table or default_table())
    sink = MemorySink() if sink is None else sink
    writer = _BlockWriter(sink, apps)
    users: list[str] = []
    time_zones: set[str] = set()
    for block in _blocks(traces):
        writer.write(block)
        users += [trace.user for trace in block]
        time_zones |= {trace.time_zone for trace in block}
    if not users:
        raise DataQualityError("there is no trace to replay", hint="check what the import gave")
    known = apps.apps()
    return from_arrays(
        sink.arrays(), tuple(users), known.names, known.categories, time_zones=tuple(sorted(time_zones))
    )


def from_arrays(
    arrays: dict[str, NDArray[Any]],
    users: tuple[str, ...],
    apps: tuple[str, ...],
    categories: tuple[str, ...],
    *,
    time_zones: tuple[str, ...] | None,
) -> FlatTraces:
    """Put the arrays that a sink holds together."""
    fields: dict[str, Any] = {name: arrays[name] for names in VALUE_ARRAYS.values() for name in names}
    for group in VALUE_ARRAYS:
        fields[group] = Steps(**{name: arrays[f"{group}.{name}"] for name in STEP_ARRAYS})
    return FlatTraces(
        users,
        arrays["start_ns"],
        arrays["span_ns"],
        apps=apps,
        categories=categories,
        time_zones=time_zones,
        **fields,
    )


def _blocks(traces: Iterable[InteractionTrace]) -> Iterator[list[InteractionTrace]]:
    """Groups small enough for one time axis and for memory."""
    block: list[InteractionTrace] = []
    length_ns = rows = 0
    for trace in traces:
        require_replayable(trace)
        full = len(block) == BLOCK_USERS or rows >= BLOCK_ROWS or length_ns + trace.span_ns >= MAX_BLOCK_NS
        if block and full:
            yield block
            block, length_ns, rows = [], 0, 0
        block.append(trace)
        length_ns += trace.span_ns + 1
        rows += sum(len(part) for _, part in (*interval_channels(trace), *point_channels(trace)))
    if block:
        yield block


class _BlockWriter:
    """Appends blocks to a sink, keeping the running totals that offsets need."""

    def __init__(self, sink: ArraySink, apps: AppIndex) -> None:
        self._sink = sink
        self._apps = apps
        self._steps = dict.fromkeys(VALUE_ARRAYS, 0)
        self._buckets = dict.fromkeys(VALUE_ARRAYS, 0)

    def write(self, block: list[InteractionTrace]) -> None:
        """Append one block of users."""
        axis = TimeAxis(block)
        self._sink.append("start_ns", axis.start_ns)
        self._sink.append("span_ns", axis.span_ns)
        self._state(state_block(axis, self._apps))
        self._battery(axis)
        self._throughput(axis)

    def _state(self, state: StateBlock) -> None:
        self._index("state", state.t_ns, state.offset)
        length_ns = np.diff(state.t_ns, append=0)  # of a user's last step it means nothing and is not used
        known = ~np.isnan(state.cpu)
        integrals = {
            "cpu_s": _integral(np.where(known, state.cpu, 0.0) * (length_ns * 1e-9), state.offset),
            "memory_s": _integral(np.where(known, state.memory, 0.0) * (length_ns * 1e-9), state.offset),
            "known_ns": _integral(np.where(known, length_ns, 0), state.offset),
        }
        for name in VALUE_ARRAYS["state"]:
            self._sink.append(name, integrals[name] if name in integrals else getattr(state, name))

    def _battery(self, axis: TimeAxis) -> None:
        points = [trace.battery for trace in axis.traces]
        block = reading_block(axis, [None if part is None else part.t_ns for part in points])
        level = _values(block, [part.level for part in points if part is not None])
        slope = np.zeros(len(level))
        joined = np.flatnonzero((block.reading[:-1] >= 0) & (block.reading[1:] >= 0))
        slope[joined] = (level[joined + 1] - level[joined]) / (block.t_ns[joined + 1] - block.t_ns[joined])
        self._index("battery", block.t_ns, block.offset)
        self._sink.append("level", level)
        self._sink.append("slope_per_ns", slope)

    def _throughput(self, axis: TimeAxis) -> None:
        points = [trace.throughput for trace in axis.traces]
        block = reading_block(axis, [None if part is None else part.t_ns for part in points])
        self._index("throughput", block.t_ns, block.offset)
        for name in VALUE_ARRAYS["throughput"]:
            self._sink.append(name, _values(block, [getattr(p, name) for p in points if p is not None]))

    def _index(self, group: str, t_ns: NDArray[np.int64], offset: NDArray[np.int64]) -> None:
        steps = Steps.index(t_ns, offset)
        step, bucket = self._steps[group], self._buckets[group]
        if step + len(t_ns) > np.iinfo(np.int32).max:
            raise DataQualityError(f"more than 2**31 steps of {group}", hint="split the trace set")
        first = 0 if step == 0 else 1  # the total of the block before is the first entry of this one
        self._sink.append(f"{group}.t_ns", t_ns)
        self._sink.append(f"{group}.offset", steps.offset[first:] + step)
        self._sink.append(f"{group}.shift", steps.shift)
        self._sink.append(f"{group}.bucket", steps.bucket[first:] + bucket)
        self._sink.append(f"{group}.in_force", steps.in_force + np.int32(step))
        self._steps[group] += len(t_ns)
        self._buckets[group] += len(steps.in_force)


def _integral(amount: NDArray[Any], offset: NDArray[np.int64]) -> NDArray[Any]:
    """Running sums that begin at 0 for every user.

    Summed user by user: one sum through the block would cost digits of every later user.
    """
    total = np.zeros(len(amount), amount.dtype)
    for begin, end in zip(offset[:-1].tolist(), offset[1:].tolist(), strict=True):
        np.cumsum(amount[begin : end - 1], out=total[begin + 1 : end])
    return total


def _values(block: ReadingBlock, parts: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The value of each reading, NaN where there is none."""
    return np.concatenate([*parts, [np.nan]]).take(block.reading)
