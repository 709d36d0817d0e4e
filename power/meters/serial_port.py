"""Serial ports of instruments: exclusive, with typed errors, read in portions at little CPU cost."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import serial

from joulefleet.errors import MeterBusy, MeterDisconnected, MeterError, MeterNotFound, MeterSilent
from power.wire.hvpm_control import EMULATED_MAKER

POLL_S = 0.004
"""How often the port is looked at. Waking for every byte would cost a core; in 4 ms an LVPM sends 180."""

WRITE_TIMEOUT_S = 1.0

_SHARED_LOCKS = {"monsoon-lvpm": "monsoon"}
"""Kinds with a lock file that other clients honour too: ``/tmp/<prefix>.<uname>.<port>``."""

_HARDWARE_NAME = re.compile(r"tty(ACM|USB|AMA|S)\d+")
_SYSFS_TTY = Path("/sys/class/tty")


@dataclass(frozen=True, slots=True)
class PortInfo:
    """A serial port that exists; numbers and names are empty where the system does not know them."""

    path: str
    description: str
    vid: int | None
    pid: int | None
    serial: str


class SerialPort:
    """An open serial port that no one else may use meanwhile.

    Args:
        path: Device file, e.g. ``/dev/ttyACM0``.
        baud: Bits per second; without meaning on USB (CDC-ACM) ports.
        kind: The meter it belongs to, for messages and for the lock file shared with other clients.

    Raises:
        MeterNotFound: No such port, not a serial port, or no permission.
        MeterBusy: Another process has it.
    """

    def __init__(self, path: str, *, baud: int = 9600, kind: str) -> None:
        self._path = path
        self._kind = kind
        prefix = _SHARED_LOCKS.get(kind)
        # Before the port itself: opening it would flush bytes that its present user waits for.
        self._lock = _LockFile(prefix, path, kind) if prefix else None
        try:
            self._serial = serial.Serial(
                path, baudrate=baud, timeout=0, write_timeout=WRITE_TIMEOUT_S, exclusive=True
            )
        except Exception as error:  # besides OSError, pyserial lets ValueError and termios.error through
            self._release_lock()
            raise open_error(kind, path, error) from error

    @property
    def path(self) -> str:
        """The device file."""
        return self._path

    def read_available(self, timeout_s: float = 0.2) -> bytes:
        """What has arrived; waits for the first byte, ``b""`` after the timeout.

        Raises:
            MeterDisconnected: The port went away.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            # Before looking: what came while this process had no processor is there, and not too late.
            left_s = deadline - time.monotonic()
            try:
                waiting = self._serial.in_waiting
                if waiting:
                    return bytes(self._serial.read(waiting))
            except (OSError, TypeError) as error:  # TypeError: pyserial on a port closed meanwhile
                raise self._gone(error) from error
            if left_s <= 0:
                return b""
            time.sleep(min(POLL_S, left_s))

    def reads(self, timeout_s: float) -> Iterator[bytes]:
        """What arrives within so long, portion by portion; the last look is behind the end, as above.

        Raises:
            MeterDisconnected: The port went away.
        """
        deadline = time.monotonic() + timeout_s
        left_s = timeout_s
        while left_s > 0:
            left_s = deadline - time.monotonic()
            yield self.read_available(max(0.0, left_s))

    def write(self, data: bytes) -> None:
        """Send bytes.

        Raises:
            MeterDisconnected: The port went away.
            MeterSilent: The instrument does not take them.
        """
        try:
            self._serial.write(data)
        except serial.SerialTimeoutException as error:
            raise MeterSilent(
                f"{self._kind} on {self._path}: takes no commands", hint="power-cycle the instrument"
            ) from error
        except (OSError, TypeError) as error:
            raise self._gone(error) from error

    def drain_input(self, *, quiet_s: float = 0.05, limit_s: float = 1.0) -> None:
        """Throw away what arrives until nothing has come for ``quiet_s``, or for ``limit_s`` at most."""
        deadline = time.monotonic() + limit_s
        while self.read_available(quiet_s) and time.monotonic() < deadline:
            pass

    def close(self) -> None:
        """Release the port; sends nothing. May be called twice."""
        with contextlib.suppress(OSError):
            self._serial.close()
        self._release_lock()

    def _release_lock(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def _gone(self, error: Exception) -> MeterDisconnected:
        return MeterDisconnected(
            f"{self._kind} on {self._path}: the port went away ({error})",
            hint="check the cable and the instrument's power, then start again",
        )


def open_error(kind: str, path: str, error: Exception) -> MeterError:
    """The typed error for a port that did not open."""
    code = getattr(error, "errno", None)
    where = f"{kind}: {path}"
    if code in (errno.EBUSY, errno.EAGAIN):
        return MeterBusy(f"{where} is in use by another process", hint=f"find it with `fuser {path}`")
    if code in (errno.EACCES, errno.EPERM):
        return MeterNotFound(
            f"{where}: no permission",
            hint="add yourself to the group that owns it (`sudo usermod -aG dialout $USER`, then log in"
            ' again) or add a udev rule with MODE="0666"',
        )
    if code in (errno.ENOENT, errno.ENODEV, errno.ENXIO):
        return MeterNotFound(
            f"{where}: no such port", hint="is it plugged in and powered? `joulefleet meter scan` lists ports"
        )
    return MeterNotFound(f"{where} is not a usable serial port ({error})", hint="`joulefleet meter scan`")


class _LockFile:
    """The lock file that Monsoon clients share; the file stays, as theirs do, only the lock goes."""

    _held: ClassVar[set[Path]] = set()  # POSIX locks do not exclude each other within one process
    _guard = threading.Lock()

    def __init__(self, prefix: str, port: str, kind: str) -> None:
        self._fd = -1
        if sys.platform == "win32":
            return
        import fcntl

        name = f"{prefix}.{os.uname().sysname}.{Path(port).resolve().name}"
        self._path = Path("/tmp") / name  # noqa: S108 - the place is the protocol
        busy = MeterBusy(
            f"{kind}: {port} is in use by another process",
            hint=f"find it with `fuser {self._path}` or `fuser {port}`",
        )
        with self._guard:
            if self._path in self._held:
                raise busy
            fd = _open_lock_file(self._path)
            try:
                # The clients differ in the call they use, and the two kinds of lock do not see each other.
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(fd)
                raise busy from error
            self._fd = fd
            self._held.add(self._path)

    def release(self) -> None:
        with self._guard:
            if self._fd >= 0:
                os.close(self._fd)
                self._held.discard(self._path)
            self._fd = -1


def _open_lock_file(path: Path) -> int:
    """Open or create it, open to all users, without following a link somebody may have planted."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with contextlib.suppress(FileNotFoundError):
            # Without O_CREAT, which the kernel refuses on another user's file (fs.protected_regular).
            return os.open(path, flags)
        fd = os.open(path, flags | os.O_CREAT, 0o666)
    except OSError as error:
        raise MeterBusy(
            f"{path}: the lock file shared by Monsoon clients cannot be opened ({error.strerror})",
            hint="if no other client runs, remove it",
        ) from error
    with contextlib.suppress(OSError):
        os.fchmod(fd, 0o666)  # the umask must not lock other users out
    return fd


def is_real_serial(path: str) -> bool:
    """Whether a path is a serial port of hardware, and not a pty, socket or file that imitates one.

    An emulated instrument that is attached as a USB device has a port like any other; it says on USB what it
    is.
    """
    if sys.platform == "win32":
        return re.fullmatch(r"(\\\\\.\\)?COM\d+", path, re.IGNORECASE) is not None
    real = Path(path).resolve()
    try:
        status = real.stat()
    except OSError:
        return False
    if not stat.S_ISCHR(status.st_mode):
        return False
    if sys.platform == "darwin":
        return real.name.startswith(("cu.", "tty.usb"))
    number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    if _HARDWARE_NAME.fullmatch(real.name) is None or _kernel_number(real.name) != number:
        return False
    return usb_maker(_SYSFS_TTY / real.name) != EMULATED_MAKER


def _kernel_number(name: str) -> str:
    """``major:minor`` of the driver's port with this name; a device file can be named anything."""
    try:
        return (_SYSFS_TTY / name / "dev").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def usb_maker(port: Path) -> str:
    """What the USB device of a port in ``/sys/class/tty`` calls its maker; empty if it is on no USB."""
    # Its interface is the device (ttyACM), or what the interface's driver made of it (ttyUSB).
    for folder in list((port / "device").resolve().parents)[:2]:
        with contextlib.suppress(OSError):
            return (folder / "manufacturer").read_text(encoding="utf-8", errors="replace").strip()
    return ""


def scan_ports() -> list[PortInfo]:
    """The serial ports of this machine."""
    from serial.tools import list_ports

    return [
        PortInfo(port.device, port.description or "", port.vid, port.pid, port.serial_number or "")
        for port in sorted(list_ports.comports(), key=lambda port: port.device)
    ]
