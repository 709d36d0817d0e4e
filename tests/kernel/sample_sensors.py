"""Runs inside the guest: the device's own power sampler on the guest's sysfs; prints its journal as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from device_agents.payload.recording.sysfs_sampler import SysfsSampler


class Journal:
    """Keeps what the sampler writes."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def append(self, record: dict[str, Any]) -> None:
        self.records.append(record)


def main() -> None:
    """Sample for two seconds; half-way the command in the arguments changes what the chips measure."""
    journal = Journal()
    sampler = SysfsSampler(Path("/"), 20.0, journal)  # type: ignore[arg-type]
    sampler.start()
    time.sleep(1.0)
    subprocess.run(sys.argv[1:], check=True)
    time.sleep(1.0)
    sampler.stop()
    print(json.dumps(journal.records))


main()
