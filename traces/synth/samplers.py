"""The sampler that fits a process."""

from __future__ import annotations

from traces.synth.grid import GridSampler
from traces.synth.model import Process
from traces.synth.process import ProcessSampler

Sampler = ProcessSampler | GridSampler


def sampler_of(process: Process) -> Sampler:
    """Prepare a process for drawing."""
    return ProcessSampler(process) if process.grid is None else GridSampler(process, process.grid)
