"""Whether a run fits on its disk, before anything is measured."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from harness.bench.estimate import estimate, find_profiles
from harness.bench.matrix import BenchJob
from harness.bench.plan import Plan
from harness.rounds.session import RunFiles, job_folders
from joulefleet.errors import StorageFull


def require_disk(
    files: RunFiles, plan: Plan, jobs: Sequence[BenchJob], root: Path, resume: Path | None
) -> None:
    """Enough disk for what is left of the jobs, as far as that can be told before.

    Raises:
        StorageFull: There is less than the recordings will take.
    """
    begun = {folder.name for folder in job_folders(resume)} if resume is not None else set()
    todo = [job for job in jobs if job.name not in begun]
    runs = resume.parent if resume is not None else root
    cost = estimate(plan, files.inventory, todo, find_profiles(sorted(runs.glob("[!.]*/profiles"))))
    place = runs.absolute()
    there = next(folder for folder in (place, *place.parents) if folder.exists())
    free = shutil.disk_usage(there).free
    if cost.disk_bytes <= free:
        return
    again = files.command(resume) if resume is not None else shlex.join(["joulefleet", *files.words])
    least = "at least " if cost.is_lower_bound else ""
    raise StorageFull(
        f"{there}: {free / 1e6:.1f} MB free, and the recordings of {len(todo)} jobs take {least}"
        f"{cost.disk_bytes / 1e6:.1f} MB",
        hint=f"free some space, or give --root on another disk, or --only some of the jobs; then: {again}",
    )
