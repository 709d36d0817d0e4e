"""A Monsoon LVPM at the other end of a serial port: how it is found, and asked one frame at a time."""

from __future__ import annotations

from joulefleet.errors import MeterError, MeterNotFound, MeterProtocolError
from power.meter import MeterConfig
from power.meters.serial_port import PortInfo, SerialPort, scan_ports
from power.wire import lvpm_frames as wire

KIND = "monsoon-lvpm"

STATUS_ATTEMPTS = 3
STATUS_TIMEOUT_S = 0.5

PORT_DESCRIPTION = "mobile device power monitor"
"""What the instrument calls itself on USB; Catapult finds it by this too."""


def open_unit(config: MeterConfig) -> tuple[SerialPort, wire.Status]:
    """Open the port that the configuration names or, failing that, the one with the right serial number."""
    if config.port:
        return _open_port(config.port, config.serial)
    paths = likely_ports(scan_ports())
    if len(paths) > 1 and not config.serial:
        raise MeterNotFound(
            f"{KIND}: several instruments, on {', '.join(paths)}", hint="give its port or its serial number"
        )
    problems = []
    for path in paths:
        try:
            return _open_port(path, config.serial)
        except MeterError as error:
            if len(paths) == 1:
                raise
            problems.append(error.message)
    raise MeterNotFound(
        f"{KIND}: none with serial number {config.serial}: {'; '.join(problems)}", hint="check the number"
    )


def likely_ports(ports: list[PortInfo]) -> list[str]:
    """The ports that call themselves a Monsoon. Others are not touched: a command may mean harm to them.

    Raises:
        MeterNotFound: There is none; says what there is.
    """
    found = [port.path for port in ports if port.description.lower().startswith(PORT_DESCRIPTION)]
    if not found:
        seen = ", ".join(f"{port.path} ({port.description})" for port in ports) or "no serial port at all"
        raise MeterNotFound(
            f"{KIND}: no port calls itself a {PORT_DESCRIPTION}; there is {seen}",
            hint="is it powered and connected at the back? If you know its port, give port",
        )
    return found


def _open_port(path: str, serial: str) -> tuple[SerialPort, wire.Status]:
    port = SerialPort(path, kind=KIND)
    try:
        stop(port)  # a client that died may have left it sampling
        status = command(port, wire.GET_STATUS, attempts=STATUS_ATTEMPTS)
        if serial and str(status.serial_number) != (serial.strip().lstrip("0") or "0"):
            raise MeterNotFound(
                f"{KIND}: the instrument on {path} has serial number {status.serial_number}, not {serial}",
                hint="correct serial or port in the configuration",
            )
        if not status.rate_hz:
            raise MeterProtocolError(f"{KIND} on {path}: reports a sample rate of 0")
    except BaseException:
        port.close()
        raise
    return port, status


def stop(port: SerialPort) -> None:
    """End a run, if there is one, and read to its answer, or the next command would get it.

    Firmware 20 does not know a stop 5.2 ms after a start, and answers nothing more until it gets another.
    """
    for attempt in range(STATUS_ATTEMPTS):
        port.write(wire.STOP)
        received = b""
        for data in port.reads(STATUS_TIMEOUT_S):
            received += data
            if wire.find_status(received, wire.StatusBit.STOPPED):
                if attempt:
                    port.drain_input()  # both may be answered
                return


def command(port: SerialPort, frame: bytes, *, attempts: int = 1) -> wire.Status:
    """Write one frame and wait for the status that answers it.

    Raises:
        MeterProtocolError: No answer comes.
    """
    for attempt in range(attempts):
        port.drain_input(quiet_s=0.0)
        port.write(frame)
        received = b""
        for data in port.reads(STATUS_TIMEOUT_S):
            received += data
            status = wire.find_status(received)
            if status is not None:
                if attempt:
                    port.drain_input()  # the same
                return status
    raise MeterProtocolError(
        f"{KIND} on {port.path}: no answer to the command {frame[1:-1].hex(' ')}",
        hint="is this its port, and is it switched on? One with USB firmware is kind monsoon-hvpm",
    )
