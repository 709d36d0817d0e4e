"""How much CPU time the vendor's package (Monsoon 0.1.88) needs to decode bytes that are already there.

Run by the interpreter of the peers' environment::

    python tests/peers/pymonsoon_decode.py FILE REPEATS

FILE holds HVPM packets, one after the other. What is timed is the package's way from packets to a list of
samples: ``startSampling`` and ``getSamples``. Prints one line of JSON: seconds of each repeat, and samples.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from array import array
from pathlib import Path

from Monsoon import HVPM, sampleEngine


class EndOfFile(Exception):
    """All packets were handed out."""


class PacketsFromFile:
    """Takes the place of the package's USB layer; everything behind it is the package's own."""

    def __init__(self, packets: list[array[int]]) -> None:
        self._packets = iter(packets)

    def BulkRead(self) -> array[int]:  # noqa: N802 - the package's name
        packet = next(self._packets, None)
        if packet is None:
            raise EndOfFile
        return packet

    def getValue(self, operation: int, length: int, signed: bool = False) -> int:  # noqa: N802
        return {0x1A: 36500, 0x1B: 6400, 0x1C: 14000, 0x1D: 600, 0x1E: 3100, 0x1F: 250}.get(operation, 0)

    def startSampling(self, calibration_ms: int, limit: int) -> None:  # noqa: N802
        pass


def decode(packets: list[array[int]]) -> tuple[float, int]:
    monitor = HVPM.Monsoon()
    monitor.Protocol = PacketsFromFile(packets)
    engine = sampleEngine.SampleEngine(monitor, errorMode=sampleEngine.ErrorHandlingModes.off)
    engine.ConsoleOutput(boolValue=False)
    start = time.process_time()
    with contextlib.suppress(EndOfFile):
        engine.startSampling(sampleEngine.triggers.SAMPLECOUNT_INFINITE)
    samples = engine.getSamples()
    return time.process_time() - start, len(samples[1])


def main(path: str, repeats: str) -> None:
    data, packets, position = Path(path).read_bytes(), [], 0
    while position < len(data):
        size = 4 + 18 * data[position + 3]
        packets.append(array("B", data[position : position + size]))
        position += size
    results = [decode(packets) for _ in range(int(repeats))]
    print(json.dumps({"cpu_s": [used_s for used_s, _ in results], "samples": results[0][1]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
