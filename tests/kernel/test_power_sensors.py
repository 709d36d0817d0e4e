"""The device's own power sampler on the kernel's INA drivers, with registers that the tests write (i2c-stub).

The chips are registers only, so nothing here is about their accuracy. What sysfs shows is kept in
``tests/data/ina_sysfs.json``, so that the sampler meets it everywhere (``tests/device_agents``); with
``JOULEFLEET_WRITE_SYSFS=1`` this test writes it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tests.kernel.guest import Guest
from tests.kernel.image import Image

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(2700)]

FACTS = REPOSITORY / "tests" / "data" / "ina_sysfs.json"
SAMPLER = "/opt/joulefleet/tests/kernel/sample_sensors.py"

# Registers of the data sheets. INA219: shunt in 10 uV, bus in 4 mV from bit 3 on, current by calibration
# 4096; INA226: 2.5 uV and 1.25 mV; INA3221: shunt in 40 uV and bus in 8 mV, both from bit 3 on, conversion
# ready in 0x0f.
WORD = "w() { i2cset -f -y 0 $1 $2 $(( ($3 & 255) << 8 | $3 >> 8 )) w; }; "
CHIPS = (
    "modprobe i2c-stub chip_addr=0x40,0x41,0x42; "
    + WORD
    + "w 0x40 1 5000; w 0x40 2 $((1250 << 3)); w 0x40 4 5000;"
    "w 0x41 1 20000; w 0x41 2 4000; w 0x41 4 20000;"
    "w 0x42 0 0x7127; w 0x42 1 $((1250 << 3)); w 0x42 2 $((625 << 3)); w 0x42 3 $((100 << 3));"
    "w 0x42 4 $((600 << 3)); w 0x42 5 0; w 0x42 6 $((412 << 3)); w 0x42 15 1"
)
NEW_VALUES = WORD + "w 0x40 4 5010; w 0x40 1 5010; w 0x41 4 20001; w 0x42 1 $((1251 << 3))"
OLD_VALUES = WORD + "w 0x40 4 5000; w 0x40 1 5000; w 0x41 4 20000; w 0x42 1 $((1250 << 3))"
DEVICES = "/sys/bus/i2c/devices/i2c-0"


def add(*chips: str) -> str:
    """Shell: let the kernel's drivers have the chips."""
    return "; ".join(f"echo {chip} > {DEVICES}/new_device" for chip in chips)


def tree(guest: Guest, pattern: str) -> dict[str, str]:
    """Files below sysfs and what they hold, without what belongs to the machine and not to the chip."""
    lines = guest.run("sh", "-c", f"grep -d skip -s '' {pattern}/*", check=False).out.splitlines()
    files = dict(line.removeprefix("/").rpartition(":")[::2] for line in lines)
    return {
        name: files[name]
        for name in sorted(files)
        if not name.endswith(("/uevent", "/dev", "_clock", "_available"))
    }


@pytest.fixture(scope="module")
def chips(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    folder: Path = tmp_path_factory.mktemp("chips")
    with Guest(image, folder) as guest:
        guest.run("sh", "-ec", CHIPS)
        yield guest


def sample(guest: Guest) -> dict[str, dict[str, Any]]:
    """What the sampler says of each sensor: its description, and every reading in SI."""
    records = guest.run(SAMPLER, "sh", "-ec", NEW_VALUES).json
    guest.run("sh", "-ec", OLD_VALUES)
    found = {record["name"]: dict(record) for record in records if record["type"] == "power_source"}
    for name, source in found.items():
        blocks = [record for record in records if record["type"] == "power" and record["source"] == name]
        for column, facts in source["columns"].items():
            raw = [value for block in blocks for value in block["raw"][column]]
            source[column] = [value * facts["scale"] for value in raw]
        source["dropped"] = sum(block["dropped"] for block in blocks)
    return found


def test_hwmon(chips: Guest, record_property: Any) -> None:
    chips.run(
        "sh", "-ec", "modprobe ina2xx; modprobe ina3221; " + add("ina219 0x40", "ina226 0x41", "ina3221 0x42")
    )
    chips.run(
        "sh",
        "-ec",
        "cd /sys/class/hwmon; echo 2000 > hwmon0/shunt_resistor; echo 5000 > hwmon2/shunt2_resistor",
    )
    kept = {"kernel": chips.facts["kernel"], "hwmon": tree(chips, "/sys/class/hwmon/hwmon*")}
    found = sample(chips)
    # 10 uV over 2 mohm, 2.5 uV over 10 mohm (but the kernel shows mA), 40 uV over 10 and over 5 mohm.
    steps = {name: source["columns"]["current_a"]["resolution"] for name, source in found.items()}
    assert steps == {
        "hwmon0:ina219:1": pytest.approx(5e-3),
        "hwmon1:ina226:1": pytest.approx(1e-3),
        "hwmon2:ina3221:1": pytest.approx(4e-3),
        "hwmon2:ina3221:2": pytest.approx(8e-3),
        "hwmon2:ina3221:3": pytest.approx(4e-3),
    }
    ina219, ina226, ina3221 = (found[name] for name in list(steps)[:3])
    # The smallest change that a chip can make is one step of the reading, or the kernel's 1 mA.
    assert sorted(set(ina219["current_a"])) == pytest.approx([25.000, 25.050])
    assert sorted(set(ina226["current_a"])) == pytest.approx([5.000])  # 250 uA do not show
    assert sorted(set(ina3221["current_a"])) == pytest.approx([5.000, 5.004])
    assert {*ina219["voltage_v"], *ina226["voltage_v"]} == {5.0}
    assert ina3221["voltage_v"][0] == 5.0
    readings = {name: len(source["current_a"]) for name, source in found.items()}
    record_property("readings", readings)
    record_property("resolution_a", steps)
    assert min(readings.values()) > 10
    _compare(kept)


def test_iio_where_hwmon_is_absent(chips: Guest, record_property: Any) -> None:
    chips.run(
        "sh",
        "-c",
        f"for a in 0x40 0x41 0x42; do echo $a > {DEVICES}/delete_device; done; rmmod ina2xx ina3221;"
        "modprobe ina2xx-adc; " + add("ina219 0x40", "ina226 0x41"),
    )
    chips.run("sh", "-ec", "echo 0.1 > /sys/bus/iio/devices/iio:device0/in_shunt_resistor")
    kept = {"iio": tree(chips, "/sys/bus/iio/devices/iio:device*")}
    found = sample(chips)
    assert list(found) == ["iio:device0:ina219", "iio:device1:ina226"]
    ina219, ina226 = found.values()
    assert ina219["columns"]["current_a"]["resolution"] == pytest.approx(10e-6 / 0.1)
    assert ina226["columns"]["current_a"]["resolution"] == pytest.approx(2.5e-6 / 0.01)
    assert sorted(set(ina219["current_a"])) == pytest.approx([0.5, 0.501])
    assert sorted(set(ina226["current_a"])) == pytest.approx([5.0, 5.00025])
    assert set(ina219["voltage_v"]) == {5.0}
    record_property("readings", {name: len(source["current_a"]) for name, source in found.items()})
    _compare(kept)


def _compare(seen: dict[str, Any]) -> None:
    """Hold what the kernel shows against the committed facts."""
    known = json.loads(FACTS.read_text()) if FACTS.exists() else {}
    if os.environ.get("JOULEFLEET_WRITE_SYSFS") == "1":
        FACTS.write_text(json.dumps({**known, **seen}, indent=1, sort_keys=True) + "\n")
        return
    assert {name: known.get(name) for name in seen if name != "kernel"} == {
        name: value for name, value in seen.items() if name != "kernel"
    }
