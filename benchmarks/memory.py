"""Peak memory of this process."""

from __future__ import annotations

from pathlib import Path


def peak_rss_mb() -> float:
    """VmHWM. ``ru_maxrss`` would count what the parent held when it forked, too."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    kilobytes = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(kilobytes) / 1024
