"""The vendor's package (Monsoon 0.1.88), unmodified, writes a CSV file of what an emulated unit measures.

Run by the interpreter of the peers' environment with this repository on its path::

    python tests/peers/pymonsoon_csv.py ADDRESS FILE SAMPLES
"""

from __future__ import annotations

import sys

import usb.backend.libusb1
from Monsoon import HVPM, sampleEngine

from tests.peers.emulated_backend import EmulatedBackend


def main(address: str, file: str, samples: str) -> None:
    usb.backend.libusb1.get_backend = lambda find_library=None: EmulatedBackend(address)
    monitor = HVPM.Monsoon()
    monitor.setup_usb(int(monitor.enumerateDevices()[0]))
    engine = sampleEngine.SampleEngine(monitor)
    engine.ConsoleOutput(boolValue=False)
    engine.enableCSVOutput(file)
    engine.startSampling(int(samples))
    monitor.closeDevice()


if __name__ == "__main__":
    main(*sys.argv[1:])
