"""How ``joulefleet bench`` shows estimates, the state of a run and its jobs to people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.cli.frame import columns

if TYPE_CHECKING:
    from harness.bench.estimate import Estimate, JobEstimate
    from harness.results.overview import RunOverview


def estimate_lines(cost: Estimate) -> list[str]:
    """Jobs one by one, then all together, then what it rests on."""
    from harness.cli.bench.live import clock

    table = columns(("job", "time", "energy", "disk"), map(_estimate_row, cost.jobs))
    least = "at least " if cost.is_lower_bound else ""
    optional = sum(job.optional for job in cost.jobs)
    known = any(job.energy_j is not None for job in cost.jobs)
    energy = f"{least}{cost.energy_j:.3g} J" if known else "energy unknown"
    together = (
        f"{len(cost.jobs) - optional} jobs: {least}{clock(cost.duration_s)} beside connecting and deploying, "
        f"{energy}, {least}{cost.disk_bytes / 1e6:.1f} MB"
    )
    more = [f"and up to {optional} more repetitions, {clock(cost.most_s)} in all"] if optional else []
    bases = [f"rests on {basis}" for basis in dict.fromkeys(job.basis for job in cost.jobs)]
    return [table, together, *more, *bases, "nothing was touched"]


def _estimate_row(job: JobEstimate) -> list[str]:
    from harness.cli.bench.live import clock

    least = "" if job.training_s is not None else "> "
    return [
        job.job + (" (if needed)" if job.optional else ""),
        least + clock(job.duration_s),
        "?" if job.energy_j is None else f"{job.energy_j:.3g} J",
        "?" if job.disk_bytes is None else f"{least}{job.disk_bytes / 1e6:.1f} MB",
    ]


def ping_lines(data: dict[str, Any]) -> list[str]:
    """Device and meter, one line each, then what is missing."""
    if "error" in data:
        device = f"{data['error']}\n  try: {data['hint'] or '-'}"
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
    if "error" in meter:
        return [f"meter: {meter['error']}\n  try: {meter['hint'] or '-'}"]
    if meter["power_w"] is None:
        return []
    now = f"{meter['power_w']:.4f} W now ({meter['current_a']:.4f} A at {meter['voltage_v']:.3f} V)"
    return [f"meter: {meter['kind']} {meter['serial']}: {now} [{meter['origin']}]"]


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


def run_lines(data: dict[str, Any]) -> list[str]:
    """One line per finished job."""
    rows = []
    for line in data["jobs"]:
        energy = line["energy_per_epoch_j"]
        shown = "?" if energy is None else f"{energy:.4g} J ({line['origin']})"
        rows.append([line["job"], shown, f"{line['sync_uncertainty_s'] * 1e3:.2g} ms", str(line["findings"])])
    table = columns(("job", "energy per epoch", "clock", "findings"), rows)
    return [f"{data['run']}: {data['state']}", table]


def capture_lines(capture: dict[str, Any]) -> list[str]:
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
        columns(("phase", "epoch", "seconds", "joules (gross)", "note"), rows),
        f"idle before and after: {idle}",
        f"clock by {clock['method']}, known to {clock['sync_uncertainty_s'] * 1e3:.2g} ms",
        *(f"{found['severity']}: {found['message']} ({found['count']})" for found in capture["findings"]),
    ]
