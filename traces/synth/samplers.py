"""The sampler that fits a process."""

from __future__ import annotations

from traces.synth.draw.grid import GridSampler
from traces.synth.draw.process import ProcessSampler
from traces.synth.model import Process

Sampler = ProcessSampler | GridSampler


def sampler_of(process: Process) -> Sampler:
    """Prepare a process for drawing."""
    return ProcessSampler(process) if process.grid is None else GridSampler(process, process.grid)
