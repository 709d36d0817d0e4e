"""What an emulated instrument measures: load models in amperes and volts over host time."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Signal(Protocol):
    """A load. Called with times that only increase, in host-monotonic nanoseconds."""

    def sample(self, t_ns: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Current in amperes and voltage in volts at each time."""


@dataclass(slots=True)
class Square:
    """Two levels in turn, starting low at the first sample. A step and a constant are special cases.

    Attributes:
        low_a: Current in the low part, amperes.
        high_a: Current in the high part, amperes.
        voltage_v: Supply voltage, volts.
        period_s: Length of one low and one high part together, seconds.
        duty: Share of the period that is high.
    """

    low_a: float
    high_a: float
    voltage_v: float
    period_s: float = 1.0
    duty: float = 0.5
    _start_ns: int | None = None

    def sample(self, t_ns: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """See `Signal`."""
        if self._start_ns is None:
            self._start_ns = int(t_ns[0])
        phase = ((t_ns - self._start_ns) * 1e-9 / self.period_s) % 1.0
        current = np.where(phase < 1.0 - self.duty, self.low_a, self.high_a)
        return current, np.full(len(t_ns), self.voltage_v)


@dataclass(slots=True)
class StepSignal:
    """One level, then another until the end."""

    before_a: float
    after_a: float
    voltage_v: float
    at_s: float = 1.0
    _start_ns: int | None = None

    def sample(self, t_ns: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """See `Signal`."""
        if self._start_ns is None:
            self._start_ns = int(t_ns[0])
        current = np.where((t_ns - self._start_ns) * 1e-9 < self.at_s, self.before_a, self.after_a)
        return current, np.full(len(t_ns), self.voltage_v)


def constant(current_a: float, voltage_v: float) -> StepSignal:
    """The same current all the time."""
    return StepSignal(current_a, current_a, voltage_v)


@dataclass(slots=True)
class Recorded:
    """Samples played in a loop, held between their times.

    Attributes:
        t_s: Times from 0, increasing, seconds.
        current_a: Current at each time.
        voltage_v: Voltage at each time.
    """

    t_s: NDArray[np.float64]
    current_a: NDArray[np.float64]
    voltage_v: NDArray[np.float64]
    _start_ns: int | None = None

    def sample(self, t_ns: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """See `Signal`."""
        if self._start_ns is None:
            self._start_ns = int(t_ns[0])
        step = self.t_s[-1] / max(1, len(self.t_s) - 1)
        t = ((t_ns - self._start_ns) * 1e-9) % (self.t_s[-1] + step)
        i = np.searchsorted(self.t_s, t, side="right") - 1
        return self.current_a[i], self.voltage_v[i]


LOOK_NS = 3_000_000
"""A look at a process tree takes up to a millisecond. An instrument that asks for every sample by itself, and
one that catches up after a pause, must not spend all its time looking."""


@dataclass(slots=True)
class ProcessLoad:
    """The CPU time of a live process tree, so that work really done here shows in the trace.

    Power is ``idle_w + dynamic_w * (cores busy)``. CPU time comes from the scheduler's own nanosecond
    counters (``/proc/<pid>/task/<tid>/schedstat``), which unlike clock ticks resolve milliseconds.

    Attributes:
        root: Root of the process tree, or a file that holds its number: then every process whose number is
            written there takes its turn, and without one the load is idle.
        idle_w: Power when the tree does nothing, watts.
        dynamic_w: Extra power of one fully busy core, watts.
        voltage_v: Supply voltage, volts.
        speed: File with the speed of this machine, as a share of a reference. Where the speed drifts, power
            then follows the work and not the time it takes.
    """

    root: int | Path
    idle_w: float = 0.8
    dynamic_w: float = 2.0
    voltage_v: float = 4.0
    speed: Path | None = None
    _seen_ns: dict[int, int] = field(default_factory=dict)
    _last_cpu_ns: int = 0
    _last_t_ns: int | None = None
    _looked_ns: int = 0
    _busy: float = 0.0

    def sample(self, t_ns: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """See `Signal`; the load since the last look is spread evenly over the times asked for."""
        if time.monotonic_ns() - self._looked_ns >= LOOK_NS:
            self._look(int(t_ns[-1]))
        power_w = self.idle_w + self.dynamic_w * max(0.0, self._busy)
        voltage = np.full(len(t_ns), self.voltage_v)
        return np.full(len(t_ns), power_w / self.voltage_v), voltage

    def _look(self, now_ns: int) -> None:
        cpu_ns = self._cpu_ns()
        if self._last_t_ns is not None and now_ns > self._last_t_ns:
            self._busy = (cpu_ns - self._last_cpu_ns) / (now_ns - self._last_t_ns) * read_speed(self.speed)
        self._last_t_ns, self._last_cpu_ns = now_ns, cpu_ns
        self._looked_ns = time.monotonic_ns()

    def _cpu_ns(self) -> int:
        """CPU time of every thread of the tree ever seen; the dead keep what they had used."""
        for pid in process_tree(self._pid()):
            for task in _listdir(Path(f"/proc/{pid}/task")):
                try:
                    used = int((task / "schedstat").read_text().split()[0])
                except (OSError, ValueError, IndexError):
                    continue
                self._seen_ns[int(task.name)] = used
        return sum(self._seen_ns.values())

    def _pid(self) -> int:
        if isinstance(self.root, int):
            return self.root
        try:
            return int(self.root.read_text())
        except (OSError, ValueError):
            return NOBODY


NOBODY = -1
"""No process has this number."""


def read_speed(file: Path | None) -> float:
    """What a file says about the speed of this machine; 1 without one, and as long as it does not say."""
    if file is None:
        return 1.0
    try:
        return float(file.read_text())
    except (OSError, ValueError):
        return 1.0


def process_tree(root: int) -> list[int]:
    """A process and all its descendants, from the kernel's own children lists."""
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        for task in _listdir(Path(f"/proc/{pid}/task")):
            try:
                todo += [int(child) for child in (task / "children").read_text().split()]
            except (OSError, ValueError):
                continue
    return found


def _listdir(path: Path) -> list[Path]:
    try:
        return list(path.iterdir())
    except OSError:
        return []


@dataclass(slots=True)
class Regulated:
    """A load seen through a supply: the regulator smooths it, the meter adds noise.

    Attributes:
        load: What draws the current.
        tau_s: Time constant of the regulator (first-order low-pass); 0 for none.
        noise_a: Standard deviation of white current noise, amperes.
        rng: Where the noise comes from.
    """

    load: Signal
    tau_s: float = 0.0
    noise_a: float = 0.0
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    _level_a: float | None = None
    _last_ns: int | None = None

    def sample(self, t_ns: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """See `Signal`; what is returned is the truth that a perfect meter would read, plus noise."""
        current, voltage = self.load.sample(t_ns)
        if self.tau_s > 0:
            current = self._smooth(t_ns, current)
        if self.noise_a > 0:
            current = current + self.rng.normal(0.0, self.noise_a, len(current))
        return current, voltage

    def _smooth(self, t_ns: NDArray[np.int64], current: NDArray[np.float64]) -> NDArray[np.float64]:
        if self._level_a is None or self._last_ns is None:
            self._level_a, self._last_ns = float(current[0]), int(t_ns[0]) - 1
        # Sample periods are equal inside one call up to the rounding to nanoseconds.
        dt_s = max(1, (int(t_ns[-1]) - self._last_ns) // len(t_ns)) * 1e-9
        keep = math.exp(-dt_s / self.tau_s)
        # A plain loop: a few thousand samples a second, for which scipy.signal takes 0.8 s to import.
        levels_a = accumulate(
            ((1.0 - keep) * current).tolist(), lambda level_a, part_a: part_a + keep * level_a,
            initial=self._level_a,
        )  # fmt: skip
        out = np.fromiter(levels_a, np.float64)[1:]
        self._level_a, self._last_ns = float(out[-1]), int(t_ns[-1])
        return out


TRUTH_DTYPE = np.dtype([("t_ns", "<i8"), ("current_a", "<f8"), ("voltage_v", "<f8")])


class TruthLog:
    """What the load really was, kept beside the emulated reading to test against."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb", buffering=0)

    def add(
        self, t_ns: NDArray[np.int64], current_a: NDArray[np.float64], voltage_v: NDArray[np.float64]
    ) -> None:
        """Append the truth at these times."""
        rows = np.empty(len(t_ns), TRUTH_DTYPE)
        rows["t_ns"], rows["current_a"], rows["voltage_v"] = t_ns, current_a, voltage_v
        self._file.write(rows.tobytes())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_truth(path: Path) -> NDArray[Any]:
    """The truth written by a `TruthLog`, memory-mapped; a torn last row is left out."""
    rows = path.stat().st_size // TRUTH_DTYPE.itemsize
    return np.memmap(path, TRUTH_DTYPE, "r", shape=(rows,)) if rows else np.empty(0, TRUTH_DTYPE)
