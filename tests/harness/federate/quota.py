"""Devices of different speed on one machine: each one's agents get a share of a core, and no more.

    python -m tests.harness.federate.quota PID:SHARE[:FILE] ...

``PID`` is a device's SSH server. What runs below it is stopped when it has used up its share and goes on when
it has earned some: a bucket of processor time. Time that it wanted and others took is made up for (up to a
second of it), so a device is as fast as its share beside whatever else runs on its core. Where a ``FILE``
holds the speed of that core (`steady_host`), it is as fast even while the machine is not. It ends, and lets
everything go on, when its standard input does.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from power.emulated.signals import process_tree, read_speed
from tests.priority import in_real_time

TICK_S = 0.004
LOOK_S = 0.1
FULL_S = 0.1
OWED_S = 1.0
"""How often processor time is read, and processes are looked for; what a bucket holds, and must hold for a
stopped device to go on, in seconds of the device's own share; and what it may hold for a device that wants to
run and has to wait for its core. In slices of a millisecond or two the same work
took about a fifth more processor time, likely to fill caches again."""

NOWHERE: Mapping[int, Path] = MappingProxyType({})


class Bucket:
    """The processor time that one device may use."""

    def __init__(self, root: int, share: float, speed: Path | None = None) -> None:
        self._root = root
        self._share = share
        self._speed = speed
        self._have_s = 0.0
        self._used_s: dict[int, float] = {}
        self._stopped = False

    def look(self) -> None:
        """Find the processes of the device that are not its SSH server's."""
        for pid in process_tree(self._root)[1:]:
            if pid not in self._used_s and not _comm(pid).startswith("sshd"):
                self._used_s[pid] = _cpu_s(pid)
                if self._stopped:
                    _signal(pid, signal.SIGSTOP)

    def pass_by(self, seconds: float) -> None:
        """Some time has passed: count what was earned and used, and stop or go on."""
        self._have_s += self._share * seconds
        speed = read_speed(self._speed)
        for pid, before_s in list(self._used_s.items()):
            now_s = _cpu_s(pid)
            if now_s < 0:
                del self._used_s[pid]
                continue
            self._have_s -= speed * (now_s - before_s)
            self._used_s[pid] = now_s
        if self._have_s > FULL_S * self._share:
            self._have_s = min(self._have_s, (OWED_S if self._wants_to_run() else FULL_S) * self._share)
        if self._have_s <= 0 and not self._stopped:
            self._set(stopped=True)
        elif self._have_s >= FULL_S * self._share and self._stopped:
            self._set(stopped=False)

    def _wants_to_run(self) -> bool:
        """Whether a thread of it is running, or waits for the core."""
        return not self._stopped and any(_is_runnable(pid) for pid in self._used_s)

    def let_go(self) -> None:
        """Everything goes on."""
        self._set(stopped=False)

    def _set(self, *, stopped: bool) -> None:
        self._stopped = stopped
        for pid in self._used_s:
            _signal(pid, signal.SIGSTOP if stopped else signal.SIGCONT)


def _cpu_s(pid: int) -> float:
    """Processor time of all threads of a process, to the nanosecond; -1 if it is gone."""
    try:
        # The clock's number is made as glibc's clock_getcpuclockid() makes it.
        return time.clock_gettime(((~pid) << 3) | 2)
    except OSError:
        return -1.0


def _comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return "sshd: gone"


def _is_runnable(pid: int) -> bool:
    for task in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):
            # The state is behind the name, which is in brackets and may hold any character.
            if task.read_text().rpartition(")")[2].split()[0] == "R":
                return True
    return False


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def main(arguments: list[str]) -> None:
    buckets = []
    for argument in arguments:
        pid, share, *file = argument.split(":", 2)
        buckets.append(Bucket(int(pid), float(share), Path(file[0]) if file else None))
    looked_s = last_s = 0.0
    try:
        while not select.select([sys.stdin], [], [], TICK_S)[0]:
            now_s = time.monotonic()
            if now_s - looked_s >= LOOK_S:
                looked_s = now_s
                for bucket in buckets:
                    bucket.look()
            for bucket in buckets:
                bucket.pass_by(min(now_s - last_s, FULL_S))
            last_s = now_s
    finally:
        for bucket in buckets:
            bucket.let_go()


@contextlib.contextmanager
def quotas(shares: Mapping[int, float], speeds: Mapping[int, Path] = NOWHERE) -> Iterator[None]:
    """Hold the processes below some SSH servers to shares of a core, whose speed may be in a file."""
    command = [sys.executable, "-m", "tests.harness.federate.quota"]
    for pid, share in shares.items():
        command.append(f"{pid}:{share}:{speeds[pid]}" if pid in speeds else f"{pid}:{share}")
    with subprocess.Popen(command, stdin=subprocess.PIPE, cwd=Path(__file__).parents[3]) as process:
        try:
            yield
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(10)


if __name__ == "__main__":
    with in_real_time(3):  # a device must not run on because whoever stops it waits for a core
        main(sys.argv[1:])
