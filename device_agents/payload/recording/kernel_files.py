"""Small files of /proc and /sys, read again and again through descriptors that stay open."""

from __future__ import annotations

import os
import re
from pathlib import Path

_DIGITS = re.compile(r"(\d+)")


class KernelFile:
    """One attribute. Opening it again for every reading would cost more than the reading."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.read()  # some attributes open and then refuse to be read
        except BaseException:
            self.close()
            raise

    def read(self, size: int = 4096) -> bytes:
        """Its content now.

        Raises:
            OSError: It cannot be read (any more).
        """
        return os.pread(self._fd, size, 0)

    def number(self, base: int = 10) -> int:
        """Its content as a whole number.

        Raises:
            OSError: It cannot be read.
            ValueError: It is not a number.
        """
        return int(self.read(64), base)

    def close(self) -> None:
        """Release the descriptor."""
        os.close(self._fd)


def text(path: Path, default: str = "") -> str:
    """A one-line attribute, read once; ``default`` if it is not there."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()[:64]
    except OSError:
        return default


def find(folder: Path, pattern: str) -> list[Path]:
    """Matching paths with their numbers in order: cpu10 comes after cpu9."""
    found = folder.glob(pattern) if folder.is_dir() else []
    return sorted(found, key=lambda path: [int(w) if w.isdigit() else w for w in _DIGITS.split(str(path))])
