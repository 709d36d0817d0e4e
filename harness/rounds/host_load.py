"""What the host's own processors did during a run: idle and stolen time, from ``/proc/stat``.

Devices that are processes of this machine share its processors. When those are all busy, or taken away by a
hypervisor, a device is slower than it was when it was profiled, and no profile can know. On a bench of real
devices this tells whether the host could keep up with the instruments.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from joulefleet.runstore import Run, read_table
from joulefleet.runstore.columns import Columns

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

TABLE = "host_load"
COLUMNS = ("t_ns", "ticks", "idle", "steal")
PERIOD_S = 0.2
"""Ten of the kernel's 10 ms ticks per core and reading: fine enough for phases of a second."""

STAT = Path("/proc/stat")
_IDLE, _STEAL = (3, 4), (7,)
"""Columns of the ``cpu`` line (proc(5)): idle and waiting for input or output; taken by a hypervisor."""


def read_ticks(path: Path) -> tuple[int, ...]:
    """Clock ticks since boot, over all processors: all, idle, stolen."""
    # Guest time, in the columns after these, is already in user and nice.
    columns = [int(text) for text in path.read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
    return sum(columns), *(sum(columns[i] for i in which) for which in (_IDLE, _STEAL))


def _schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema([(name, pa.int64()) for name in COLUMNS])


def _tables(run: Path) -> list[str]:
    return sorted({path.stem for path in run.glob(f"{TABLE}-*.*") if not path.name.startswith(".")})


class HostLoadLog:
    """Reads the host's processors now and then, one table per session. Use as a context manager."""

    def __init__(self, run: Run, *, period_s: float = PERIOD_S) -> None:
        self._table = run.table(f"{TABLE}-{len(_tables(run.path)) + 1}", _schema())
        self._period_s = period_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=TABLE, daemon=True)

    def __enter__(self) -> Self:
        self._table.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        self._table.__exit__(None, None, None)

    def _follow(self) -> None:
        if not STAT.exists():  # no Linux: how busy the host was is not known
            return
        while True:
            row = (time.monotonic_ns(), *read_ticks(STAT))
            self._table.append({name: [value] for name, value in zip(COLUMNS, row, strict=True)})
            if self._over.wait(self._period_s):
                return


@dataclass(frozen=True, slots=True)
class Contention:
    """Shares of the host's processor time during a stretch."""

    idle: float
    steal: float


@dataclass(frozen=True, slots=True, eq=False)
class HostReadings:
    """Those of one session, by host-monotonic time."""

    t_ns: NDArray[np.int64]
    ticks: NDArray[np.int64]
    idle: NDArray[np.int64]
    steal: NDArray[np.int64]

    def between(self, start_ns: int, end_ns: int) -> Contention | None:
        """From the reading before a stretch to the one after it; None if there are none."""
        first = int(np.searchsorted(self.t_ns, start_ns, side="right")) - 1
        last = int(np.searchsorted(self.t_ns, end_ns, side="left"))
        if first < 0 or last >= len(self.t_ns) or self.ticks[last] <= self.ticks[first]:
            return None
        ticks, idle, steal = (
            int(column[last] - column[first]) for column in (self.ticks, self.idle, self.steal)
        )
        return Contention(idle / ticks, steal / ticks)


@dataclass(frozen=True, slots=True)
class HostLoad:
    """The readings of a run, one entry per session."""

    sessions: tuple[HostReadings, ...]

    @classmethod
    def read(cls, run: Path) -> Self:
        """Of all sessions of a run."""
        columns = Columns(_schema(), lowest=dict.fromkeys(COLUMNS, 0), rising={"t_ns": 0})
        tables = [read_table(run, name, columns) for name in _tables(run)]
        return cls(
            tuple(HostReadings(*(table.column(name).to_numpy() for name in COLUMNS)) for table in tables)
        )

    def between(self, start_ns: int, end_ns: int) -> Contention | None:
        """As `HostReadings.between`; None too if two fit: the clock begins anew when the host boots."""
        found = [load for one in self.sessions if (load := one.between(start_ns, end_ns)) is not None]
        return found[0] if len(found) == 1 else None
