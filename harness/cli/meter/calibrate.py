"""``joulefleet meter calibrate``: gain and offset of a meter from loads that are known."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.frame import Command, Output
from harness.cli.meter.options import out_option, with_meter
from joulefleet.config import validate
from joulefleet.errors import ConfigError, JoulefleetError, StorageError

if TYPE_CHECKING:
    from power import InstrumentInfo, MeterConfig, Recording
    from power.calibrate import DerivedCalibration, MeasuredPoint, ReferencePoint

FRAGMENT_FILE = "calibration.toml"


@click.command("calibrate", cls=Command)
@functools.partial(with_meter, required=False)
@click.option(
    "--point",
    "texts",
    multiple=True,
    required=True,
    metavar="KEY=VALUE,...",
    help="One load, repeatable: ohms=10,tolerance=0.1% or amperes=0.25,amperes_uncertainty=0.0002 (k = 2);"
    " also volts=4.001,volts_uncertainty=0.001 and recording=FOLDER.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    default=5.0,
    show_default=True,
    help="How long to record a load.",
)
@click.option("--by", default="", help="Who made it.")
@click.option("--certificate", default="", help="Certificate of the reference.")
@click.option("--temperature", "temperature_c", type=float, help="Of the room, degrees Celsius.")
@out_option
def calibrate(
    config: MeterConfig | None, texts: tuple[str, ...], seconds: float, out: Path, **about: Any
) -> Output:
    """Derive gain and offset of a meter from known resistors or from a reference meter.

    Each --point is recorded now, after you have connected its load, or taken from its recording. Two loads or
    more in a range tell gain from offset; one gives the gain alone. Writes calibration.toml, ready for the
    inventory. The output is never switched.
    """
    from power.calibrate import derive_calibration, measure_point, toml_fragment
    from power.recording import open_recording

    points = [_point(text) for text in texts]
    if (out / FRAGMENT_FILE).exists():  # before anybody connects a load
        raise StorageError(f"{out / FRAGMENT_FILE}: exists already, not overwritten")
    folders = _folders(points, config, out, seconds)
    try:
        recordings = [open_recording(folder) for folder in folders]
        measured = [measure_point(p, recording) for p, recording in zip(points, recordings, strict=True)]
        derived = derive_calibration(measured, _one_instrument(recordings), **about)
    except JoulefleetError as error:
        made = [f"recording={one}" for one, point in zip(folders, points, strict=True) if not point.recording]
        if made:
            kept = f"what was recorded is kept: {', '.join(made)} in its --point takes it as it is"
            error.hint = f"{error.hint}; {kept}" if error.hint else kept
        raise
    device = click.get_current_context().params.get("device")
    table = f"devices.{device}.meter.calibration" if device else "calibration"
    fragment = toml_fragment(derived.calibration, table)
    _write(out / FRAGMENT_FILE, fragment)
    return _derived(derived, measured, fragment, out / FRAGMENT_FILE)


def _point(text: str) -> ReferencePoint:
    from power.calibrate import ReferencePoint

    values: dict[str, Any] = {}
    for part in text.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not key or key in values:
            raise click.UsageError(f"--point {text!r}: {part!r} is not KEY=VALUE, or is there twice")
        values[key] = _share(value)
    return validate(values, ReferencePoint, name=f"--point {text}")


def _share(value: str) -> str | float:
    if not value.endswith("%"):
        return value
    try:
        return float(value[:-1]) / 100
    except ValueError:
        return value


def _folders(
    points: list[ReferencePoint], config: MeterConfig | None, out: Path, seconds: float
) -> list[Path]:
    """The recording of each point; those that there are none of are made."""
    live = [point for point in points if not point.recording]
    if live and config is None:
        raise click.UsageError("which meter? Give --device or --kind, or recording=FOLDER with each --point")
    if len(live) > 1 and not sys.stdin.isatty():
        raise click.UsageError(
            "several loads have to be connected one after the other, and nobody is at the terminal: record"
            " each with `joulefleet meter record`, then give recording=FOLDER with its --point"
        )
    found = []
    for number, point in enumerate(points, start=1):
        folder = Path(point.recording) if point.recording else out / f"point{number}"
        if config is not None and not point.recording:
            _record(config, folder, point, seconds, number, pause=len(live) > 1)
        found.append(folder)
    return found


def _record(
    config: MeterConfig, folder: Path, point: ReferencePoint, seconds: float, number: int, *, pause: bool
) -> None:
    from harness.cli.progress import LivePower
    from power import open_meter, record
    from power.recording import put_earlier_aside

    load = f"{point.ohms:g} ohms" if point.ohms else f"the load of point {number}"
    if pause:
        click.pause(f"connect {load}, wait until it is steady, press a key", err=True)
    # As the instrument says it: an older calibration must not get into the new one.
    config = config.model_copy(update={"calibration": None})
    put_earlier_aside(folder)  # of a calibration that was refused or cut short
    with open_meter(config) as opened, LivePower(load, seconds) as live:
        record(opened, folder, config=config, seconds=seconds, on_block=live)


def _one_instrument(recordings: list[Recording]) -> InstrumentInfo:
    infos = [recording.record.info for recording in recordings]
    alike = {(i.kind, i.serial, i.accuracy, i.facts.get("scale"), i.facts.get("channel")) for i in infos}
    if len(alike) > 1:
        raise ConfigError(
            "the recordings come from different instruments, or from one with different settings",
            hint="a calibration is of one unit: " + ", ".join(f"{i.kind} {i.serial}".strip() for i in infos),
        )
    return infos[0]


def _write(path: Path, text: str) -> None:
    from joulefleet.files import storage_error, write_atomic

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(path, error) from error
    write_atomic(path, text.encode(), replace=False)


def _derived(derived: DerivedCalibration, measured: list[MeasuredPoint], fragment: str, path: Path) -> Output:
    data = {
        "file": str(path),
        "calibration": derived.calibration.model_dump(mode="json"),
        "sha256": derived.calibration.sha256(),
        "points": [
            {
                **point.reference.model_dump(mode="json", exclude_none=True),
                "current_a": point.current_a,
                "current_u_a": point.current_u_a,
                "voltage_v": point.voltage_v,
                "voltage_u_v": point.voltage_u_v,
                "n_samples": point.n_samples,
            }
            for point in measured
        ],
        "residuals": derived.residuals,
        "notes": list(derived.notes),
        "toml": fragment,
    }
    lines = [*fragment.rstrip().splitlines(), ""]
    for name, off in derived.residuals.items():
        # A line through two points goes through both: what is left is rounding of the computer.
        if len(off) > 2:
            lines.append(f"{name}: reference minus corrected: " + ", ".join(f"{value:+.3g}" for value in off))
    lines += [f"note: {note}" for note in derived.notes]
    return Output(data, [*lines, f"written to {path}; put it into the inventory, or use --calibration"])
