"""A meter's calibration: what its readings are multiplied by and what is added, and how sure that is.

    corrected = gain x reading + offset

in amperes and in volts, by measuring range where an instrument has several. A recording keeps what the
instrument said; the calibration stands in its record and is applied in one place, where samples are read
(`power.recording.reader.Recording`). What it does to readings and to intervals is in `power.correction`.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from datetime import UTC, datetime, timedelta
from datetime import date as Day  # noqa: N812 - a field below is called date
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from joulefleet.config import ClosedModel, read_toml, validate
from joulefleet.errors import ConfigError
from joulefleet.records import canonical_json
from power.model import InstrumentInfo

MAX_GAIN_OFF = 0.2
"""A gain further from 1 is a wrong unit, a wrong resistor or a broken instrument. The two scalings of an
LVPM, the largest disagreement known, differ by 8 %."""


OneLine = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$")]
"""Text that goes into the comments of CSV files and into notes."""


class LinearCorrection(ClosedModel):
    """What is common to a current and a voltage.

    Attributes:
        gain: Factor of the reading.
        gain_uncertainty: Of the gain: expanded, or a limit (see `MeterCalibration`).
        gain_offset_correlation: Correlation of the errors of gain and offset; about -0.9 where a line was
            fitted to points of one sign.
    """

    gain: float = Field(ge=1 - MAX_GAIN_OFF, le=1 + MAX_GAIN_OFF)
    gain_uncertainty: float = Field(gt=0, le=MAX_GAIN_OFF)
    gain_offset_correlation: float = Field(default=0.0, ge=-1, le=1)

    @property
    def offset(self) -> float | None:
        """What is added, in the unit of the reading; None if the offset was not calibrated."""
        return None

    @property
    def offset_uncertainty(self) -> float | None:
        """Stated for it."""
        return None


class CurrentCorrection(LinearCorrection):
    """corrected current = ``gain`` x reading + ``offset_a``, in one measuring range.

    Attributes:
        offset_a: Amperes to add. Without it nothing is added, and the offset stays within the limits that the
            driver assumes.
        offset_uncertainty_a: Of the offset, amperes.
    """

    offset_a: float | None = Field(default=None, ge=-0.5, le=0.5)
    offset_uncertainty_a: float | None = Field(default=None, gt=0, le=0.5)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        _require_pair("offset_a", self.offset_a, "offset_uncertainty_a", self.offset_uncertainty_a)
        return self

    @property
    def offset(self) -> float | None:
        """See `LinearCorrection`."""
        return self.offset_a

    @property
    def offset_uncertainty(self) -> float | None:
        """See `LinearCorrection`."""
        return self.offset_uncertainty_a


class VoltageCorrection(LinearCorrection):
    """corrected voltage = ``gain`` x reading + ``offset_v``.

    Attributes:
        offset_v: Volts to add; without it see `CurrentCorrection`.
        offset_uncertainty_v: Of the offset, volts.
    """

    offset_v: float | None = Field(default=None, ge=-1, le=1)
    offset_uncertainty_v: float | None = Field(default=None, gt=0, le=1)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        _require_pair("offset_v", self.offset_v, "offset_uncertainty_v", self.offset_uncertainty_v)
        return self

    @property
    def offset(self) -> float | None:
        """See `LinearCorrection`."""
        return self.offset_v

    @property
    def offset_uncertainty(self) -> float | None:
        """See `LinearCorrection`."""
        return self.offset_uncertainty_v


def _require_pair(name: str, value: float | None, other: str, uncertainty: float | None) -> None:
    if (value is None) != (uncertainty is None):
        present, missing = (name, other) if uncertainty is None else (other, name)
        raise ValueError(f"{present} without {missing}: give both, or neither")


class MeterCalibration(ClosedModel):
    """What a calibration of one unit found.

    Attributes:
        current: By measuring range, as ``joulefleet meter info`` names them. A range that is left out keeps
            its readings and the limits that the driver assumes.
        voltage: The same for the voltage.
        k: Coverage factor: the uncertainties are ``k`` standard uncertainties (2 on most certificates).
        limits: Instead of ``k``: they are limits of error, as in a data sheet, with any error between them
            equally likely.
        reference_gain_uncertainty: Relative uncertainty of the reference, where ranges were compared with the
            same one: an error that they share. Not part of the ranges' own.
        own_voltage_v: Currents were derived from a resistor and from the instrument's own voltage at about so
            many volts. An error of the voltage is then in the current too.
        date: When it was made.
        valid_until: Until when it may be used, if somebody decided.
        certificate: Number or file of the certificate.
        by: Who made it.
        method: How.
        serial: Serial number of the unit. Needed if the instrument tells its own.
        scale: Scaling that the readings had, where the driver has an option ``scale``.
        channel: Channel that was calibrated.
        temperature_c: Of the room.
        readings: How many comparisons it rests on.
    """

    current: dict[str, CurrentCorrection] = Field(default_factory=dict, max_length=8)
    voltage: VoltageCorrection | None = None
    k: float | None = Field(default=None, ge=1, le=5)
    limits: bool = False
    reference_gain_uncertainty: float | None = Field(default=None, gt=0, le=MAX_GAIN_OFF)
    own_voltage_v: float | None = Field(default=None, gt=0, le=60)
    date: Day | None = None
    valid_until: Day | None = None
    certificate: OneLine = Field(default="", max_length=200)
    by: OneLine = Field(default="", max_length=200)
    method: OneLine = Field(default="", max_length=500)
    serial: OneLine = Field(default="", max_length=100)
    scale: Literal["", "stock", "resistors"] = ""
    channel: Literal["main", "usb", "aux"] = "main"
    temperature_c: float | None = Field(default=None, ge=-60, le=150)
    readings: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if not self.current and self.voltage is None:
            raise ValueError("corrects nothing: give current.RANGE or voltage")
        if (self.k is None) != self.limits:
            raise ValueError("give either k (expanded uncertainties) or limits = true (limits of error)")
        if self.date and self.valid_until and self.valid_until < self.date:
            raise ValueError(f"valid_until {self.valid_until} is before date {self.date}")
        return self

    def standard(self, uncertainty: float) -> float:
        """The standard uncertainty behind one that is stated here."""
        return uncertainty / (math.sqrt(3) if self.k is None else self.k)

    def sha256(self) -> str:
        """Hash of the content."""
        return hashlib.sha256(canonical_json(self.model_dump(mode="json"))).hexdigest()

    def describe(self) -> str:
        """One line: when, by whom, which."""
        parts = [f"calibration of {self.date}" if self.date else "calibration without a date"]
        parts += [f"by {self.by}"] if self.by else []
        parts += [f"certificate {self.certificate}"] if self.certificate else []
        parts += [f"valid until {self.valid_until}"] if self.valid_until else []
        return ", ".join(parts) + f" (sha256 {self.sha256()[:12]})"

    def warnings(self, used: datetime) -> tuple[str, ...]:
        """What a reader of numbers should know that were recorded at this time."""
        found = []
        if self.date is None:
            found.append("the calibration has no date: nobody can tell whether it still holds")
        if self.valid_until is not None and used.astimezone(UTC).date() > self.valid_until:
            found.append(f"the calibration had expired on {self.valid_until}, before the recording")
        if self.date is not None and used.astimezone(UTC).date() < self.date - timedelta(days=1):
            found.append(f"the calibration is of {self.date}, after the recording")
        return tuple(found)


def require_not_in_future(calibration: MeterCalibration | None) -> MeterCalibration | None:
    """Asked where a calibration is stated; a stored one stays readable when the host's clock is wrong."""
    latest = datetime.now(UTC).date() + timedelta(days=1)  # it may be tomorrow already where it was made
    if calibration is not None and calibration.date is not None and calibration.date > latest:
        raise ValueError(f"date {calibration.date} is in the future")
    return calibration


class _Stated(ClosedModel):
    calibration: MeterCalibration

    @model_validator(mode="after")
    def _past(self) -> Self:
        require_not_in_future(self.calibration)
        return self


def load_calibration(path: Path) -> MeterCalibration:
    """Read a calibration from a TOML file, as ``joulefleet meter calibrate`` writes it.

    The table may stand at the top or below a header such as ``[devices.phone.meter.calibration]``.

    Raises:
        ConfigError: The file is missing, is not TOML, or states something impossible.
    """
    data = read_toml(path)
    while len(data) == 1 and not data.keys() & MeterCalibration.model_fields.keys():
        (inner,) = data.values()
        if not isinstance(inner, dict):
            break
        data = inner
    if data.keys() & {"devices", "meters"}:
        raise ConfigError(
            f"{path}: an inventory, not a calibration", hint="name one of its devices: --device"
        )
    return validate({"calibration": data}, _Stated, name=str(path)).calibration


def toml_fragment(calibration: MeterCalibration, table: str = "calibration") -> str:
    """A calibration as a table of an inventory: ``table`` is its name there."""
    data = calibration.model_dump(mode="python", exclude_none=True, exclude_defaults=True)
    tables = {f"{table}.current.{_key(name)}": values for name, values in data.pop("current", {}).items()}
    if "voltage" in data:
        tables[f"{table}.voltage"] = data.pop("voltage")
    lines = []
    for name, values in {table: data, **tables}.items():
        lines += [f"[{name}]"] + [f"{key} = {_toml(value)}" for key, value in values.items()] + [""]
    return "\n".join(lines)


def _key(name: str) -> str:
    """A key of TOML: as it is, or quoted where it has more than letters, digits, dashes and underscores."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def _toml(value: object) -> str:
    if isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False)
    return repr(value) if isinstance(value, int | float) else str(value)


def require_fit(calibration: MeterCalibration, info: InstrumentInfo) -> None:
    """Refuse a calibration of another unit, scaling, channel or range.

    Raises:
        ConfigError: Says what does not fit, and what the instrument says.
    """
    scale = str(info.facts.get("scale", ""))
    channel = str(info.facts.get("channel", "main"))
    names = [part.name for part in info.accuracy.current]
    unknown = [name for name in calibration.current if name not in names]
    if info.serial and calibration.serial.strip().lstrip("0") != info.serial.strip().lstrip("0"):
        of = f"of serial {calibration.serial!r}" if calibration.serial else "without a serial number"
        right = f'serial = "{info.serial}"'
        raise _misfit(info, f"{of}, the instrument is {info.serial!r}", right, unsaid=not calibration.serial)
    if calibration.scale != scale:
        made = f"made with scale {calibration.scale!r}" if calibration.scale else "without a scale"
        right = f'scale = "{scale}"'
        raise _misfit(
            info, f"{made}, the instrument is read with {scale!r}", right, unsaid=not calibration.scale
        )
    if calibration.channel != channel:
        raise _misfit(
            info, f"of channel {calibration.channel!r}, {channel!r} is read", f'channel = "{channel}"'
        )
    if unknown:
        raise _misfit(info, f"of range {unknown[0]!r}, which it has not", f"its ranges: {', '.join(names)}")


def _misfit(info: InstrumentInfo, problem: str, right: str, *, unsaid: bool = False) -> ConfigError:
    hint = f"take the calibration that belongs to it ({right}), or leave it out"
    if unsaid:
        hint = f"if it was made with this one, write into it: {right}"
    return ConfigError(f"{info.kind}: a calibration {problem}", hint=hint)
