"""``joulefleet bench ping``, ``status`` and ``show``: what is connected, what is going on, what was found."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.frame import Command, Output, inventory_option, run_argument
from joulefleet.errors import EXIT_DEVICE, EXIT_METER

if TYPE_CHECKING:
    from harness.bench.live_check import DeviceAnswer, MeterAnswer


@click.command("ping", cls=Command)
@inventory_option()
@click.argument("device")
@click.option("--count", type=click.IntRange(1, 1000), default=20, show_default=True,
              help="Clock exchanges.")  # fmt: skip
def ping(inventory: Path, device: str, count: int) -> Output:
    """Try a device and its meter: agent, clocks, watts now; says which cable is missing."""
    from harness.bench.live_check import check_both, missing_cables
    from harness.cli.bench.view import ping_lines
    from harness.inventory import load_inventory

    loaded = load_inventory(inventory)
    found, meter = check_both(loaded.device(device), inventory, loaded.meter_of(device), count)
    if found.error is not None and meter is None:
        raise found.error
    data = {
        "device": device,
        **_device_data(found),
        "meter": None if meter is None else _meter_data(meter),
        "missing": missing_cables(found, meter),
    }
    code = EXIT_DEVICE if found.error is not None or found.hello is None else 0
    if meter is not None and (meter.error is not None or meter.power_w is None):
        code = code or EXIT_METER
    return Output(data, ping_lines(data), exit_code=code)


def _device_data(answer: DeviceAnswer) -> dict[str, Any]:
    from harness.clock import fit_pings

    if answer.error is not None or answer.hello is None:
        return _error(answer.error)
    trips_ms = sorted(p.round_trip_ns * 1e-6 for p in answer.pings)
    return {
        "python": answer.hello.python,
        "cpus": answer.hello.cpus,
        "round_trip_min_ms": trips_ms[0],
        "round_trip_median_ms": trips_ms[len(trips_ms) // 2],
        "sync_uncertainty_ms": fit_pings(answer.pings).sync_uncertainty_s * 1e3,
    }


def _meter_data(answer: MeterAnswer) -> dict[str, Any]:
    if answer.error is not None:
        return _error(answer.error)
    return {
        "kind": answer.kind,
        "serial": answer.serial,
        "origin": "emulated" if answer.emulated else "measured",
        "power_w": answer.power_w,
        "current_a": answer.current_a,
        "voltage_v": answer.voltage_v,
        "first_sample_after_s": answer.after_s,
    }


def _error(error: Any) -> dict[str, Any]:
    message, hint = (error.message, error.hint) if error is not None else ("no answer", "")
    return {"error": message, "hint": hint}


@click.command("status", cls=Command)
@run_argument
def status(run: Path) -> Output:
    """How the jobs of a RUN stand, also while it runs."""
    from harness.cli.bench.view import status_text
    from harness.results.overview import overview

    found = overview(run)
    return Output(found.as_dict(), status_text(found))


@click.command("show", cls=Command)
@run_argument
@click.argument("job", required=False)
def show(run: Path, job: str | None) -> Output:
    """What a RUN has measured so far, or one finished JOB of it (name or number) phase by phase."""
    from harness.cli.bench.view import capture_lines, run_lines
    from harness.evidence.capture import open_capture
    from harness.results.describe import describe_capture, describe_run, find_job
    from harness.results.overview import overview

    state = overview(run).state
    if job is None:
        data: dict[str, Any] = {"run": str(run), "state": state, "jobs": describe_run(run)}
        return Output(data, run_lines(data))
    capture = describe_capture(open_capture(find_job(run, job)))
    return Output(capture, capture_lines(capture))
