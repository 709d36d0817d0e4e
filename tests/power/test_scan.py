import pytest

from power.meters.scan import on_serial_port
from power.meters.serial_port import PortInfo


@pytest.mark.parametrize(
    ("description", "vid", "pid", "kind", "certain"),
    [
        ("Mobile Device Power Monitor", 0x2AB9, 0x0001, "monsoon-lvpm", True),
        ("Arduino Uno", 0x2341, 0x0043, "ina219", False),
        ("CP2102 USB to UART", 0x10C4, 0xEA60, "ina219", False),
        ("something else of that vendor", 0x10C4, 0x0001, "", False),
        ("n/a", None, None, "", False),
    ],
)
def test_what_may_be_behind_a_port(
    description: str, vid: int | None, pid: int | None, kind: str, certain: bool
) -> None:
    found = on_serial_port(PortInfo("/dev/ttyACM0", description, vid, pid, "42"))
    assert (found.port, found.kind, found.certain, found.serial) == ("/dev/ttyACM0", kind, certain, "42")
