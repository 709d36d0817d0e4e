"""A recording as long as wanted, through the product's own writer, with one spike that nothing may lose."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from power.model import SampleBlock
from power.recording import Recording, RecordingWriter, open_recording
from tests.power.synthetic import START_NS, config, info, timebase

RATE_HZ = 5_000
SPIKE_A = 2.75
"""One sample of it, in the middle of the recording."""


def long_recording(folder: Path, seconds: int) -> Recording:
    """So many seconds at 5 kHz, a batch of samples per second, as an instrument's recorder writes them."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = info(rate_hz=float(RATE_HZ), tick_hz=float(RATE_HZ))
    writer = RecordingWriter(folder, facts, config(), started_ns=START_NS)
    rng = np.random.default_rng(5)
    noise = rng.normal(0.5, 0.02, 2 * RATE_HZ).astype(np.float32)
    volts = np.full(RATE_HZ, 4.0, np.float32)
    period_ns = 1_000_000_000 // RATE_HZ
    for second in range(seconds):
        first = second * RATE_HZ
        shift = (second * 7_919) % RATE_HZ
        current = noise[shift : shift + RATE_HZ] + np.float32(0.2 * (second // 3_600 % 2))
        if second == seconds // 2:
            current[RATE_HZ // 2] = SPIKE_A
        ticks = first + np.arange(RATE_HZ, dtype=np.int64)
        writer.append(SampleBlock(START_NS + ticks * period_ns, ticks, current, volts, first, 0))
    writer.close(timebase(seconds * RATE_HZ, tick_hz=float(RATE_HZ)), ())
    return open_recording(folder)
