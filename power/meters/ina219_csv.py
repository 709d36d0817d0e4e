"""Driver of INA219 sketches that print loose lines (`power.wire.ina219.csv_rows`).

For boards that cannot be flashed with our sketch. Such a recording says ``timing=host, loss=unknown``.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from pydantic import Field, model_validator

from joulefleet.config import ClosedModel, validate
from joulefleet.errors import ConfigError, MeterProtocolError, MeterSilent
from power.meter import MeterConfig
from power.meters.ina219 import Grade, check_config, ina219_accuracy
from power.meters.serial_port import SerialPort, is_real_serial
from power.meters.streaming import StreamingMeter
from power.model import ONE_LOST_PERIODS, Accuracy, InstrumentInfo, Loss, SampleClock, Severity
from power.wire.decoder import LineBuffer
from power.wire.ina219.csv_decoder import MAX_LINE, SHUNT_TOLERANCE, TICK_HZ, CsvScale, Ina219CsvDecoder
from power.wire.ina219.csv_rows import CsvFormat, CsvRowReader, Row, known_formats, recognise
from power.wire.ina219.registers import POWER_ON_CONFIG, Config

LIBRARY_SHUNT_OHM = 0.1
"""The resistance that the common libraries compute with (Adafruit's ``setCalibration_32V_2A``)."""

HEARD_S = 1.0
HEARD_ROWS = 20
"""The rate of a sketch is known after so long, or after so many readings of a fast one."""

_HEARD_LINES = 200  # of the longest format six are one reading


class Ina219CsvOptions(ClosedModel):
    """``options`` of a meter of this kind.

    Attributes:
        baud: Bits per second, as in the sketch.
        format: Name of the format; ``auto`` recognises it.
        listen_s: How long to listen for it. Three readings are needed, and slow sketches print one every few
            seconds.
        grade: Accuracy grade of the chip.
        shunt_ohm: Shunt resistance. Turns the bus plus shunt voltage of some formats into the device's. It
            does not change the current, which the sketch computes with its own idea of the shunt; where the
            sketch prints the shunt voltage too, a disagreement is an error of the recording.
        shunt_tolerance: Its relative tolerance (1 % on Adafruit's board).
        assumed_voltage_v: Voltage for the format that has none.
        assumed_voltage_tolerance: Relative limit of error of that assumption.
    """

    baud: int = Field(default=115_200, gt=0)
    format: str = "auto"
    listen_s: float = Field(default=10.0, gt=0, le=120)
    grade: Grade = "A"
    shunt_ohm: float | None = Field(default=None, gt=0)
    shunt_tolerance: float = Field(default=SHUNT_TOLERANCE, ge=0, lt=1)
    assumed_voltage_v: float | None = Field(default=None, gt=0)
    assumed_voltage_tolerance: float | None = Field(default=None, gt=0, lt=1)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.assumed_voltage_v is None) != (self.assumed_voltage_tolerance is None):
            raise ValueError("assumed_voltage_v and assumed_voltage_tolerance belong together")
        if self.format != "auto" and self.format not in list(CsvFormat):
            raise ValueError(f"format {self.format!r} is none of: auto; {known_formats()}")
        return self


@dataclass(frozen=True, slots=True)
class Heard:
    """What listening found out."""

    format: CsvFormat
    rate_hz: float
    printed_step_a: float
    printed_step_v: float


class Ina219Csv(StreamingMeter):
    """A sketch that prints readings without being asked. Made by `open_meter`."""

    def __init__(
        self, config: MeterConfig, options: Ina219CsvOptions, port: SerialPort, heard: Heard
    ) -> None:
        scale = CsvScale(options.shunt_ohm, options.assumed_voltage_v, options.shunt_tolerance)
        decoder = Ina219CsvDecoder(heard.format, scale, heard.rate_hz)
        super().__init__(config, _info(port.path, options, heard), decoder)
        self._port = port
        if heard.format is CsvFormat.MILLIS_CURRENT:
            self._own_findings.add(
                "assumed_voltage", Severity.WARNING, "the sketch prints no voltage; it was assumed"
            )

    def begin_sampling(self) -> None:
        """Forget what came since the port was opened; the sketch prints anyway."""
        self._port.drain_input(quiet_s=0.0)

    def end_sampling(self) -> None:
        """Nothing: the sketch does not listen."""

    def read_bytes(self) -> bytes:
        """What has arrived."""
        return self._port.read_available()

    def close(self) -> None:
        """Release the port."""
        self._port.close()


def open_meter(config: MeterConfig) -> Ina219Csv:
    """Open the port and listen until the format and rate are known."""
    options = validate(config.options, Ina219CsvOptions, name=f"{config.kind} options")
    check_config(config)
    if config.serial:
        raise ConfigError(f"{config.kind}: loose lines carry no serial number", hint="leave serial out")
    port = SerialPort(config.port, baud=options.baud, kind=config.kind)
    try:
        heard = _listen(port, options)
        if heard.format is CsvFormat.MILLIS_CURRENT and options.assumed_voltage_v is None:
            raise ConfigError(
                f"{config.kind} on {config.port}: the sketch prints current but no voltage",
                hint="measure the voltage, then set options.assumed_voltage_v and"
                " options.assumed_voltage_tolerance (relative)",
            )
        return Ina219Csv(config, options, port, heard)
    except BaseException:
        port.close()
        raise


def _listen(port: SerialPort, options: Ina219CsvOptions) -> Heard:
    """Find out format and rate.

    Raises:
        MeterSilent: Nothing arrives.
        MeterProtocolError: What arrives is of no known format.
    """
    port.write(b"\n")  # some sketches wait for any byte before they begin
    port.drain_input(quiet_s=0.0)
    buffer = LineBuffer(MAX_LINE)
    lines: list[tuple[float, bytes]] = []
    heard_bytes = 0
    for data in port.reads(options.listen_s):
        arrival_s = time.monotonic()
        heard_bytes += len(data)
        whole = buffer.feed(data).split(b"\n")[:-1]
        lines = (lines + [(arrival_s, line) for line in whole])[-_HEARD_LINES:]
        # The first line may be torn.
        found = _recognise([line for _, line in lines[1:]], options)
        rate_hz = _rate_hz(lines[1:], found) if found else None
        if found and rate_hz:
            return Heard(found, rate_hz, *_printed_steps([line for _, line in lines[1:]], found))
    where = f"ina219-csv on {port.path}"
    if not heard_bytes:
        raise MeterSilent(
            f"{where}: nothing arrives",
            hint="is a sketch running, and is this its port? try the reset button",
        )
    seen = b"\n".join(line for _, line in lines[-3:]) or b"no newline"
    raise MeterProtocolError(
        f"{where}: in {options.listen_s:g} s at {options.baud} baud came no readings of a known format"
        f" ({seen[:80]!r})",
        hint="check options.baud, and raise options.listen_s for a sketch with seconds between readings;"
        f" options.format forces one of: {known_formats()}",
    )


def _recognise(lines: list[bytes], options: Ina219CsvOptions) -> CsvFormat | None:
    return recognise(lines) if options.format == "auto" else CsvFormat(options.format)


def _rate_hz(lines: list[tuple[float, bytes]], csv_format: CsvFormat) -> float | None:
    """Readings per second, by the sketch's clock or by when they arrived; None if too few came."""
    reader = CsvRowReader(csv_format)
    rows = [(at_s, row) for at_s, line in lines if isinstance(row := reader.read(line), Row)]
    if csv_format.has_clock:
        steps = sorted(_clock_steps([row for _, row in rows]))
    else:
        steps = sorted(_arrival_steps([at_s for at_s, _ in rows]))
    if len(steps) < 2:
        return None
    # Opening the port may have reset the board, which then pauses for seconds; or a digit is wrong.
    if steps[-1][0] > ONE_LOST_PERIODS * steps[-2][0]:
        steps.pop()
    span_s, readings = sum(step_s for step_s, _ in steps), sum(count for _, count in steps)
    enough = span_s >= HEARD_S or (readings >= HEARD_ROWS and span_s > 0)
    return readings / span_s if enough else None


def _clock_steps(rows: list[Row]) -> list[tuple[float, int]]:
    """Seconds from reading to reading, but where the sketch's clock went backwards; and 1 for the reading."""
    millis = [row.millis for row in rows if row.millis is not None]
    steps = [(after - before) % (1 << 32) for before, after in pairwise(millis)]
    return [(step * 1e-3, 1) for step in steps if step < 1 << 31]


def _arrival_steps(arrivals_s: list[float]) -> list[tuple[float, int]]:
    """Seconds from read to read, and the readings in the latter: what came together shares its time."""
    readings = Counter(arrivals_s)
    return [(after - before, readings[after]) for before, after in pairwise(readings)]


def _printed_steps(lines: list[bytes], csv_format: CsvFormat) -> tuple[float, float]:
    """Amperes and volts between neighbouring numbers of the text; no volts where it has none."""
    reader = CsvRowReader(csv_format)
    for line in lines:
        reader.read(line)
    steps = {name: 10.0**-digits for name, digits in reader.decimals.items()}
    return steps["ma"] * 1e-3, steps.get("bus", steps.get("load", 0.0))


def _accuracy(options: Ina219CsvOptions, heard: Heard) -> Accuracy:
    """The limits of a chip as it powers on, in its widest range (the sketch does not tell); the text's steps.

    A reading is rounded by the chip and again by the text; in the worst case the two errors add.
    """
    shunt_ohm = options.shunt_ohm or LIBRARY_SHUNT_OHM
    settings = Config.from_word(POWER_ON_CONFIG)
    chip = ina219_accuracy(options.grade, settings, shunt_ohm, options.shunt_tolerance)
    (current,) = chip.current
    current = current.model_copy(update={"step_a": (current.step_a or 0.0) + heard.printed_step_a})
    printed = f"current printed in steps of {heard.printed_step_a * 1e3:g} mA"
    if heard.format is CsvFormat.MILLIS_CURRENT:
        voltage = (options.assumed_voltage_tolerance, 0.0, "voltage assumed")
    else:
        step_v = (chip.voltage_step_v or 0.0) + heard.printed_step_v
        voltage = (chip.voltage_gain_rel, step_v, f"voltage in steps of {heard.printed_step_v:g} V")
    return Accuracy.model_validate(
        {
            **chip.model_dump(),
            "current": (current,),
            "voltage_gain_rel": voltage[0],
            "voltage_step_v": voltage[1],
            "source": f"{chip.source}; {printed}, {voltage[2]}",
        }
    )


def _info(port: str, options: Ina219CsvOptions, heard: Heard) -> InstrumentInfo:
    return InstrumentInfo(
        kind="ina219-csv",
        hardware=f"INA219{options.grade}",
        port=port,
        emulated=not is_real_serial(port),
        rate_hz=heard.rate_hz,
        tick_hz=TICK_HZ,
        uniform_ticks=False,
        timing=SampleClock.HOST,
        loss=Loss.UNKNOWN,
        accuracy=_accuracy(options, heard),
        facts=_facts(options, heard.format),
    )


def _facts(options: Ina219CsvOptions, csv_format: CsvFormat) -> dict[str, str | int | float | bool]:
    """How the lines were read, complete enough to decode them again."""
    facts: dict[str, str | int | float | bool] = {
        "format": csv_format.value,
        "ticks_from": "millis of the sketch" if csv_format.has_clock else "arrival on the host",
        "voltage_at": "bus (IN- to ground), or source where a finding source_voltage says so",
    }
    if options.shunt_ohm is not None:
        facts["shunt_ohm"] = options.shunt_ohm
        facts["shunt_tolerance"] = options.shunt_tolerance
    if csv_format is CsvFormat.MILLIS_CURRENT and options.assumed_voltage_v is not None:
        facts["voltage_at"] = "assumed"
        facts["assumed_voltage_v"] = options.assumed_voltage_v
    return facts
