"""What a Linux device tells about itself: one function per kernel interface, each refusing with OSError.

Phones hide much of it from apps, and every board lacks something else. A source that cannot be opened is
missing, with the reason; a value that cannot be read at the moment is None.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Callable, Optional

from device_agents.payload.recording.kernel_files import KernelFile, find, text

if TYPE_CHECKING:
    from pathlib import Path

Values = list[Optional[float]]
Sample = dict[str, Values]


class TelemetrySource:
    """One kernel interface.

    Attributes:
        columns: The quantities it gives, each with the names of its parts (cores, zones, interfaces).
    """

    def __init__(
        self, files: list[KernelFile], columns: dict[str, list[str]], read: Callable[[], Sample]
    ) -> None:
        self._files = files
        self.columns = columns
        self._read = read

    def sample(self) -> Sample:
        """One reading of every column; None for what cannot be read now."""
        try:
            return self._read()
        except (OSError, ValueError, IndexError):
            return {name: [None] * len(parts) for name, parts in self.columns.items()}

    def close(self) -> None:
        """Release the files."""
        for file in self._files:
            file.close()


def discover(root: Path) -> tuple[list[TelemetrySource], dict[str, str]]:
    """All sources that can be read below ``root`` (``/`` on a device), and why the others cannot."""
    sources, missing = [], {}
    for name, open_source in _INTERFACES.items():
        try:
            sources.append(open_source(root))
        except (OSError, ValueError, IndexError) as error:  # noqa: PERF203 - a dozen turns, once
            reason = error.strerror if isinstance(error, OSError) else None
            missing[name] = (reason or str(error) or type(error).__name__)[:100]
    return sources, missing


def _numbers(name: str, files: dict[str, Path], unit: float = 1.0, base: int = 10) -> TelemetrySource:
    """One number per file, times ``unit``; files that cannot be opened are left out."""
    opened: dict[str, KernelFile] = {}
    refusal: OSError = FileNotFoundError(2, "not on this device")
    for part, path in files.items():
        try:
            opened[part] = KernelFile(path)
        except OSError as error:  # noqa: PERF203 - a few turns, once
            refusal = error
    if not opened:
        raise refusal

    def one(file: KernelFile) -> float | None:
        try:
            return round(file.number(base) * unit, 6)
        except (OSError, ValueError):
            return None

    files_read = list(opened.values())
    return TelemetrySource(
        files_read, {name: list(opened)}, lambda: {name: [one(file) for file in files_read]}
    )


def _named(paths: list[Path], name_file: str) -> dict[str, Path]:
    """Paths by what their folder calls itself; a name that comes again gets a number."""
    named: dict[str, Path] = {}
    for path in paths:
        name = text(path.parent / name_file) or path.parent.name
        named[name if name not in named else f"{name}#{len(named)}"] = path
    return named


def _cpu_frequency(root: Path) -> TelemetrySource:
    files = find(root / "sys/devices/system/cpu", "cpu[0-9]*/cpufreq/scaling_cur_freq")
    return _numbers("cpu_freq_hz", {path.parents[1].name: path for path in files}, 1e3)


def _cpu_time(root: Path) -> TelemetrySource:
    """Busy and idle seconds of each core since boot; idle is the 4th column, waiting for a disk the 5th."""
    file = KernelFile(root / "proc/stat")
    tick_s = 1 / os.sysconf("SC_CLK_TCK")

    def rows() -> list[list[bytes]]:
        lines = file.read(65_536).split(b"\n")
        return [line.split() for line in lines if line.startswith(b"cpu") and line[3:4].isdigit()]

    names = [row[0].decode() for row in rows()]
    if not names:
        raise ValueError("no cores listed")

    def read() -> Sample:
        times = {row[0].decode(): [int(n) for n in row[1:9]] for row in rows()}
        found = [times.get(name) for name in names]  # a core that was taken offline has no line
        idle = [None if t is None else round((t[3] + t[4]) * tick_s, 2) for t in found]
        busy = [None if t is None else round((sum(t) - t[3] - t[4]) * tick_s, 2) for t in found]
        return {"cpu_busy_s": busy, "cpu_idle_s": idle}

    return TelemetrySource([file], {"cpu_busy_s": names, "cpu_idle_s": names}, read)


def _load(root: Path) -> TelemetrySource:
    file = KernelFile(root / "proc/loadavg")
    return TelemetrySource(
        [file], {"load_1min": ["all"]}, lambda: {"load_1min": [float(file.read().split()[0])]}
    )


def _temperature(root: Path) -> TelemetrySource:
    files = find(root / "sys/class/thermal", "thermal_zone*/temp")
    return _numbers("temperature_c", _named(files, "type"), 1e-3)


def _cooling(root: Path) -> TelemetrySource:
    """What the kernel does against heat: above zero, cores are slowed down. Fans are cooling devices too."""
    files = _named(find(root / "sys/class/thermal", "cooling_device*/cur_state"), "type")
    slowing = {name: path for name, path in files.items() if "cpu" in name or name.startswith("Processor")}
    return _numbers("cpu_cooling_state", slowing)


def _throttle_count(root: Path) -> TelemetrySource:
    """How often each core was throttled since boot (x86)."""
    files = find(root / "sys/devices/system/cpu", "cpu[0-9]*/thermal_throttle/core_throttle_count")
    return _numbers("throttle_count", {path.parents[1].name: path for path in files})


def _throttle_flags(root: Path) -> TelemetrySource:
    """Raspberry Pi firmware: bit 0 under-voltage, 1 capped, 2 throttled, 3 soft limit; 16-19 since boot."""
    path = root / "sys/devices/platform/soc/soc:firmware/get_throttled"
    return _numbers("throttle_flags", {"firmware": path}, base=16)


def _memory(root: Path) -> TelemetrySource:
    file = KernelFile(root / "proc/meminfo")

    def read() -> Sample:
        fields = dict(line.split(b":", 1) for line in file.read().split(b"\n") if b":" in line)
        return {"memory_available_bytes": [int(fields[b"MemAvailable"].split()[0]) * 1024]}

    try:
        read()
    except KeyError:
        raise ValueError("no MemAvailable in /proc/meminfo") from None
    return TelemetrySource([file], {"memory_available_bytes": ["all"]}, read)


def _batteries(root: Path) -> list[Path]:
    supplies = find(root / "sys/class/power_supply", "*")
    return [path for path in supplies if text(path / "type") == "Battery"]


def _battery_level(root: Path) -> TelemetrySource:
    files = {path.name: path / "capacity" for path in _batteries(root)}
    return _numbers("battery_level", files, 1e-2)


def _battery_temperature(root: Path) -> TelemetrySource:
    files = {path.name: path / "temp" for path in _batteries(root)}
    return _numbers("battery_temperature_c", files, 0.1)  # tenths of a degree


def _network(root: Path) -> TelemetrySource:
    """Bytes received and sent since boot; the loopback interface is not a network."""
    file = KernelFile(root / "proc/net/dev")

    def rows() -> dict[str, list[bytes]]:
        lines = (line.split(b":", 1) for line in file.read(65_536).split(b"\n") if b":" in line)
        return {name.strip().decode(): values.split() for name, values in lines}

    names = [name for name in rows() if name != "lo"]
    if not names:
        raise ValueError("no interface but the loopback")

    def read() -> Sample:
        now = rows()
        return {
            "received_bytes": [int(now[name][0]) if name in now else None for name in names],
            "sent_bytes": [int(now[name][8]) if name in now else None for name in names],
        }

    return TelemetrySource([file], {"received_bytes": names, "sent_bytes": names}, read)


_INTERFACES: dict[str, Callable[[Path], TelemetrySource]] = {
    "cpu frequency": _cpu_frequency,
    "cpu time": _cpu_time,
    "load": _load,
    "temperature": _temperature,
    "cpu cooling": _cooling,
    "throttle count": _throttle_count,
    "throttle flags": _throttle_flags,
    "memory": _memory,
    "battery level": _battery_level,
    "battery temperature": _battery_temperature,
    "network": _network,
}
