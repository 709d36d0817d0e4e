"""Worker processes of one thread each, and the rows of numbers that they share.

They are forked, so that they have the data and know the user's own classes.
Two processes of one thread do the work of two cores; one process with two torch threads does far less, since
the tensors of a small model are too small to be divided.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import multiprocessing
import os
import signal
import sys
import tempfile
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import numpy as np

from joulefleet.errors import JoulefleetError

if TYPE_CHECKING:
    from multiprocessing.context import ForkProcess

    from numpy.typing import NDArray

J = TypeVar("J")
R = TypeVar("R")

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # mallopt(3)
_LARGEST, _LARGEST_EVERYWHERE = 2**30, 32 * 2**20  # what newer glibcs accept, and what every one does


def keep_freed_memory() -> None:
    """Have glibc keep what is freed, for the rest of this process's life and of those it forks.

    A step frees what it allocated, tens of megabytes, and glibc returns blocks that large to the system. The
    next step gets them back page by page, zeroed: 12,000 page faults per step of the LSTM, a fifth of its
    time.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform.startswith("linux") else None
    if mallopt is not None:
        if not mallopt(_MMAP_THRESHOLD, _LARGEST):
            mallopt(_MMAP_THRESHOLD, _LARGEST_EVERYWHERE)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)


@contextmanager
def one_thread() -> Iterator[None]:
    """Have torch compute in the calling thread, as a worker does."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Pool(Generic[J, R]):
    """Runs jobs in forked processes, started with the first job; they end with this process at the latest.

    Args:
        workers: How many.
        work: What each one does with a job.
    """

    def __init__(self, workers: int, work: Callable[[J], R]) -> None:
        self._count = workers
        self._work = work
        self._workers: dict[Connection, ForkProcess] = {}

    def run(self, jobs: Sequence[J]) -> list[R]:
        """The jobs' results in their order; started in their order, whoever is free takes the next.

        Raises:
            JoulefleetError: A job failed, or a worker died.
        """
        if not self._workers:
            self._start()
        results: list[Any] = [None] * len(jobs)
        waiting = list(enumerate(jobs))[::-1]
        running: dict[Connection, int] = {}
        try:
            for worker in self._workers:
                self._give(worker, waiting, running)
            while running:
                for worker in self._ready(running):
                    results[running.pop(worker)] = self._receive(worker)
                    self._give(worker, waiting, running)
        except BaseException:
            self.close()  # whatever the others still send belongs to no later call
            raise
        return results

    def close(self) -> None:
        """End the workers."""
        for process in self._workers.values():
            process.terminate()
        for connection, process in self._workers.items():
            process.join()
            connection.close()
        self._workers = {}

    def _start(self) -> None:
        context = multiprocessing.get_context("fork")
        for _ in range(self._count):
            ours, theirs = context.Pipe()
            inherited = [*self._workers, ours]
            process = context.Process(
                target=_serve, args=(theirs, inherited, self._work), daemon=True, name="joulefleet-training"
            )
            with warnings.catch_warnings():
                # Python 3.12 warns of a fork beside threads, whose locks would stay locked in the child. The
                # child runs torch on one thread and nothing else; torch's own loaders do the same.
                warnings.filterwarnings("ignore", category=DeprecationWarning)
                process.start()
            theirs.close()
            self._workers[ours] = process

    @staticmethod
    def _give(worker: Connection, waiting: list[tuple[int, J]], running: dict[Connection, int]) -> None:
        if waiting:
            number, job = waiting.pop()
            running[worker] = number
            with contextlib.suppress(BrokenPipeError):  # a dead worker is noticed when it is waited for
                worker.send(job)

    def _ready(self, running: dict[Connection, int]) -> list[Connection]:
        sentinels = [self._workers[worker].sentinel for worker in running]
        ready = wait([*running, *sentinels])
        return [worker for worker in running if worker in ready or self._workers[worker].sentinel in ready]

    def _receive(self, worker: Connection) -> R:
        try:
            failed, value = worker.recv()
        except (EOFError, ConnectionResetError):
            self._died(self._workers[worker])
        if failed:
            raise value
        result: R = value
        return result

    def _died(self, process: ForkProcess) -> NoReturn:
        process.join()
        code = process.exitcode or 0
        cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        raise JoulefleetError(
            f"a training worker (process {process.pid}) ended in the middle of its work: {cause}",
            hint="SIGKILL is mostly the system running out of memory: try fewer workers or fewer candidates",
        )


def _serve(connection: Connection, inherited: list[Connection], work: Callable[[Any], Any]) -> None:
    """A worker's life: one job after the other until the other end is closed."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    for other in inherited:
        other.close()  # or this worker would keep its own pipe open after the parent's death
    torch.set_num_threads(1)
    while True:
        try:
            job = connection.recv()
        except (EOFError, ConnectionError):  # the parent has ended; killed, if a message was under way
            return
        connection.send(_attempt(work, job))


def _attempt(work: Callable[[Any], Any], job: Any) -> tuple[bool, Any]:
    try:
        return False, work(job)
    except JoulefleetError as error:
        return True, error
    except Exception:
        return True, JoulefleetError(f"a training worker failed:\n{traceback.format_exc()}")


class SharedRows:
    """A table of float32 rows that forked processes share, and that can grow.

    It has no name anywhere, so nothing is left behind when a process is killed.

    Args:
        columns: Numbers per row.
    """

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._handle = _anonymous_file()
        weakref.finalize(self, os.close, self._handle)
        self._rows: NDArray[np.float32] = np.empty((0, columns), np.float32)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def row_bytes(self) -> int:
        """Size of a row."""
        return self._columns * 4

    def grow(self, count: int) -> None:
        """Have at least so many rows. What is there stays; other processes see more after `rows`."""
        if count > len(self._rows):
            os.ftruncate(self._handle, count * self.row_bytes)
            self.rows(count)

    def rows(self, count: int) -> NDArray[np.float32]:
        """The first rows, of which another process may have made some."""
        if count > len(self._rows):
            memory = mmap.mmap(self._handle, count * self.row_bytes)
            self._rows = np.frombuffer(memory, np.float32).reshape(count, self._columns)
        return self._rows[:count]


def memory_bytes() -> int:
    """What this machine has; a table may be made larger than that, and the process is killed as it fills."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("joulefleet-training", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
