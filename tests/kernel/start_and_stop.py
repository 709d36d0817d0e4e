"""Runs inside the guest: starts and stops a meter again and again; prints the bytes of each run as JSON."""

from __future__ import annotations

import base64
import json
import sys
import time

from power import MeterConfig, open_meter


class Sink:
    """Keeps the bytes of a run."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes, arrival_ns: int) -> None:
        self.data += data


def main() -> None:
    """Arguments: kind, serial number, port, how often, seconds of each run."""
    kind, serial, port, times, seconds = sys.argv[1:]
    named = {"port": port} if port else {"serial": serial}
    limits = {"voltage_v": 4.0, "voltage_max_v": 4.2, "current_limit_a": 3.0}
    config = MeterConfig.model_validate({"kind": kind, **named, **limits})
    runs = []
    for _ in range(int(times)):
        sink = Sink()
        with open_meter(config) as meter:
            end = None
            for _block in meter.stream(sink):
                end = end or time.monotonic() + float(seconds)
                if time.monotonic() > end:
                    meter.stop()
        runs.append(base64.b64encode(sink.data).decode())
    print(json.dumps(runs))


main()
