"""Power sensors that the device has itself: INA chips on hwmon or IIO, powercap, power supplies.

Every sensor is described by what the kernel's interface promises: the unit of its integers, its resolution,
how often the chip refreshes them. None of them states an accuracy. A unit is no resolution: where nothing
says how large a step is, the resolution is unknown.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from device_agents.payload.recording.kernel_files import KernelFile, find, text

if TYPE_CHECKING:
    from pathlib import Path

# Steps of shunt and bus voltage from the data sheets (TI SBOS403 INA209, SBOS448 INA219, SBOS459 INA220,
# SBOS547 INA226, SBOS601 INA230, SBOS644 INA231, SBOS576 INA3221).
_STEPS_V = {
    **dict.fromkeys(("ina209", "ina219", "ina220"), (10e-6, 4e-3)),
    **dict.fromkeys(("ina226", "ina230", "ina231"), (2.5e-6, 1.25e-3)),
    "ina3221": (40e-6, 8e-3),
}
_HWMON_STEP = 1e-3  # the kernel rounds to mA and mV after that


@dataclass(frozen=True)
class Column:
    """One quantity of a sensor.

    Attributes:
        scale: Value of one unit of the raw integer, in SI.
        resolution: Smallest step that the value can make, in SI; None where nothing says so.
    """

    scale: float
    resolution: float | None = None


@dataclass(frozen=True)
class Sensor:
    """One power sensor.

    Attributes:
        name: Unique on the device.
        interface: ``hwmon``, ``iio``, ``powercap`` or ``power_supply``.
        columns: By name: ``current_a``, ``voltage_v``, ``power_w`` or ``energy_j`` (a counter).
        files: One per column.
        update_interval_s: How often the chip refreshes, where the driver says so.
        wrap_j: Where an energy counter starts again at zero.
    """

    name: str
    interface: str
    columns: dict[str, Column]
    files: tuple[KernelFile, ...] = field(repr=False)
    update_interval_s: float | None = None
    wrap_j: float | None = None

    def describe(self) -> dict[str, Any]:
        """For the journal."""
        return {
            "type": "power_source",
            "name": self.name,
            "interface": self.interface,
            "columns": {name: asdict(column) for name, column in self.columns.items()},
            "update_interval_s": self.update_interval_s,
            "wrap_j": self.wrap_j,
        }

    def close(self) -> None:
        """Release the descriptors."""
        for file in self.files:
            file.close()


def find_sensors(root: Path) -> list[Sensor]:
    """All sensors that can be read below ``root``; those that refuse are left out."""
    return _hwmon(root) + _iio(root) + _powercap(root) + _power_supplies(root)


def _sensor(name: str, interface: str, wanted: dict[str, tuple[Path, Column]], **more: Any) -> list[Sensor]:
    """A sensor of those files that can be read; none if there are none."""
    files, columns = [], {}
    for column, (path, facts) in wanted.items():
        try:
            files.append(KernelFile(path))
        except OSError:
            continue
        columns[column] = facts
    return [Sensor(name, interface, columns, tuple(files), **more)] if files else []


def _hwmon(root: Path) -> list[Sensor]:
    """INA chips. hwmon's units are mA, mV, µW and ms (Documentation/hwmon/sysfs-interface.rst)."""
    sensors = []
    for folder in find(root / "sys/class/hwmon", "hwmon*"):
        chip = text(folder / "name")
        if not chip.startswith("ina"):
            continue
        interval = text(folder / "update_interval")
        every_s = int(interval) * 1e-3 if interval.isdigit() and int(interval) else None
        for channel in (1, 2, 3):  # the INA3221 has three, the others one
            label = text(folder / f"in{channel}_label", str(channel))
            current = Column(1e-3, _hwmon_current_step_a(folder, chip, channel))
            wanted = {
                "current_a": (folder / f"curr{channel}_input", current),
                "voltage_v": (folder / f"in{channel}_input", Column(1e-3, _bus_step_v(chip))),
            }
            if not wanted["current_a"][0].exists():
                continue
            name = f"{folder.name}:{chip}:{label}"
            sensors += _sensor(name, "hwmon", wanted, update_interval_s=every_s)
    return sensors


def _hwmon_current_step_a(folder: Path, chip: str, channel: int) -> float | None:
    """The step of the shunt voltage over the shunt, which the driver knows in µΩ."""
    shunt = text(folder / (f"shunt{channel}_resistor" if chip == "ina3221" else "shunt_resistor"))
    if chip not in _STEPS_V or not shunt.isdigit() or not int(shunt):
        return None
    return max(_HWMON_STEP, _STEPS_V[chip][0] / (int(shunt) * 1e-6))


def _bus_step_v(chip: str) -> float | None:
    return max(_HWMON_STEP, _STEPS_V[chip][1]) if chip in _STEPS_V else None


def _iio(root: Path) -> list[Sensor]:
    """INA chips with the IIO driver ``ina2xx-adc``, where a kernel has that instead of hwmon's.

    Its integers are the chip's registers, and their scales are in mA and mV (sysfs-bus-iio): the scale of the
    current has the shunt in it. Voltage 0 is that of the shunt, 1 that of the bus.
    """
    sensors = []
    for folder in find(root / "sys/bus/iio/devices", "iio:device*"):
        chip = text(folder / "name")
        current, bus = _scale(folder / "in_current3_scale"), _scale(folder / "in_voltage1_scale")
        if not chip.startswith("ina") or current is None or bus is None:
            continue
        wanted = {
            "current_a": (folder / "in_current3_raw", Column(current * 1e-3, current * 1e-3)),
            "voltage_v": (folder / "in_voltage1_raw", Column(bus * 1e-3, bus * 1e-3)),
        }
        rate_hz = _scale(folder / "in_sampling_frequency")
        name = f"{folder.name}:{chip}"
        sensors += _sensor(name, "iio", wanted, update_interval_s=1 / rate_hz if rate_hz else None)
    return sensors


def _scale(path: Path) -> float | None:
    """A positive decimal number; None for anything else."""
    try:
        value = float(text(path))
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None


def _powercap(root: Path) -> list[Sensor]:
    """Energy counters in µJ (Documentation/power/powercap/powercap.rst); on most systems only for root."""
    sensors = []
    for path in find(root / "sys/class/powercap", "*/energy_uj"):
        zone = path.parent
        limit = text(zone / "max_energy_range_uj")
        sensors += _sensor(
            f"{zone.name}:{text(zone / 'name')}",
            "powercap",
            {"energy_j": (path, Column(1e-6))},
            wrap_j=int(limit) * 1e-6 if limit.isdigit() else None,
        )
    return sensors


def _power_supplies(root: Path) -> list[Sensor]:
    """Fuel gauges, in µA, µV and µW (Documentation/ABI/testing/sysfs-class-power).

    The sign of the current is the vendor's choice, and the value is a filtered one.
    """
    sensors = []
    for folder in find(root / "sys/class/power_supply", "*"):
        wanted = {
            "current_a": (folder / "current_now", Column(1e-6)),
            "voltage_v": (folder / "voltage_now", Column(1e-6)),
            "power_w": (folder / "power_now", Column(1e-6)),
        }
        sensors += _sensor(f"{folder.name}:{text(folder / 'type')}", "power_supply", wanted)
    return sensors
