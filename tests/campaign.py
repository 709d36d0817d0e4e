"""Keeps the record of a campaign: what each full-count test measured, in ``docs/results/campaign.json``."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

_records: list[dict[str, Any]] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and "campaign" in report.keywords:
        measured = dict(report.user_properties)
        _records.append(
            {
                "test": report.nodeid,
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
