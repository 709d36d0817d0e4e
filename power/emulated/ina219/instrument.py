"""An emulated INA219 with its microcontroller, on a pty.

It speaks the framed protocol of `power.wire.ina219.frames`; with ``variant`` set to one of the names in
`power.wire.ina219.csv_rows.CsvFormat` it prints that loose format instead, without being asked.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from joulefleet.errors import ConfigError
from power.emulated.faults import Fault, FaultKind, FaultPlan, parse_faults
from power.emulated.ina219.board import (
    CALIBRATION,
    FREE_RUNNING_HZ,
    RATE_HZ,
    SHUNT_OHM,
    ChipReading,
    EmulatedBoard,
    config_for_rate,
    loose_lines,
)
from power.emulated.options import EmulatorOptions
from power.emulated.pty_port import PtyPort
from power.emulated.service import Emulator
from power.emulated.signals import TruthLog
from power.wire.ina219.csv_rows import CsvFormat, known_formats
from power.wire.ina219.frames import (
    ASK_COUNTERS,
    ASK_HEADER,
    COLUMNS,
    EMULATED_FIRMWARE,
    PROTOCOL,
    RUN,
    STOP,
    VERSION,
    Counters,
    Header,
    PongLine,
    counters_line,
    data_line,
    header_line,
    pong_line,
)
from power.wire.ina219.registers import POWER_ON_CONFIG, Config

DEFAULT_SERIAL = "EMULATED"
COUNTERS_PERIOD_NS = 1_000_000_000

_LINE_FAULTS = (FaultKind.BAD_CHECKSUM, FaultKind.TRUNCATED_FRAME, FaultKind.LOST_PACKETS)
_FAULTS = {*_LINE_FAULTS, FaultKind.STALL, FaultKind.DISCONNECT, FaultKind.CHIP_RESET}


class EmulatedIna219(Emulator):
    """See the module's text.

    Args:
        options: What it measures and what goes wrong.
        clock_start_us: What the microcontroller's clock shows at boot; it wraps at 2^32.
    """

    def __init__(self, options: EmulatorOptions, *, clock_start_us: int = 0) -> None:
        self._options = options
        self._format = _parse_variant(options.variant)
        self._faults = FaultPlan(parse_faults("an INA219", options.faults, _FAULTS))
        self._truth = TruthLog(options.truth) if options.truth is not None else None
        boot_ns = time.monotonic_ns()
        self._board = EmulatedBoard(
            options.build_signal(),
            config_for_rate(options.rate_hz) if self._format is None else Config.from_word(POWER_ON_CONFIG),
            boot_ns,
            skew_ppm=options.skew_ppm,
            clock_start_us=clock_start_us,
            truth=self._truth,
            misread=options.misread,
        )
        self._board.set_up(boot_ns)
        self._port = PtyPort()
        self._commands = b""
        # Sketches print from boot on, but chenguangshen's, which waits for any byte.
        waits = self._format in (None, CsvFormat.MILLIS_LOAD)
        self._run_ns: int | None = None if waits else boot_ns
        self._run = 0
        self._seq = 0
        self._silent_until_ns = 0
        self._counters_ns = 0
        self._samples = self._lost = self._damaged = self._resets = self._resets_before = 0

    @property
    def address(self) -> str:
        """The pty to connect to."""
        return self._port.path

    @property
    def statistics(self) -> dict[str, int]:
        """Readings taken, of these not sent or sent damaged, chip resets, bytes the client left lying."""
        return {
            "samples": self._samples,
            "lost": self._lost,
            "damaged": self._damaged,
            "resets": self._resets,
            "discarded_bytes": self._port.discarded_bytes,
        }

    def close(self) -> None:
        """Pull the cable."""
        self._port.close()
        if self._truth is not None:
            self._truth.close()

    def step(self, now_ns: int) -> None:
        """Answer commands and send what is due."""
        if not self._port.is_open:
            return
        for command in self._new_commands():
            self._answer(command, now_ns)
        if self._run_ns is None:
            return
        out = bytearray()
        for reading in self._readings(self._run_ns, now_ns):
            due = self._faults.due((reading.t_ns - self._run_ns) * 1e-9)
            for fault in due:
                self._start(fault, reading.t_ns)
            if any(fault.kind is FaultKind.DISCONNECT for fault in due):
                self._port.write(bytes(out))
                self._port.close()
                return
            out += self._line(reading)
        if out:
            self._port.write(bytes(out))

    def _new_commands(self) -> list[bytes]:
        received = self._commands + self._port.read()
        *whole, self._commands = received.split(b"\n")
        self._commands = self._commands[-64:]
        return [line + b"\n" for line in whole]

    def _answer(self, command: bytes, now_ns: int) -> None:
        if self._format is not None:
            self._run_ns = self._run_ns or now_ns
            return
        clock_us = self._board.clock_us(now_ns)
        if command == ASK_HEADER:
            self._port.write(header_line(self._header(clock_us)))
        elif command == ASK_COUNTERS:
            self._port.write(counters_line(self._counters()))
        elif command.startswith(b"?P ") and command[3:-1].isdigit():
            self._port.write(pong_line(PongLine(int(command[3:-1]), clock_us, clock_us)))
        elif command == STOP:
            self._run_ns = None
        elif command == RUN:
            self._run, self._seq, self._run_ns, self._counters_ns = self._run + 1, 0, now_ns, now_ns
            self._resets_before = self._resets
            self._board.set_up(now_ns)
            self._port.write(header_line(self._header(clock_us)))

    def _header(self, clock_us: int) -> Header:
        return Header(
            proto=PROTOCOL,
            ver=VERSION,
            fw=EMULATED_FIRMWARE,
            uid=self._options.serial or DEFAULT_SERIAL,
            chip="INA219",
            grade="A",
            addr=0x40,
            rshunt_uohm=round(SHUNT_OHM * 1e6),
            rshunt_tol_ppm=10_000,
            config=self._board.config.word(),
            cal=CALIBRATION,
            period_us=self._board.config.pair_us,
            clock_hz=1_000_000,
            columns=COLUMNS,
            run=self._run,
            t_us=clock_us,
        )

    def _counters(self) -> Counters:
        return Counters(overruns=0, i2c_errors=0, resets=self._resets - self._resets_before, late=0)

    def _readings(self, run_ns: int, now_ns: int) -> Iterator[ChipReading]:
        """Every reading due by now: each conversion once, or for a sketch at its own pace."""
        while True:
            if self._format is None:
                t_ns = self._board.next_ready_ns()
            else:
                rate_hz = self._options.rate_hz or RATE_HZ.get(self._format, FREE_RUNNING_HZ)
                t_ns = run_ns + round((self._seq + 1) * 1e9 / rate_hz)
            if t_ns > now_ns:
                return
            yield self._board.read(t_ns)
            self._seq += 1
            self._samples += 1

    def _line(self, reading: ChipReading) -> bytes:
        """A reading as bytes, damaged as the faults want it."""
        clock_us = self._board.clock_us(reading.t_ns)
        if self._format is not None:
            line = loose_lines(self._format, reading, clock_us // 1000)
        else:
            line = data_line(self._seq, clock_us, reading.shunt_raw, reading.bus_raw, reading.flags)
        if self._faults.hits(FaultKind.LOST_PACKETS) or reading.t_ns < self._silent_until_ns:
            self._lost += 1
            return b""
        if self._faults.hits(FaultKind.BAD_CHECKSUM):
            self._damaged += 1
            line = line[:2] + bytes([line[2] ^ 0x01]) + line[3:]
        if self._faults.hits(FaultKind.TRUNCATED_FRAME):
            self._damaged += 1
            line = line[: len(line) // 2]
        if self._format is None and reading.t_ns - self._counters_ns >= COUNTERS_PERIOD_NS:
            self._counters_ns = reading.t_ns
            line += counters_line(self._counters())
        return line

    def _start(self, fault: Fault, t_ns: int) -> None:
        if fault.kind in _LINE_FAULTS:
            self._faults.damage(fault.kind, int(fault.amount))
        elif fault.kind is FaultKind.STALL:
            self._silent_until_ns = t_ns + int(fault.amount * 1e9)
        elif fault.kind is FaultKind.CHIP_RESET:
            self._resets += 1
            self._board.reset_chip(t_ns)


def _parse_variant(variant: str) -> CsvFormat | None:
    if not variant:
        return None
    if variant not in list(CsvFormat):
        raise ConfigError(f"ina219 has no variant {variant!r}", hint=f"known: {known_formats()}")
    return CsvFormat(variant)
