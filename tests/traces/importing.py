"""Runs a reader by its name, as the command line does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from traces.model import InteractionTrace, Intervals
from traces.readers import READERS, ImportReport, ReaderOptions


def imported(
    reader: str, source: Path, *, max_bad_rows: int = 0, **options: Any
) -> tuple[dict[str, InteractionTrace], ImportReport]:
    """Traces by user, and the report; by default a single bad row fails the import."""
    report = ImportReport(max_bad_rows=max_bad_rows)
    traces = list(READERS.load(reader)(source, ReaderOptions(max_bad_rows=max_bad_rows, **options), report))
    by_user = {trace.user: trace for trace in traces}
    assert len(by_user) == len(traces), "a user was yielded twice"
    return by_user, report


def seconds(intervals: Intervals | None) -> list[tuple[float, float]]:
    """Intervals as pairs of seconds."""
    assert intervals is not None
    return [(s / 1e9, e / 1e9) for s, e in zip(intervals.start_ns, intervals.end_ns, strict=True)]


def same(one: InteractionTrace, other: InteractionTrace) -> bool:
    """Whether two traces say the same."""
    return repr_of(one) == repr_of(other)


def repr_of(trace: InteractionTrace) -> str:
    with np.printoptions(threshold=10**9):
        return repr(trace)
