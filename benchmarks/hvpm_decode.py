"""How fast HVPM bytes become samples: against real time, and against the vendor's package on them."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.result import Figure, figure
from power.wire import HvpmDecoder
from power.wire.hvpm_control import SAMPLE_RATE_HZ
from tests.power.hvpm_streams import StreamMaker, scale_of

REPOSITORY = Path(__file__).parent.parent
PEER_PYTHON = REPOSITORY / ".venv-peers" / "bin" / "python"
PEER = REPOSITORY / "tests" / "peers" / "pymonsoon_decode.py"

SECONDS = 20
CALIBRATION_EVERY = 1250  # samples, 250 ms: the vendor's default of 1250 ms would leave little after five
REPEATS = 7
PEER_REPEATS = 3
BAR = 100.0
PORTION_BYTES = 9667
"""What the capture pipeline decodes at once: some 100 ms of stream."""


def stream(sizes: tuple[int, ...]) -> tuple[bytes, float]:
    """Packets of these sizes with calibration, and how many seconds they last."""
    maker = StreamMaker(np.random.default_rng(1), sizes=sizes, calibration_every=CALIBRATION_EVERY)
    maker.add(round(SECONDS * SAMPLE_RATE_HZ / float(np.mean(sizes))))
    maker.finish()
    return maker.data, maker.made / SAMPLE_RATE_HZ


def _decode(data: bytes, portion: int) -> tuple[float, int]:
    """CPU time of one run and its samples: the machine's other work is not ours to measure."""
    decoder = HvpmDecoder(scale_of("hv"))
    start = time.process_time()
    samples = 0
    for first in range(0, len(data), portion):
        samples += sum(len(part.ticks) for part in decoder.feed(data[first : first + portion], 0))
    return time.process_time() - start, samples


def _peer(data: bytes) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "raw.bin"
        path.write_bytes(data)
        command = [str(PEER_PYTHON), str(PEER), str(path), str(PEER_REPEATS)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def run() -> list[Figure]:
    """Twenty seconds of stream, decoded at once and in the portions of a live capture."""
    figures: list[Figure] = []
    for what, sizes in (("full packets", (3,)), ("packets of 1 to 3", (1, 2, 3))):
        data, span_s = stream(sizes)
        peer = _peer(data) if PEER_PYTHON.exists() else None
        for how, portion in (("at once", len(data)), ("as live", PORTION_BYTES)):
            runs = [_decode(data, portion) for _ in range(REPEATS)]
            name = f"HVPM decode {how}, {what}"
            speeds = [span_s / used_s for used_s, _ in runs]
            figures.append(figure("hvpm_decode", f"{name}, per core", speeds, "x real time", bar=BAR))
            if peer is not None:
                figures.append(_against(name, peer, runs, span_s, how))
    return figures


def _against(
    name: str, peer: dict[str, Any], runs: list[tuple[float, int]], span_s: float, how: str
) -> Figure:
    """The package gets its bytes at once, so only our decoding at once is held to the bar."""
    if peer["samples"] < 0.99 * runs[0][1]:
        raise RuntimeError(f"{peer['samples']} samples from the package, {runs[0][1]} from us")
    peer_s = peer["cpu_s"]
    return figure(
        "hvpm_decode",
        f"{name}, against PyPI Monsoon",
        [float(np.median(peer_s)) / used_s for used_s, _ in runs],
        "x",
        bar=BAR if how == "at once" else None,
        note=f"which does {span_s / max(peer_s):.1f} to {span_s / min(peer_s):.1f} x real time",
    )
