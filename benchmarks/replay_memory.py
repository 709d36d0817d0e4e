"""A day at 5 kHz in constant memory: peak RSS of recording and of replaying it, against one hour of the same.

The bytes of an LVPM are fed as fast as they are taken: decoder, sample times, checks, raw bytes and samples
on disk are those of a live capture. Then the recording is replayed without waiting and recorded again. Each
is a process of its own, and the disk is cleaned up after each length.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory import peak_rss_mb
from benchmarks.result import Figure, figure
from power import InstrumentInfo, MeterConfig, SampleBlock, open_meter, record
from power.emulated.lvpm.converter import LvpmConverter
from power.emulated.lvpm.instrument import PACKET_SAMPLES
from power.meters import RawSink, StreamingMeter
from power.meters.monsoon_lvpm import accuracy
from power.wire import LvpmDecoder
from power.wire.lvpm_frames import (
    COARSE_REFERENCE_A,
    DATA,
    FINE_REFERENCE_A,
    FLAG_OUTPUT_ON,
    SEQUENCE_MODULUS,
    encode_frame,
)

REFERENCES_A = (FINE_REFERENCE_A, COARSE_REFERENCE_A)

NAME = "replay_memory"
RATE_HZ = 5000
BYTES_PER_SAMPLE = 8 + 8 + 10  # the recording, the replayed one, and raw bytes of the first
INDEX_SHARE = 0.01
"""What may grow with the length: the index of the batches, 0.45 % of the samples' size (180 bytes for each
second of 40 kB), which is there twice while it is written or loaded."""

RECORDINGS = {"capture": 1, "replay": 2}
"""How many recordings a phase has open: a replay reads one and writes one."""

LIMITS: dict[str, Any] = {"voltage_v": 4.0, "voltage_max_v": 4.2, "current_limit_a": 3.0}


def run(hours: float = 24.0) -> list[Figure]:
    """Peak memory of one hour and of so many."""
    short, long = (_measure(length) for length in (1.0, hours))
    found: list[Figure] = []
    allowed_mb = INDEX_SHARE * (hours - 1.0) * 3600 * RATE_HZ * 8 / 2**20
    for phase, recordings in RECORDINGS.items():
        peak_mb, hour_mb = long[phase]["peak_rss_mb"], short[phase]["peak_rss_mb"]
        samples = f"{long[phase]['samples']:,} samples, {long[phase]['dropped']} lost"
        found += [
            figure(NAME, f"{phase}: peak RSS of {hours:g} h", [peak_mb], "MB", better="lower", note=samples),
            figure(NAME, f"{phase}: more than that of 1 h by", [peak_mb - hour_mb], "MB", better="lower",
                   bar=recordings * allowed_mb, note=f"{peak_mb / hour_mb:.2f} x"),
            figure(NAME, f"{phase}: speed", [hours * 3600 / long[phase]["wall_s"]], "x real time"),
        ]  # fmt: skip
    return found


def _measure(hours: float) -> dict[str, dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="replay-memory-") as name:
        needed = int(hours * 3600 * RATE_HZ * BYTES_PER_SAMPLE)
        free = shutil.disk_usage(name).free
        if free < 1.2 * needed:
            raise RuntimeError(f"{needed / 1e9:.0f} GB of disk needed in {name}, {free / 1e9:.0f} GB free")
        return {phase: _in_child(phase, Path(name), hours) for phase in RECORDINGS}


def _in_child(phase: str, folder: Path, hours: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.replay_memory", phase, str(folder), str(hours)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


class RepeatedLvpm(StreamingMeter):
    """An LVPM whose second is repeated: delivered when asked for, with the arrival times of a live one."""

    def __init__(self, hours: float) -> None:
        config = MeterConfig(kind="monsoon-lvpm", **LIMITS)
        info = InstrumentInfo(
            kind="monsoon-lvpm",
            emulated=True,
            rate_hz=RATE_HZ,
            tick_hz=RATE_HZ,
            uniform_ticks=True,
            accuracy=accuracy(REFERENCES_A, REFERENCES_A, 125e-6),
        )
        super().__init__(config, info, LvpmDecoder(voltage_step_v=125e-6, rate_hz=RATE_HZ))
        self._bytes, self._samples = about_a_second()
        self._repeats = round(hours * 3600 * RATE_HZ / self._samples)

    def stream(self, raw: RawSink | None = None) -> Iterator[SampleBlock]:
        """One second after the other."""
        start_ns = time.monotonic_ns()
        for i in range(1, self._repeats + 1):
            arrival_ns = start_ns + round(i * self._samples / RATE_HZ * 1e9)
            if raw is not None:
                raw.write(self._bytes, arrival_ns)
            yield from self._decode(self._bytes, arrival_ns)

    def begin_sampling(self) -> None:
        """Not used."""

    def end_sampling(self) -> None:
        """Not used."""

    def read_bytes(self) -> bytes:
        """Not used."""
        return b""

    def close(self) -> None:
        """Nothing is open."""


def about_a_second() -> tuple[bytes, int]:
    """Packets whose sequence goes on when they are repeated, calibration included; and their samples."""
    converter = LvpmConverter(voltage_step_v=125e-6)
    packets = SEQUENCE_MODULUS * 21
    rng = np.random.default_rng(1)
    data = b""
    for number in range(packets):
        if number < 2:
            kind, rows = number + 1, converter.calibration(number + 1, 1, 4.0)
        else:
            load = rng.normal(0.3, 0.01, PACKET_SAMPLES)
            kind, rows = DATA, converter.measure(load, np.full(PACKET_SAMPLES, 4.0))
        flags = FLAG_OUTPUT_ON | number % SEQUENCE_MODULUS
        data += encode_frame(bytes([flags, kind, 0, 0]) + rows.tobytes() + b"\0")
    return data, (packets - 2) * PACKET_SAMPLES


def _work(phase: str, folder: Path, hours: float) -> dict[str, Any]:
    began_s = time.monotonic()
    if phase == "capture":
        with RepeatedLvpm(hours) as meter:
            done = record(meter, folder / "capture", config=meter.config)
    else:
        config = MeterConfig(kind="replay", port=str(folder / "capture"), options={"speed": 0}, **LIMITS)
        with open_meter(config) as meter:
            done = record(meter, folder / "replay", config=config)
    return {
        "samples": done.n_samples,
        "dropped": done.dropped,
        "findings": [finding.code for finding in done.findings],
        "wall_s": time.monotonic() - began_s,
        "peak_rss_mb": peak_rss_mb(),
    }


if __name__ == "__main__":
    print(json.dumps(_work(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))))
