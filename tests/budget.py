"""Prints how long each package's tests took against its time budget."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

# Seconds on two cores: of each test its share of the workers. Installing is timed by the Makefile.
BUDGET_S = {
    "install": 360,
    "joulefleet": 120,
    "power": 240,
    "device_agents": 300,
    "harness": 300,
    "traces": 120,
    "kernel": 600,  # `make real-usb`; some seconds in `make test`
    "emulator": 300,
    "peers": 240,
    "system": 180,
    "hostile": 120,
}

_spent_s: defaultdict[str, float] = defaultdict(float)
_tests: defaultdict[str, int] = defaultdict(int)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    package = Path(report.nodeid.split("::")[0]).parts[1]
    _spent_s[package] += report.duration
    _tests[package] += report.when == "call"


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if hasattr(config, "workerinput") or not _spent_s:
        return
    workers = getattr(config.option, "numprocesses", None) or 1
    installed = config.rootpath / ".venv" / ".install-seconds"
    terminalreporter.section(f"time budget ({workers} workers)")
    if installed.exists():
        _line(terminalreporter, "install", 0, float(installed.read_text()))
    for package in sorted(_spent_s):
        _line(terminalreporter, package, _tests[package], _spent_s[package] / workers)


def _line(terminalreporter: Any, package: str, tests: int, spent_s: float) -> None:
    budget_s = BUDGET_S.get(package, 60)
    verdict = "ok" if spent_s <= budget_s else "OVER BUDGET"
    terminalreporter.write_line(
        f"{package:<14} {tests:>5} tests {spent_s:>7.1f} s of {budget_s:>4} s  {verdict}"
    )
