"""``joulefleet meter``: find power meters, record, import, emulate and test them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from harness.cli.frame import Group, Output
from harness.cli.meter.calibrate import calibrate
from harness.cli.meter.check import emulate, output, selftest
from harness.cli.meter.options import calibration_option, out_option, output_data, output_line, with_meter
from harness.cli.meter.watch import watch
from harness.cli.terminal import style
from joulefleet.errors import EXIT_DATA_QUALITY, EXIT_INTERRUPTED, EXIT_METER

if TYPE_CHECKING:
    from power import Finding, MeterConfig
    from power.recording import RecordingRecord


@click.group("meter", cls=Group)
def meter() -> None:
    """Power meters: find, watch, record, emulate, test."""


for command in (calibrate, emulate, output, selftest, watch):
    meter.add_command(command)


@meter.command("list")
def list_meters() -> Output:
    """Kinds of meters, and which of them can be emulated."""
    from power import METERS
    from power.emulated import EMULATORS

    rows = [
        {
            "kind": entry.name,
            "summary": entry.summary,
            "source": entry.source,
            "emulator": entry.name in EMULATORS,
        }
        for entry in METERS.entries().values()
    ]

    notes = {True: "  (can be emulated)", False: ""}
    return Output(rows, [f"{row['kind']:<14} {row['summary']}{notes[bool(row['emulator'])]}" for row in rows])


@meter.command("scan")
def scan() -> Output:
    """Look for instruments on the serial ports and on USB.

    No serial port is opened. A Monsoon on USB is opened to ask for its serial number, and for nothing else.
    """
    from power import scan_instruments

    found = scan_instruments()

    lines = [] if found.instruments else ["no serial port and no Monsoon on USB"]
    for one in found.instruments:
        kind = f"{one.kind}{'' if one.certain else '?'}" if one.kind else "?"
        text = f"{one.port or 'usb':<16} {kind:<14} {one.serial} {one.description} {one.problem}"
        lines.append(text.rstrip())
    return Output(found.as_dict(), [*lines, *found.notes])


@meter.command("info")
@with_meter
def info(config: MeterConfig) -> Output:
    """Open a meter and show what it says about itself. Its output is left as it is.

    The exit code is 5 if it is set so that no recording could begin, as to more than --voltage-max.
    """
    from power import open_meter
    from power.calibrate import calibrated_info
    from power.meters import OutputControl, RefusesSettings

    with open_meter(config, any_settings=True) as opened:
        facts = calibrated_info(opened.info, config.calibration)
        output = output_data(opened.output_setting(), config) if isinstance(opened, OutputControl) else None
        refused = opened.obstacles() if isinstance(opened, RefusesSettings) else ()

    lines = [f"{facts.kind} {facts.serial} on {facts.port}"]
    lines += ["  emulated: nothing measured with it may be called measured"] if facts.emulated else []
    lines.append(f"  firmware {facts.firmware or '?'}, hardware {facts.hardware or '?'}")
    lines.append(f"  {facts.rate_hz:g} samples/s, timing {facts.timing}, loss {facts.loss}")
    for part in facts.accuracy.current:
        step = "unknown steps" if part.step_a is None else f"steps of {part.step_a:.3g} A"
        lines.append(f"  range {part.name}: {part.gain_rel:.2%} of reading and {part.offset_a:g} A, {step}")
    accuracy = facts.accuracy
    lines.append(
        f"  voltage: {accuracy.voltage_gain_rel:.2%} of reading and {accuracy.voltage_offset_v:.2g} V"
    )
    lines.append(f"  {accuracy.source}")
    lines += [f"  {key} = {value}" for key, value in sorted(facts.facts.items())]
    lines += [f"  {output_line(output)}"] if output else []
    lines += [f for e in refused for f in (f"no recording can begin: {e.message}", f"  try: {e.hint}")]
    data = {
        **facts.model_dump(mode="json"),
        "output": output,
        "refused": [error.message for error in refused],
    }
    return Output(data, lines, exit_code=EXIT_METER if refused else 0)


@meter.command("record")
@with_meter
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), help="How long; else until Ctrl-C.")
@out_option
def record_meter(config: MeterConfig, seconds: float | None, out: Path) -> Output:
    """Record a meter. Ctrl-C ends the recording and keeps it."""
    from harness.cli.progress import LivePower, stop_on_signals
    from power import open_meter, record

    with open_meter(config) as opened, stop_on_signals() as stop, LivePower("recording", seconds) as live:
        record_ = record(opened, out, config=config, seconds=seconds, stop=stop, on_block=live)
    code = EXIT_INTERRUPTED if stop.is_set() and seconds is not None else 0
    return _recorded(out, record_, mean_power_w=live.mean_power_w, code=code)


@meter.command("import")
@click.argument(
    "form",
    type=click.Choice(["auto", "powertool-csv", "pymonsoon-csv", "powertool-binary"]),
    metavar="FORMAT",
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--channel", type=click.Choice(["main", "usb", "aux"]), default="main", show_default=True,
    help="Channel that is taken.",
)  # fmt: skip
@out_option
def import_file(form: str, file: Path, channel: Literal["main", "usb", "aux"], out: Path) -> Output:
    """Import a file that other software recorded with a Monsoon.

    FORMAT is auto (found by what the file holds), powertool-csv (a CSV export of PowerTool), pymonsoon-csv
    (written by the vendor's Python package) or powertool-binary (PowerTool's own .pt4 and .pt5).
    """
    from power import import_recording

    return _recorded(out, import_recording(file, out, form=form, channel=channel))


@meter.command("salvage")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def salvage(folder: Path) -> Output:
    """Finish a recording whose process was killed; at most its last second is lost."""
    from joulefleet.errors import StorageError
    from power.recording import RECORDING_FILE, salvage_recording

    record_ = salvage_recording(folder)
    if record_ is None:
        state = "is whole already" if (folder / RECORDING_FILE).exists() else "holds no samples"
        raise StorageError(f"{folder}: {state}, nothing to salvage")
    return _recorded(folder, record_)


@meter.command("show")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--from", "from_s", type=float, metavar="SECONDS", help="Begin here; else at the first sample.")
@click.option("--to", "to_s", type=float, metavar="SECONDS", help="End here; else at the last sample.")
@click.option(
    "--csv", type=click.Path(path_type=Path, dir_okay=False), help="Write the samples to this new file too."
)
@calibration_option("Correct the samples by this, instead of what the recording says.")
def show(
    folder: Path, from_s: float | None, to_s: float | None, csv: Path | None, calibration: Path | None
) -> Output:
    """Show the energy, mean power and findings of a recording, or of a part of it.

    --from and --to count from its first sample. The exit code is 6 if the energy must not be used.
    """
    from power import write_samples_csv
    from power.calibrate import load_calibration
    from power.energy import measure_energy
    from power.recording import open_recording

    stated = None if calibration is None else load_calibration(calibration)
    recording = open_recording(folder, calibration=stated)
    record, applied = recording.record, recording.calibration
    measured = measure_energy(recording, from_s, to_s)
    energy, budget, window = measured.energy, measured.budget, measured.window
    data: dict[str, Any] = {
        "folder": str(folder),
        "origin": record.provenance(folder.name).origin.value,
        "instrument": record.info.kind,
        "started_utc": record.started_utc,
        "duration_s": energy.duration_s,
        "n_samples": energy.n_samples,
        "lost_fraction": energy.lost_fraction if energy.loss_known else None,
        "energy_j": energy.energy_j,
        "energy_half_width_95_j": budget.half_width_j if budget else None,
        "parts_half_width_95_j": (
            {name: part.half_width_j for name, part in budget.parts.items()} if budget else None
        ),
        "calibration": applied.model_dump(mode="json") | {"sha256": applied.sha256()} if applied else None,
        "instrument_accuracy": recording.info.accuracy.source,
        "mean_power_w": energy.mean_power_w,
        "charge_c": energy.charge_c,
        "problems": list(energy.problems),
        "notes": list(dict.fromkeys([*energy.notes, *(budget.notes if budget else ())])),
        "findings": [finding.model_dump(mode="json") for finding in record.findings],
        "csv_rows": write_samples_csv(recording, csv, window.start_ns, window.end_ns) if csv else None,
    }
    return Output(data, _recording_lines(data), 0 if energy.valid else EXIT_DATA_QUALITY)


def _reach(energy_j: float, half_j: float) -> str:
    """``± 0.12 J``, or both ends where these are not alike."""
    from joulefleet.interval import ALIKE, Interval, Scale

    # Readings of no load lie around nothing: there, less than nothing is the instrument's offset.
    if energy_j <= 0 or half_j <= ALIKE * energy_j:
        return f"± {half_j:.2g} J"
    found = Interval.measured(energy_j, half_j, Scale.LOG)
    return f"[{found.low:.2g}, {found.high:.2g}] J"


def _recording_lines(data: dict[str, Any]) -> list[str]:
    lines = [f"{data['instrument']}, {data['started_utc']:%Y-%m-%d %H:%M:%S} UTC, {data['origin']}"]
    lost = "losses unknown" if data["lost_fraction"] is None else f"{data['lost_fraction']:.3%} lost"
    lines.append(f"{data['n_samples']:,} samples in {data['duration_s']:.3f} s ({lost})")
    if data["energy_j"] is not None:
        half_j = data["energy_half_width_95_j"]
        known = "" if half_j is None else f" {_reach(data['energy_j'], half_j)} (95 %)"
        lines.append(f"{data['energy_j']:.6g} J{known}, {data['mean_power_w']:.6g} W on average")
        lines.append(f"{data['charge_c']:.6g} C ({data['charge_c'] / 3.6:.6g} mAh)")
    source = data["instrument_accuracy"]
    lines.append(f"corrected by the {source}" if data["calibration"] else f"not calibrated: {source}")
    lines += [f"not to be used: {problem}" for problem in data["problems"]]
    findings = {f"{found['code']}: {found['message']}": found["severity"] for found in data["findings"]}
    said = {f"instrument: {source}", *findings}
    lines += [f"note: {note}" for note in data["notes"] if note not in said]
    lines += [f"{severity}: {finding}" for finding, severity in findings.items()]
    if data["csv_rows"] is not None:
        lines.append(f"{data['csv_rows']:,} rows of CSV written")
    return lines


@meter.command("verify")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def verify(folder: Path) -> Output:
    """Check a recording: its files against their hashes, its samples against the instrument's bytes."""
    from power import compare_with_raw
    from power.recording import RAW_FILE, open_recording, verify_hashes

    recording = open_recording(folder)
    changed = verify_hashes(recording)
    again = compare_with_raw(recording) if (folder / RAW_FILE).exists() else None
    data = {
        "folder": str(folder),
        "changed_files": changed,
        "n_stored": recording.record.n_samples,
        "calibration_sha256": recording.provenance(folder.name).calibration_sha256,
        "n_decoded_again": again.n_decoded if again else None,
        "first_difference": again.first_difference if again else None,
    }
    good = not changed and (again is None or again.first_difference is None)

    if again is None:
        samples = "no raw bytes to compare with"
    elif again.first_difference is None:
        samples = f"all {again.n_stored:,} are what the instrument's bytes say"
    else:
        samples = f"differ from the instrument's bytes from {again.first_difference} on"
    files = f"changed: {', '.join(changed)}" if changed else "as recorded"
    lines = [f"files: {files}", f"samples: {samples}"]
    if recording.calibration is not None:
        lines.append(f"correction: by the {recording.calibration.describe()}; not part of what is compared")
    return Output(data, lines, exit_code=0 if good else EXIT_DATA_QUALITY)


def _recorded(
    folder: Path, record: RecordingRecord, *, mean_power_w: float | None = None, code: int = 0
) -> Output:
    """What is said of a finished recording; an error among its findings is the answer "no"."""
    from power import Severity

    clock = record.timebase
    data: dict[str, Any] = {
        "folder": str(folder),
        "sha256": record.sha256(),
        "kind": record.info.kind,
        "origin": record.provenance(folder.name).origin.value,
        "n_samples": record.n_samples,
        "dropped": record.dropped,
        "duration_s": (clock.host_ns[-1] - clock.host_ns[0]) * 1e-9,
        "rate_hz": clock.tick_hz * record.info.rate_hz / record.info.tick_hz,
        "mean_power_w": mean_power_w,
        "calibration_sha256": None if record.calibration is None else record.calibration.sha256(),
        "findings": [finding.model_dump(mode="json") for finding in record.findings],
    }
    bad = any(finding.severity is Severity.ERROR for finding in record.findings)

    lost = "losses unknown" if record.dropped is None else f"{record.dropped:,} lost"
    power = "" if mean_power_w is None else f", {mean_power_w:.4f} W on average"
    lines = [
        f"{data['n_samples']:,} samples in {data['duration_s']:.1f} s ({lost}){power}",
        *([] if record.calibration is None else [f"corrected by the {record.calibration.describe()}"]),
        *map(_line, record.findings),
        f"{data['origin']} recording in {folder}",
    ]
    return Output(data, lines, exit_code=code or (EXIT_DATA_QUALITY if bad else 0))


_COLOURS = {"info": None, "warning": "yellow", "error": "red"}


def _line(finding: Finding) -> str:
    times = f" ({finding.count} times)" if finding.count > 1 else ""
    severity = style(f"{finding.severity.value:<7}", fg=_COLOURS[finding.severity])
    return f"{severity} {finding.code}: {finding.message}{times}"
