"""The page of the demo: what was measured, what came of it, and how."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from device_agents.protocol import Phase
from emulator.emulation import EmulationRecord
from emulator.outcome import RoundOutcome
from fedjoule.provenance import Origin
from fedjoule.runstore import RunRecord
from harness.capture import Capture
from harness.profiles import EpochRow, epoch_rows
from harness.report.charts import Band, Chart, Series
from harness.report.page import Number, Page, Section, Table
from power.profile import DeviceProfile, Quantity


def demo_page(
    capture: Capture,
    profile: DeviceProfile,
    outcomes: Sequence[RoundOutcome],
    emulation: EmulationRecord,
    run: RunRecord,
) -> Page:
    """Put the demo's results on one page."""
    record, clock = capture.recording.record, capture.record.clock
    return Page(
        title="fedjoule demo",
        lead=(
            "A process on this machine played the device and really trained. An emulated Monsoon read the "
            "power that its CPU time stands for. The profile built from that drove a virtual fleet."
        ),
        sections=[
            _bench_section(capture, profile),
            _profile_section(profile),
            _emulation_section(outcomes, emulation),
            _findings_section(capture),
        ],
        facts={
            "run": run.run_id,
            "seed": str(emulation.seed),
            "instrument": f"{record.info.kind}, serial {record.info.serial}, emulated at the byte level",
            "samples": f"{record.n_samples:,} at {record.timebase.tick_hz:.2f} Hz, {record.dropped} lost",
            "clock": f"{clock.method}, standard uncertainty {clock.sync_uncertainty_s * 1e3:.3f} ms",
            "accuracy assumed": record.info.accuracy.source,
            **run.host,
        },
    )


def _bench_section(capture: Capture, profile: DeviceProfile) -> Section:
    origin = profile.origin
    rows = epoch_rows(capture)
    blocks = list(capture.recording.blocks())
    t_ns = np.concatenate([block.t_ns for block in blocks])
    power_w = np.concatenate([block.power_w for block in blocks]).astype(np.float64)
    start_ns = int(t_ns[0])
    chart = Chart(
        title="Power of the device",
        x_label="time (s)",
        y_label="power (W)",
        x=(t_ns - start_ns) * 1e-9,
        series=[Series("power (W)", power_w)],
        origin=origin.value,
        bands=[_band(row, start_ns) for row in rows],
    )
    table = Table(
        ["round", "epoch", "duration", "energy", "mean power"],
        [
            [
                str(row.round),
                "1 (probe)" if row.epoch == 1 else str(row.epoch),
                Number(row.duration_s, "s", origin),
                Number(row.energy_j, "J", origin),
                Number(row.energy_j / row.duration_s, "W", origin),
            ]
            for row in rows
        ],
        caption="Energy is gross: everything the device drew between the two markers of the epoch.",
    )
    text = (
        "Each round begins with a probe epoch; the device reports and waits for a decision. In the last "
        "round it is told to stop, so only the probe is there."
    )
    return Section("Bench", text, charts=[chart], tables=[table])


def _band(row: EpochRow, start_ns: int) -> Band:
    note = f"{row.energy_j:.3f} J, {row.energy_j / row.duration_s:.2f} W, {row.duration_s:.3f} s"
    name = "probe" if row.epoch == 1 else Phase.EPOCH.value
    return Band((row.start_ns - start_ns) * 1e-9, (row.end_ns - start_ns) * 1e-9, f"{name} {row.epoch}", note)


def _profile_section(profile: DeviceProfile) -> Section:
    def row(name: str, quantity: Quantity | None, unit: str) -> list[str | Number]:
        if quantity is None:
            return [name, "not measured", ""]
        return [name, Number(quantity.mean, unit, profile.origin, quantity.half_width_95), str(quantity.n)]

    table = Table(
        ["quantity", "mean and 95 % interval", "repetitions"],
        [
            row("probe epoch, duration", profile.probe.duration_s, "s"),
            row("probe epoch, gross energy", profile.probe.gross_j, "J"),
            row("later epoch, duration", profile.epoch.duration_s, "s"),
            row("later epoch, gross energy", profile.epoch.gross_j, "J"),
            row("later epoch, net energy", profile.epoch.net_j, "J"),
            row("idle power", profile.idle_power_w, "W"),
            row("download and upload", None, "s"),
        ],
    )
    work = f"{profile.model} on {profile.samples:,} samples an epoch"
    text = f"{profile.device}, {work}, backend {profile.backend}."
    return Section("Device profile", text, tables=[table])


def _emulation_section(outcomes: Sequence[RoundOutcome], emulation: EmulationRecord) -> Section:
    rounds = np.array([o.round for o in outcomes], float)
    accuracy = np.array([o.accuracy for o in outcomes])
    joules = np.cumsum([o.energy_j for o in outcomes])
    seconds = np.cumsum([o.duration_ns for o in outcomes]) * 1e-9
    origin = Origin(emulation.facts["cost_origin"])
    text = (
        f"{emulation.scenario.fleet.devices} virtual devices with the profile above, scaled to the samples "
        "each holds and to speeds drawn at random; uniformly random selection (FedAvg); softmax regression "
        "really trained on handwritten digits. Energy is marginal: what training adds to an idle device. "
        "Communication was not measured and is not counted."
    )
    numbers = [
        ("Test accuracy after the last round", Number((emulation.test_accuracy or 0.0) * 100, "%", origin)),
        ("Virtual time", Number(float(seconds[-1]), "s", origin)),
        ("Energy of all devices", Number(float(joules[-1]), "J", origin)),
    ]
    charts = [
        Chart(
            "Validation accuracy", "round", "accuracy (%)", rounds,
            [Series("accuracy (%)", accuracy * 100, points=True)], origin.value,
        ),
        Chart(
            "Accuracy against energy", "energy of all devices (J)", "accuracy (%)", joules,
            [Series("accuracy (%)", accuracy * 100, points=True)], origin.value,
        ),
    ]  # fmt: skip
    return Section("Emulation", text, numbers, charts)


def _findings_section(capture: Capture) -> Section:
    findings = (*capture.recording.record.findings, *capture.record.findings)
    rows = [[f.severity.value, f.code, str(f.count), f.message] for f in findings]
    table = Table(["severity", "finding", "count", "what it means"], rows)
    return Section("Findings", "" if rows else "Nothing to report.", tables=[table] if rows else [])
