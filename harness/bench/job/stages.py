"""The stages of a job, in their order. Each is journaled when it begins."""

from __future__ import annotations

from enum import StrEnum


class Stage(StrEnum):
    """Where a job is. The meter runs from ``meter`` to the end of ``collect``."""

    RESERVE = "reserve"
    COOLDOWN = "cooldown"
    METER = "meter"
    CONNECT = "connect"
    DEPLOY = "deploy"
    IDLE_BEFORE = "idle_before"
    ROUND = "round"
    """Sync pattern, download, load alone, warm-up, probe, wait, remaining epochs, upload, sync pattern."""
    IDLE_AFTER = "idle_after"
    COLLECT = "collect"
    VERIFY = "verify"
    RELEASE = "release"
