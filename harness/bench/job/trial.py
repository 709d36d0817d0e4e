"""One step of training on a device, before anything is measured: what crashes there, crashes here."""

from __future__ import annotations

from pathlib import Path

from device_agents import (
    AgentSession,
    Backend,
    BlobRef,
    Installation,
    Job,
    Transport,
    build_bundle,
    start_agent,
)
from harness.bench.job.workload import Workload, Workloads
from harness.bench.matrix import Cell
from harness.bench.plan import NO_LOAD, Plan
from joulefleet.errors import DeviceError, MissingExtra

IMPORT_S = 300.0
"""A phone may take a minute to import torch for the first time."""

STEP_S = 300.0

SAMPLES = 32
OTHER_BUILD = "is it built for this processor? Another version may be: `pip install NAME==VERSION` there"


def try_backend(
    transport: Transport, place: Installation, backend: Backend, cache: Path | None = None
) -> str:
    """Import a backend on a device and train one step with it.

    Args:
        transport: The way to it.
        place: Where the agent is, and which interpreter runs it.
        backend: What is tried.
        cache: Folder of exported graphs; by default the user's.

    Returns:
        What was tried, for people.

    Raises:
        DeviceError: It fails there; says how.
    """
    done = transport.run([place.python, "-c", f"import {backend}"], timeout_s=IMPORT_S)
    if done.returncode:
        raise DeviceError(
            f"{transport.address}: importing {backend} failed ({done.ended or 'no exit status'}): "
            f"{done.message or 'it said nothing'}",
            hint=OTHER_BUILD,
        )
    model = "softmax" if backend == "numpy" else "digits-mlp"
    try:
        work = _workload(model, backend, cache)
    except MissingExtra as error:
        return f"{backend} can be imported; no step was trained: {error.message}"
    job = Job(
        workload=model,
        backend=backend,
        samples=SAMPLES,
        epochs=1,
        seed=0,
        probe=False,
        deadline_s=STEP_S,
        model=BlobRef.of(work.model),
        graphs={size: BlobRef.of(data) for size, data in work.graphs.items()},
        task=None if work.task is None else BlobRef.of(work.task),
    )
    with start_agent(transport, build_bundle(), place) as channel:
        session = AgentSession(channel)
        session.require_free()
        result = session.run_round(job, blobs=work.blobs())
        session.forget(result.job_id)
    return f"{backend} trains"


def _workload(model: str, backend: Backend, cache: Path | None) -> Workload:
    plan = Plan(models=(model,), backends=(backend,), samples=SAMPLES, local_epochs=1)
    cell = Cell(device="", model=model, backend=backend, load=NO_LOAD)
    return Workloads(plan, [cell], cache).of(cell).work
