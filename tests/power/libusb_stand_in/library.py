"""python-libusb1 itself, over a stand-in for the C library with one device; see ``libusb_stand_in.c``.

A process loads its libusb once, so whoever calls `load_stand_in` does so in a process of its own.
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import libusb_package
import usb1

SOURCE = Path(__file__).parent / "libusb_stand_in.c"


class StandIn:
    """The functions of the stand-in, else those of the real library."""

    def __init__(self, folder: Path) -> None:
        library = folder / "libusb_stand_in.so"
        if not library.exists():
            subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-pthread", "-o", library, SOURCE], check=True)
        self._own = ctypes.CDLL(str(library), use_errno=True)
        self._real = ctypes.CDLL(str(libusb_package.get_library_path()), use_errno=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own if hasattr(self._own, name) else self._real, name)


def load_stand_in(folder: Path) -> StandIn:
    """Compile it into ``folder`` and make it the libusb of this process."""
    library = StandIn(folder)
    if not usb1.loadLibrary(library):
        raise RuntimeError("this process has loaded another libusb already")
    return library
