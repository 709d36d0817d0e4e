"""Keeps the record of a campaign: what each full-count test measured, in ``docs/results/campaign.json``."""

from __future__ import annotations

import json
import os
import platform
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

_records: list[dict[str, Any]] = []


class Batches:
    """The counts of a long test, kept after every batch: a campaign that was stopped goes on from there.

    ``JOULEFLEET_CAMPAIGN_SECONDS`` ends a test after that time; the record then says how many batches of how
    many were done. Without a full campaign nothing is kept.

    Args:
        name: Of the file in ``.campaign``; another name for other counts.
        batches: How many there are.
    """

    def __init__(self, name: str, batches: int) -> None:
        self._file = Path(__file__).parents[1] / ".campaign" / f"{name}.json"
        self._batches = batches
        self._keeps = os.environ.get("JOULEFLEET_CAMPAIGN") == "full"
        kept = json.loads(self._file.read_text()) if self._keeps and self._file.exists() else {}
        self.done: int = kept.get("done", 0)
        self.counts: Counter[str] = Counter(kept.get("counts", {}))

    def __iter__(self) -> Iterator[int]:
        """Numbers of the batches that are still to do."""
        until_s = time.monotonic() + float(os.environ.get("JOULEFLEET_CAMPAIGN_SECONDS", "inf"))
        while self.done < self._batches and time.monotonic() < until_s:
            yield self.done
            self.done += 1
            if self._keeps:
                self._file.parent.mkdir(exist_ok=True)
                self._file.with_suffix(".new").write_text(
                    json.dumps({"done": self.done, "counts": self.counts})
                )
                self._file.with_suffix(".new").replace(self._file)

    def facts(self) -> dict[str, object]:
        """For the record."""
        return {"batches": f"{self.done} of {self._batches}", **self.counts}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and "campaign" in report.keywords:
        measured = dict(report.user_properties)
        _records.append(
            {
                "test": report.nodeid,
                "date": datetime.now(UTC).date().isoformat(),  # older ones stay until they are run again
                "outcome": report.outcome,
                "seconds": round(report.duration, 1),
                **measured,
            }
        )


def pytest_sessionfinish(session: pytest.Session) -> None:
    if (
        os.environ.get("JOULEFLEET_CAMPAIGN") != "full"
        or hasattr(session.config, "workerinput")
        or not _records
    ):
        return
    target = Path(session.config.rootpath) / "docs" / "results" / "campaign.json"
    known = json.loads(target.read_text())["tests"] if target.exists() else []
    merged = {record["test"]: record for record in [*known, *_records]}
    facts = {"python": platform.python_version(), "cpus": os.cpu_count(), "machine": platform.machine()}
    body = {"date": datetime.now(UTC).date().isoformat(), "host": facts, "tests": list(merged.values())}
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(body, indent=2) + "\n")
