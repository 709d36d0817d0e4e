"""How ``joulefleet bench`` shows estimates, the state of a run and its jobs to people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.cli.frame import columns

if TYPE_CHECKING:
    from rich.console import Console

    from harness.bench.estimate import Estimate
    from harness.results.overview import RunOverview


def render_estimate(console: Console, cost: Estimate) -> None:
    """Jobs one by one, then all together, then what it rests on."""
    from rich.table import Table

    from harness.cli.bench.live import clock

    table = Table("job", "time", "energy", "disk", box=None)
    for job in cost.jobs:
        least = "" if job.training_s is not None else "> "
        table.add_row(
            job.job + (" (if needed)" if job.optional else ""),
            least + clock(job.duration_s),
            "?" if job.energy_j is None else f"{job.energy_j:.3g} J",
            "?" if job.disk_bytes is None else f"{least}{job.disk_bytes / 1e6:.1f} MB",
        )
    console.print(table)
    least = "at least " if cost.is_lower_bound else ""
    optional = sum(job.optional for job in cost.jobs)
    known = any(job.energy_j is not None for job in cost.jobs)
    energy = f"{least}{cost.energy_j:.3g} J" if known else "energy unknown"
    console.print(
        f"{len(cost.jobs) - optional} jobs: {least}{clock(cost.duration_s)} beside connecting and deploying, "
        f"{energy}, {least}{cost.disk_bytes / 1e6:.1f} MB",
        markup=False,
    )
    if optional:
        console.print(f"and up to {optional} more repetitions, {clock(cost.most_s)} in all", markup=False)
    for basis in dict.fromkeys(job.basis for job in cost.jobs):
        console.print(f"rests on {basis}", markup=False)
    console.print("nothing was touched", markup=False)


def render_ping(console: Console, data: dict[str, Any]) -> None:
    """Device and meter, one line each, then what is missing."""
    meter = data["meter"]
    if "error" in data:
        console.print(f"{data['device']}: {data['error']}\n  try: {data['hint'] or '-'}", markup=False)
    else:
        console.print(
            f"{data['device']}: agent on Python {data['python']}, round trip "
            f"{data['round_trip_min_ms']:.2f} ms at best, {data['round_trip_median_ms']:.2f} ms in the "
            f"median; clocks agree to {data['sync_uncertainty_ms']:.2f} ms",
            markup=False,
        )
    if meter is None:
        console.print("meter: none in the inventory")
    elif "error" in meter:
        console.print(f"meter: {meter['error']}\n  try: {meter['hint'] or '-'}", markup=False)
    elif meter["power_w"] is not None:
        console.print(
            f"meter: {meter['kind']} {meter['serial']}: {meter['power_w']:.4f} W now "
            f"({meter['current_a']:.4f} A at {meter['voltage_v']:.3f} V) [{meter['origin']}]",
            markup=False,
        )
    for cable in data["missing"]:
        console.print(f"missing: {cable}", markup=False)


def status_text(found: RunOverview) -> str:
    """Counts, then every job that is not simply waiting its turn or done."""
    counts = ", ".join(f"{number} {state}" for state, number in found.counts().items())
    headers = ("job", "state", "stage", "attempt", "since (UTC)", "last error")
    rows = [
        (job.name, job.state, job.stage, str(job.attempt), job.since_utc[11:19], job.error)
        for job in found.jobs
        if job.state not in ("finished", "pending", "not_needed")
    ]
    summary = f"{found.path.name}: {found.state}; {counts}"
    return f"{summary}\n{columns(headers, rows)}" if rows else summary


def render_run(console: Console, data: dict[str, Any]) -> None:
    """One line per finished job."""
    from rich.table import Table

    console.print(f"{data['run']}: {data['state']}", markup=False)
    table = Table("job", "energy per epoch", "clock", "findings", box=None)
    for line in data["jobs"]:
        energy = line["energy_per_epoch_j"]
        table.add_row(
            line["job"],
            "?" if energy is None else f"{energy:.4g} J ({line['origin']})",
            f"{line['sync_uncertainty_s'] * 1e3:.2g} ms",
            str(line["findings"]),
        )
    console.print(table)


def render_capture(console: Console, capture: dict[str, Any]) -> None:
    """One job, phase by phase."""
    from rich.markup import escape
    from rich.table import Table

    load = capture["background"]["name"]
    console.print(
        f"{capture['capture_id']}: {capture['workload']} on {capture['backend']}, load {load} "
        f"[{capture['origin']}]",
        markup=False,
    )
    table = Table("phase", "epoch", "seconds", "joules (gross)", "note", box=None)
    for phase in capture["phases"]:
        energy = phase["energy_j"]
        note = "throttled" if phase["epoch"] in capture["throttled_epochs"] else ""
        table.add_row(
            phase["phase"],
            str(phase["epoch"] or ""),
            f"{phase['duration_s']:.4f}",
            "?" if energy is None else f"{energy:.5g}",
            escape("; ".join(filter(None, (note, *phase["problems"])))),
        )
    console.print(table)
    idle = ", ".join("?" if watts is None else f"{watts:.4f} W" for watts in capture["idle_power_w"])
    clock = capture["clock"]
    console.print(f"idle before and after: {idle}", markup=False)
    console.print(
        f"clock by {clock['method']}, known to {clock['sync_uncertainty_s'] * 1e3:.2g} ms", markup=False
    )
    for finding in capture["findings"]:
        console.print(f"{finding['severity']}: {finding['message']} ({finding['count']})", markup=False)
