"""Rows of float32 numbers in memory that a process shares with the ones it forked."""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref

import numpy as np
from numpy.typing import NDArray


class SharedRows:
    """A table that can grow. It has no name anywhere, so nothing is left behind when a process is killed.

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
