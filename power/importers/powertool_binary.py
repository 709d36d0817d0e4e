"""PowerTool's own files: ``.pt4`` (16-bit currents) and ``.pt5`` (32-bit currents), little-endian.

A header, a status packet of the instrument at byte 272, samples from byte 1024 on: the current of each
channel recorded, then a voltage. Which of the two formats a file is, its sample size and status packet say,
not its name. The sums in the header do not cover all samples and are not used.

Two things are not known of ``.pt5``. They are taken from the file itself, which is refused where that leaves
two readings: the step of its voltages (the one that gives the output voltage that was set), and whether a
current of -32767 uA marks a missing sample (the header's count of them decides).
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from joulefleet.errors import DataQualityError
from joulefleet.files import storage_error
from power.importers.source import Channel, Facts, ImportOptions, ReadingSteps, Source
from power.model import FindingLog, InstrumentInfo, SampleBlock, Severity
from power.timebase import Timebase

if TYPE_CHECKING:
    from numpy.typing import NDArray

STATUS_AT, SAMPLES_AT = 272, 1024
CHUNK_SAMPLES = 65_536
MISSING_CURRENT = -32767  # 0x8001 as a signed word
MISSING_VOLTAGE = 0xFFFF
VOLT_STEP = 125e-6
PT5_VOLT_STEPS = (125e-6, 250e-6, 500e-6)
PT5_VOLT_TOLERANCE = 0.1
COARSE = 250
FINE_UP_TO_A = 0.0328
_CHANNEL_BITS: dict[Channel, int] = {"main": 0x1000, "usb": 0x2000, "aux": 0x4000}
_INITIAL_VOLTAGE_AT = {"main": 152, "usb": 154, "aux": 156}
_HALVED_BELOW_REVISION = {"main": 2, "usb": 0, "aux": 3}  # B and C
_AUX_VOLTAGE_LED = 8


@dataclass(frozen=True, slots=True)
class _Header:
    """What the first 1024 bytes say."""

    raw: bytes
    version: int
    channels: tuple[Channel, ...]
    rate_hz: int

    @property
    def dtype(self) -> np.dtype[Any]:
        current = "<i2" if self.version == 4 else "<i4"
        return np.dtype([*((name, current) for name in self.channels), ("voltage", "<u2")])

    def number(self, form: str, at: int) -> Any:
        return struct.unpack_from("<" + form, self.raw, at)[0]

    def text(self, at: int, width: int) -> str:
        text = self.raw[at + 1 : at + width].decode("ascii", "replace").strip(" \0")
        return "".join(c if c.isprintable() else "?" for c in text)

    @property
    def revision(self) -> int:
        return self.raw[STATUS_AT + 44]

    @property
    def voltage_channel(self) -> Channel:
        return "aux" if self.raw[STATUS_AT + 24] & _AUX_VOLTAGE_LED else "main"


def looks_like(head: bytes) -> bool:
    """Whether a file begins with such a header."""
    return (
        len(head) >= SAMPLES_AT
        and struct.unpack_from("<H", head, 144)[0] == STATUS_AT
        and struct.unpack_from("<H", head, 148)[0] == SAMPLES_AT
        and head[STATUS_AT + 1] == 0x10
    )


def read(path: Path, file: BinaryIO, options: ImportOptions, facts: Facts) -> Source:
    """Open a ``.pt4`` or ``.pt5`` file."""
    header = _header(path, file.read(SAMPLES_AT))
    channel = options.channel
    if channel not in header.channels:
        raise DataQualityError(
            f"{path}: no channel {channel!r}",
            hint=f"it holds {' and '.join(header.channels)}: take --channel",
        )
    samples = _Samples(path, file, header, channel)
    info = InstrumentInfo(
        kind=f"import:powertool-pt{header.version}",
        serial=header.text(36, 20),
        firmware=str(header.raw[STATUS_AT + 2]),
        hardware=f"revision {header.revision}",
        emulated=False,
        rate_hz=header.rate_hz,
        tick_hz=header.rate_hz,
        uniform_ticks=True,
        accuracy=_steps(header, samples).accuracy(options.accuracy),
        facts={**facts, **_facts(header), "volt_step_v": samples.volt_step},
    )
    return Source(info, samples.blocks(), samples.finish)


def _header(path: Path, raw: bytes) -> _Header:
    if not looks_like(raw):
        raise DataQualityError(
            f"{path}: no .pt4 or .pt5 file: its first {SAMPLES_AT} bytes lack the status packet",
            hint="is it cut short, or of another program?",
        )
    mask = struct.unpack_from("<H", raw, 158)[0]
    channels = tuple(name for name, bit in _CHANNEL_BITS.items() if mask & bit)
    if not channels:
        raise DataQualityError(f"{path}: no channel of current recorded (data mask {mask:#06x})")
    version = _version(path, raw, len(channels))
    status = raw[STATUS_AT : STATUS_AT + raw[STATUS_AT] + 1]
    if sum(status[:-1]) % 256 != status[-1]:
        raise DataQualityError(
            f"{path}: the status packet at byte {STATUS_AT} has a wrong checksum",
            hint="the file is damaged: copy it again",
        )
    khz, hardware_hz = raw[STATUS_AT + 28], struct.unpack_from("<i", raw, 68)[0]
    if not 0 < khz * 1000 == hardware_hz:
        raise DataQualityError(
            f"{path}: sampled at {khz} kHz by its status packet, at {hardware_hz} Hz by its header",
            hint="without the true rate there is no time and no energy: export it again",
        )
    return _Header(raw, version, channels, hardware_hz)


def _version(path: Path, raw: bytes, channels: int) -> int:
    """4 or 5: by the bytes of a sample, and by the length of the status packet."""
    size, length = struct.unpack_from("<H", raw, 150)[0], raw[STATUS_AT] + 1
    by_size = {2 + 2 * channels: 4, 2 + 4 * channels: 5}.get(size)
    by_status = {60: 4, 96: 5}.get(length)
    if by_status is None or (by_size is None and size) or by_size not in (None, by_status):
        raise DataQualityError(
            f"{path}: neither .pt4 nor .pt5: {size} bytes a sample of {channels} channels,"
            f" a status packet of {length} bytes",
            hint="export it from PowerTool as CSV instead",
        )
    return by_status


def _facts(header: _Header) -> Facts:
    facts: Facts = {"software": header.text(118, 10)}
    vout = float(header.number("f", 64))
    if math.isfinite(vout):
        facts["output_voltage_v"] = round(vout, 6)
    ticks = header.number("Q", 28) & (1 << 62) - 1  # of 100 ns; the two bits above say whose time it is
    try:
        facts["captured"] = (datetime(1, 1, 1) + timedelta(microseconds=ticks // 10)).isoformat()  # noqa: DTZ001
    except OverflowError:
        facts["captured"] = "unknown"
    return facts


def _steps(header: _Header, samples: _Samples) -> ReadingSteps:
    """Of a .pt4, the lowest bit of a current and the two lowest of a voltage are no part of it."""
    if header.version == 5:
        return ReadingSteps("a .pt5 file", 1e-6, samples.volt_step)
    return ReadingSteps("a .pt4 file", 2e-6, 4 * samples.volt_step, FINE_UP_TO_A, 2e-6 * COARSE)


class _Samples:
    """The samples of one channel."""

    def __init__(self, path: Path, file: BinaryIO, header: _Header, channel: Channel) -> None:
        self._path, self._file, self._header, self._channel = path, file, header, channel
        size = os.fstat(file.fileno()).st_size - SAMPLES_AT
        self._count, self._rest = divmod(size, header.dtype.itemsize)
        self._missing = 0
        self._constant_v: float | None = None
        self._marked = header.version == 4
        self.volt_step = VOLT_STEP
        if header.version == 5:
            self._marked = self._marks_missing()
            self.volt_step = self._infer_volt_step()
        if header.revision < _HALVED_BELOW_REVISION[channel]:
            self.volt_step /= 2
        if channel != header.voltage_channel:
            self._constant_v = self._initial_voltage()

    def blocks(self) -> Iterator[SampleBlock]:
        """The samples, cut where some are missing."""
        index = lost = 0
        for chunk in self._chunks():
            here = self._here(chunk)
            edges = np.flatnonzero(np.diff(here.astype(np.int8), prepend=0, append=0))
            done = 0
            for start, stop in edges.reshape(-1, 2).tolist():
                lost += start - done
                yield self._block(chunk[start:stop], index + start, lost if index + start > lost else 0)
                lost, done = 0, stop
            lost += len(chunk) - done
            self._missing += int(np.count_nonzero(~here))
            index += len(chunk)

    def finish(self, log: FindingLog) -> Timebase:
        """What was noticed."""
        header = self._header
        if self._rest:
            log.add("truncated", Severity.WARNING, f"the last sample is cut: {self._rest} bytes left out")
        said, missing = header.number("Q", 160), header.number("Q", 168)
        if said != self._count:
            log.add(
                "sample_count",
                Severity.WARNING,
                f"the header counts {said} samples, the file holds {self._count}",
            )
        if missing != self._missing:
            log.add(
                "missing_count",
                Severity.WARNING,
                f"the header counts {missing} missing samples, the file marks {self._missing}",
            )
        if header.number("i", 56):
            log.add("calibration_failed", Severity.WARNING, "the instrument had failed its own calibration")
        if self._constant_v is not None:
            log.add(
                "voltage_constant",
                Severity.WARNING,
                f"channel {self._channel} has no samples of voltage: {self._constant_v:g} V is taken",
            )
        last = self._count - 1
        return Timebase(ticks=(0, last), host_ns=(0, round(last * 1e9 / header.rate_hz)))

    def _chunks(self) -> Iterator[NDArray[Any]]:
        dtype, left = self._header.dtype, self._count
        if left < 2:
            raise DataQualityError(f"{self._path}: fewer than two samples", hint="is it cut short?")
        self._file.seek(SAMPLES_AT)
        while left:
            n = min(left, CHUNK_SAMPLES)
            try:
                data = self._file.read(n * dtype.itemsize)
            except OSError as error:
                raise storage_error(self._path, error) from error
            if len(data) < n * dtype.itemsize:
                raise DataQualityError(f"{self._path}: got shorter while it was read", hint="import it again")
            yield np.frombuffer(data, dtype)
            left -= n

    def _here(self, chunk: NDArray[Any]) -> NDArray[np.bool_]:
        here: NDArray[np.bool_] = chunk["voltage"] != MISSING_VOLTAGE
        if self._marked:
            here &= chunk[self._channel] != MISSING_CURRENT
        return here

    def _block(self, rows: NDArray[Any], index: int, lost: int) -> SampleBlock:
        ticks = np.arange(index, index + len(rows))
        raw = rows[self._channel].astype(np.int64)
        if self._header.version == 4:
            raw = (raw & ~1) * np.where(raw & 1, COARSE, 1)
        volts = (rows["voltage"] & ~np.uint16(3)) * self.volt_step
        if self._constant_v is not None:
            volts = np.full(len(rows), self._constant_v)
        return SampleBlock(
            t_ns=np.rint(ticks * (1e9 / self._header.rate_hz)).astype(np.int64),
            ticks=ticks,
            current_a=raw * 1e-6,
            voltage_v=volts,
            first_index=index,
            dropped_before=lost,
        )

    def _initial_voltage(self) -> float:
        volts = float(self._header.number("H", _INITIAL_VOLTAGE_AT[self._channel]) * self.volt_step)
        if volts <= 0:
            raise DataQualityError(
                f"{self._path}: no voltage of channel {self._channel!r}",
                hint="without volts there are no joules: take the channel whose voltage was sampled",
            )
        return volts

    def _marks_missing(self) -> bool:
        """Whether a current of -32767 uA at a valid voltage is a missing sample (`.pt5`)."""
        by_voltage = by_either = 0
        for chunk in self._chunks():
            no_voltage = chunk["voltage"] == MISSING_VOLTAGE
            by_voltage += int(np.count_nonzero(no_voltage))
            by_either += int(np.count_nonzero(no_voltage | (chunk[self._channel] == MISSING_CURRENT)))
        missing = self._header.number("Q", 168)
        if by_either != by_voltage and missing not in (by_either, by_voltage):
            raise DataQualityError(
                f"{self._path}: {by_either - by_voltage} samples of -32.767 mA are real or missing, and the"
                f" header's count of {missing} missing samples fits neither",
                hint="export it from PowerTool as CSV and import that",
            )
        return bool(missing == by_either)

    def _infer_volt_step(self) -> float:
        """The step of voltage (`.pt5`) with which the first samples agree with the output voltage set."""
        voltage = next(self._chunks())["voltage"]
        valid = voltage[voltage != MISSING_VOLTAGE][: self._header.rate_hz]
        raw = float(np.median(valid & ~np.uint16(3))) if len(valid) else 0.0
        vout = float(self._header.number("f", 64))
        fits = [s for s in PT5_VOLT_STEPS if abs(raw * s - vout) <= PT5_VOLT_TOLERANCE * vout]
        if len(fits) != 1 or self._header.voltage_channel != "main":
            raise DataQualityError(
                f"{self._path}: the scale of its voltages is not known: with steps of 125, 250 or 500 uV they"
                f" begin with {', '.join(f'{raw * s:.3g}' for s in PT5_VOLT_STEPS)} V,"
                f" the output was set to {vout:g} V",
                hint="export it from PowerTool as CSV and import that",
            )
        return fits[0]
