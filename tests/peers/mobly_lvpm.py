"""Drives an LVPM with Mobly's controller, as a lab script would; prints what it saw as one JSON line.

Runs in the environment of the peers: ``python mobly_lvpm.py PORT``.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings

warnings.simplefilter("ignore")  # Mobly 1.10.1 is of 2020

from mobly.controllers import monsoon  # noqa: E402


class Complaints(logging.Handler):
    """Mobly reports bad checksums, timeouts and lost packets by logging only."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def latest_status(unit: monsoon.Monsoon) -> dict[str, object]:
    """Mobly takes the first status packet there is, and each setting before left one unread."""
    for _ in range(12):
        status = unit.status
    return dict(status)


def main(port: str) -> None:
    complaints = Complaints()
    logging.getLogger().addHandler(complaints)
    unit = monsoon.Monsoon(serial=4711, device=port)
    first = unit.status
    unit.set_voltage(3.7)
    unit.set_max_current(2.5)
    unit.set_max_init_current(3.5)
    unit.usb("auto")
    changed = latest_status(unit)
    unit.usb("off")
    data = unit.take_samples(sample_hz=500, sample_num=500, sample_offset=10)
    complaints_so_far = list(complaints.messages)
    full_rate = unit.take_samples(sample_hz=5000, sample_num=3000)
    seen = {
        "first": first,
        "changed": changed,
        "passthrough": latest_status(unit)["usbPassthroughMode"],
        "samples": len(data),
        "average_ma": data.average_current,
        "average_mw": data.total_power,
        "full_rate_samples": len(full_rate),
        "full_rate_a": full_rate.data_points,
    }
    unit.set_voltage(0)
    seen["setting_when_off"] = latest_status(unit)["outputVoltageSetting"]
    # Mobly does not flush between two runs: it complains of the samples that were still on their way.
    seen["complaints"] = complaints_so_far
    seen["later_complaints"] = complaints.messages[len(complaints_so_far) :]
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
