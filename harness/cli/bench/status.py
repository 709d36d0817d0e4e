"""``joulefleet bench ping``, ``status`` and ``show``: what is connected, what is going on, what was found."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.frame import Command, Output, columns, inventory_option, run_argument
from harness.cli.meter.options import output_data, output_line
from harness.cli.terminal import block
from joulefleet.errors import EXIT_DEVICE, EXIT_METER

if TYPE_CHECKING:
    from harness.bench.live_check import DeviceAnswer, MeterAnswer
    from harness.results.overview import RunOverview
    from power import MeterConfig


@click.command("ping", cls=Command)
@inventory_option()
@click.argument("device")
@click.option("--count", type=click.IntRange(1, 1000), default=20, show_default=True,
              help="Clock exchanges.")  # fmt: skip
def ping(inventory: Path, device: str, count: int) -> Output:
    """Try a device and its meter: agent, clocks, watts now; says which cable is missing."""
    from harness.bench.live_check import check_both, missing_cables
    from harness.inventory import load_inventory

    loaded = load_inventory(inventory)
    found, meter = check_both(loaded.device(device), inventory, loaded.meter_of(device), count)
    if found.error is not None and meter is None:
        raise found.error
    data = {
        "device": device,
        **_device_data(found),
        "meter": None if meter is None else _meter_data(meter, loaded.meter_of(device)),
        "missing": missing_cables(found, meter),
    }
    code = EXIT_DEVICE if found.error is not None or found.hello is None else 0
    if meter is not None and (meter.error is not None or meter.power_w is None):
        code = code or EXIT_METER
    return Output(data, _ping_lines(data), exit_code=code)


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


def _meter_data(answer: MeterAnswer, config: MeterConfig | None) -> dict[str, Any]:
    output = None if answer.output is None or config is None else output_data(answer.output, config)
    if answer.error is not None:
        return {**_error(answer.error), "output": output}
    return {
        "output": output,
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
    from harness.results.overview import overview

    found = overview(run)
    return Output(found.as_dict(), _status_lines(found))


@click.command("show", cls=Command)
@run_argument
@click.argument("job", required=False)
def show(run: Path, job: str | None) -> Output:
    """What a RUN has measured so far, or one finished JOB of it (name or number) phase by phase."""
    from harness.evidence.capture import open_capture
    from harness.results.describe import describe_capture, describe_run, find_job
    from harness.results.overview import overview

    state = overview(run).state
    if job is None:
        data: dict[str, Any] = {"run": str(run), "state": state, "jobs": describe_run(run)}
        return Output(data, _run_lines(data))
    capture = describe_capture(open_capture(find_job(run, job)))
    return Output(capture, _capture_lines(capture))


def _ping_lines(data: dict[str, Any]) -> list[str]:
    """Device and meter, one line each, then what is missing."""
    if "error" in data:
        device = block([data["error"], f"  try: {data['hint'] or '-'}"])
    else:
        device = (
            f"agent on Python {data['python']}, round trip {data['round_trip_min_ms']:.2f} ms at best, "
            f"{data['round_trip_median_ms']:.2f} ms in the median; clocks agree to "
            f"{data['sync_uncertainty_ms']:.2f} ms"
        )
    meter = _meter_line(data["meter"])
    return [f"{data['device']}: {device}", *meter, *(f"missing: {cable}" for cable in data["missing"])]


def _meter_line(meter: dict[str, Any] | None) -> list[str]:
    if meter is None:
        return ["meter: none in the inventory"]
    output = [] if meter["output"] is None else [f"  {output_line(meter['output'])}"]
    if "error" in meter:
        return [f"meter: {meter['error']}", f"  try: {meter['hint'] or '-'}", *output]
    if meter["power_w"] is None:
        return output
    now = f"{meter['power_w']:.4f} W now ({meter['current_a']:.4f} A at {meter['voltage_v']:.3f} V)"
    return [f"meter: {meter['kind']} {meter['serial']}: {now} [{meter['origin']}]", *output]


def _status_lines(found: RunOverview) -> list[str]:
    """Counts, then every job that is not simply waiting its turn or done."""
    counts = ", ".join(f"{number} {state}" for state, number in found.counts().items())
    headers = ("job", "state", "stage", "attempt", "since (UTC)", "last error")
    rows = [
        (job.name, job.state, job.stage, str(job.attempt), job.since_utc[11:19], job.error)
        for job in found.jobs
        if job.state not in ("finished", "pending", "not_needed")
    ]
    waits = f"; waits for {found.waits_for}" if found.waits_for else ""
    summary = f"{found.path.name}: {found.state}; {counts}{waits}"
    return [summary, columns(headers, rows)] if rows else [summary]


def _run_lines(data: dict[str, Any]) -> list[str]:
    """One line per finished job."""
    rows = []
    for line in data["jobs"]:
        energy = line["energy_per_epoch_j"]
        shown = "?" if energy is None else f"{energy:.4g} J ({line['origin']})"
        rows.append([line["job"], shown, f"{line['sync_uncertainty_s'] * 1e3:.2g} ms", str(line["findings"])])
    table = columns(("job", "energy per epoch", "clock", "findings"), rows)
    return [f"{data['run']}: {data['state']}", table]


def _capture_lines(capture: dict[str, Any]) -> list[str]:
    """One job, phase by phase."""
    load, clock = capture["background"]["name"], capture["clock"]
    what = f"{capture['workload']} on {capture['backend']}, load {load}"
    rows = []
    for phase in capture["phases"]:
        energy = phase["energy_j"]
        note = "throttled" if phase["epoch"] in capture["throttled_epochs"] else ""
        joules = "?" if energy is None else f"{energy:.5g}"
        notes = "; ".join(filter(None, (note, *phase["problems"])))
        rows.append([phase["phase"], str(phase["epoch"] or ""), f"{phase['duration_s']:.4f}", joules, notes])
    idle = ", ".join("?" if watts is None else f"{watts:.4f} W" for watts in capture["idle_power_w"])
    return [
        f"{capture['capture_id']}: {what} [{capture['origin']}]",
        f"instrument: {capture['instrument_accuracy']}",
        columns(("phase", "epoch", "seconds", "joules (gross)", "note"), rows),
        f"idle before and after: {idle}",
        f"clock by {clock['method']}, known to {clock['sync_uncertainty_s'] * 1e3:.2g} ms",
        *(f"{found['severity']}: {found['message']} ({found['count']})" for found in capture["findings"]),
    ]
