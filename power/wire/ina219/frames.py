"""The framed serial protocol between our INA219 sketch and the host, version 1.

Every line from the microcontroller ends in ``*CCCC`` and a newline; CCCC is the `crc16` of everything before
the star, in upper-case hexadecimal::

    #H{json}*CCCC                              who I am; at boot, on ?H, and first of all on !R
    D,seq,t_us,shunt_raw,bus_raw,flags*CCCC    one conversion; flags in hexadecimal, the rest in decimal
    P,nonce,t_rx_us,t_tx_us*CCCC               answer to ?P nonce
    E,overruns,i2c_errors,resets,late*CCCC     counters of the run; on ?E and once a second while running

    ?H  ?P nonce  ?E  !R (run)  !S (stop)      commands, each ended by a newline

It boots stopped. ``!R`` numbers the run and sends the header, then conversions from ``seq`` 0; so whatever
is stored from there on explains itself. ``seq`` (u32) counts conversions including those that were missed or
could not be sent, so ``seq x period_us`` follows ``t_us`` (u32, wraps after 71.6 minutes).
"""

from __future__ import annotations

import json
import re
from binascii import crc_hqx
from dataclasses import dataclass
from enum import IntFlag
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from joulefleet.config import sentence
from power.wire.ina219.registers import Config

if TYPE_CHECKING:
    from numpy.typing import NDArray

PROTOCOL = "joulefleet-ina219"
VERSION = 1
EMULATED_FIRMWARE = "emulated"
"""What our emulator gives as its firmware, so that it is known on whatever port it is."""

COLUMNS = "seq,t_us,shunt_raw,bus_raw,flags"
MAX_LINE = 512
"""Longest line without its newline; a header needs about 300 bytes. More is noise."""

RUN = b"!R\n"
STOP = b"!S\n"
ASK_HEADER = b"?H\n"
ASK_COUNTERS = b"?E\n"


class Flags(IntFlag):
    """The flags of a data line."""

    OVF = 0x01  # math overflow in the chip; harmless here, the host does the maths
    CNVR = 0x02  # a new conversion; without it the reading repeats the last one
    I2C_ERROR = 0x04  # the chip did not answer: no reading
    CAL_LOST = 0x08  # the chip had lost its registers: the reading is from an unknown moment
    SYNC = 0x10  # level of the GPIO input
    RESET = 0x20  # the chip was set up again before this reading
    OVERRUN = 0x40  # lines before this one did not fit into the serial buffer


class Header(BaseModel):
    """What ``#H`` says. Unknown keys are let through: a later sketch may add some within the version.

    Attributes:
        proto: Name of the protocol. Before the hyphen may stand an earlier name of this project: old
            recordings and boards can still be read.
        ver: Version of the protocol.
        fw: Version of the sketch.
        uid: Serial number of the board.
        grade: Accuracy grade of the chip, ``A`` or ``B``; it cannot be read, the builder sets it.
        addr: I2C address.
        rshunt_uohm: Shunt resistance, micro-ohms.
        rshunt_tol_ppm: Its tolerance, parts per million.
        config: Configuration register.
        cal: Calibration register.
        period_us: Nominal time between conversions.
        clock_hz: Rate of ``t_us``.
        columns: Columns of a data line.
        run: Number of the run since boot, 0 before the first.
        t_us: The clock when the header was made; for a run, when it began.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    proto: str = Field(pattern=r"^[a-z]+-ina219$")
    ver: Literal[1]
    fw: str = Field(max_length=32)
    uid: str = Field(max_length=32)
    chip: Literal["INA219"]
    grade: Literal["A", "B"]
    addr: int = Field(ge=0x40, le=0x4F)
    rshunt_uohm: int = Field(gt=0, le=100_000_000)
    rshunt_tol_ppm: int = Field(ge=0, le=1_000_000)
    config: int = Field(ge=0, le=0xFFFF)
    cal: int = Field(ge=0, le=0xFFFF)
    period_us: int = Field(gt=0, le=10_000_000)
    clock_hz: Literal[1_000_000]
    columns: Literal["seq,t_us,shunt_raw,bus_raw,flags"]
    run: int = Field(ge=0, le=0xFFFFFFFF)
    t_us: int = Field(ge=0, le=0xFFFFFFFF)

    @property
    def shunt_ohm(self) -> float:
        """Shunt resistance in ohms."""
        return self.rshunt_uohm / 1e6

    @property
    def settings(self) -> Config:
        """The configuration register, taken apart."""
        return Config.from_word(self.config)


class Conversion(NamedTuple):
    """A data line: number and time (u32), shunt (signed) and bus register, `Flags`."""

    seq: int
    t_us: int
    shunt_raw: int
    bus_raw: int
    flags: int


@dataclass(frozen=True, slots=True)
class PongLine:
    """Answer to a ping: the microcontroller's clock when the question came and when the answer left."""

    nonce: int
    t_rx_us: int
    t_tx_us: int


@dataclass(frozen=True, slots=True)
class Counters:
    """What went wrong in the microcontroller since the run began.

    Attributes:
        overruns: Lines that did not fit into the serial buffer.
        i2c_errors: Readings that the chip did not answer.
        resets: Times the chip had lost its registers.
        late: Conversions that went by unread.
    """

    overruns: int
    i2c_errors: int
    resets: int
    late: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A line that is not a valid frame, and why, as the code of a finding."""

    code: Literal["bad_checksum", "malformed_line", "bad_header"]
    reason: str


_CONVERSION = re.compile(
    rb"^(D,(\d{1,10}),(\d{1,10}),(-?\d{1,5}),(\d{1,5}),([0-9A-F]{1,2}))\*([0-9A-F]{4})\r?$", re.MULTILINE
)
_LOWEST = (0, 0, -0x8000, 0, 0)
_HIGHEST = (0xFFFFFFFF, 0xFFFFFFFF, 0x7FFF, 0xFFFF, 0xFF)
_SEALED = re.compile(rb"(.*)\*([0-9A-F]{4})\r?", re.DOTALL)
_PONG = re.compile(rb"P,(\d{1,10}),(\d{1,10}),(\d{1,10})")
_COUNTERS = re.compile(rb"E,(\d{1,10}),(\d{1,10}),(\d{1,10}),(\d{1,10})")


def crc16(data: bytes) -> int:
    """CRC-16/CCITT-FALSE: polynomial 0x1021, initial value 0xFFFF; ``123456789`` gives 0x29B1.

    Nothing is reflected and nothing XORed at the end (CRC RevEng catalogue: CRC-16/IBM-3740). It finds
    every burst of up to 16 bits and every odd number of flipped bits.
    """
    return crc_hqx(data, 0xFFFF)


def seal(body: bytes) -> bytes:
    """A line ready to send: body, star, CRC, newline."""
    return b"%s*%04X\n" % (body, crc16(body))


def data_line(seq: int, t_us: int, shunt_raw: int, bus_raw: int, flags: int) -> bytes:
    """One conversion."""
    return seal(b"D,%d,%d,%d,%d,%X" % (seq, t_us, shunt_raw, bus_raw, flags))


def header_line(header: Header) -> bytes:
    """Who I am."""
    return seal(b"#H" + json.dumps(header.model_dump(), separators=(",", ":")).encode())


def pong_line(pong: PongLine) -> bytes:
    """Answer to a ping."""
    return seal(b"P,%d,%d,%d" % (pong.nonce, pong.t_rx_us, pong.t_tx_us))


def counters_line(counters: Counters) -> bytes:
    """The counters."""
    return seal(b"E,%d,%d,%d,%d" % (counters.overruns, counters.i2c_errors, counters.resets, counters.late))


def ping(nonce: int) -> bytes:
    """The command that asks for the clock."""
    return b"?P %d\n" % nonce


def parse_conversions(lines: bytes) -> NDArray[np.int64] | None:
    """Read many lines at once, one row of `Conversion` each; None unless every line is a good data line."""
    found = _CONVERSION.findall(lines)
    if len(found) != lines.count(b"\n"):
        return None
    if not all(crc_hqx(row[0], 0xFFFF) == int(row[6], 16) for row in found):
        return None
    rows = np.array(
        [
            (int(seq), int(t_us), int(shunt), int(bus), int(flags, 16))
            for _, seq, t_us, shunt, bus, flags, _ in found
        ],
        np.int64,
    )
    return rows if ((rows >= np.array(_LOWEST)) & (rows <= np.array(_HIGHEST))).all() else None


def parse_line(line: bytes) -> Conversion | Header | PongLine | Counters | Refused:
    """Read one line, without its newline."""
    match = _CONVERSION.fullmatch(line)
    if match is None or crc16(match[1]) != int(match[7], 16):
        return _parse_other(line)
    frame = Conversion(int(match[2]), int(match[3]), int(match[4]), int(match[5]), int(match[6], 16))
    if any(not low <= value <= high for low, value, high in zip(_LOWEST, frame, _HIGHEST, strict=True)):
        return Refused("malformed_line", "a number is out of its range")
    return frame


def _parse_other(line: bytes) -> Header | PongLine | Counters | Refused:
    sealed = _SEALED.fullmatch(line)
    if sealed is None:
        return Refused("malformed_line", "no checksum at its end")
    body, checksum = sealed[1], sealed[2]
    if crc16(body) != int(checksum, 16):
        return Refused("bad_checksum", "checksum does not match")
    if body.startswith(b"#H"):
        return _parse_header(body[2:])
    if match := _PONG.fullmatch(body):
        return PongLine(*(int(value) for value in match.groups()))
    if match := _COUNTERS.fullmatch(body):
        return Counters(*(int(value) for value in match.groups()))
    return Refused("malformed_line", "a kind of line this version does not know")


def _parse_header(text: bytes) -> Header | Refused:
    try:
        return Header.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "json"
        return Refused("bad_header", f"header: {where}: {sentence(first)}, got {first['input']!r:.60}")
