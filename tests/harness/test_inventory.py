from pathlib import Path

import pytest

from harness.inventory import find_device, installation, known_hosts_file, load_inventory, ssh_target
from joulefleet.errors import ConfigError
from tests.conftest import REPOSITORY

LIMITS_CROSSED = 'kind = "ina219", voltage_v = 5, voltage_max_v = 4, current_limit_a = 1'
EXAMPLE = REPOSITORY / "examples" / "devices.toml"


def test_the_example_is_valid() -> None:
    devices = load_inventory(EXAMPLE).devices
    assert set(devices) == {"pi", "phone", "far", "left", "right"}
    assert devices["pi"].meter.voltage_max_v == 5.1
    target = ssh_target(devices["far"], EXAMPLE)
    assert target.jump.host == "gateway.example.org"
    assert target.known_hosts == known_hosts_file(EXAMPLE) == EXAMPLE.with_name("devices.known_hosts")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[devices.a]\nuser = "x"\n', "needs a host"),
        ('[devices.a]\nhost = "x"\nport = 0\n', "devices.a.port"),
        ('[devices.a]\nhost = "x"\npassword_env = "s3cret!"\n', "password_env"),
        ('[devices.a]\nhost = "x"\npassword = "hunter2"\n', "unknown key"),
        ('[devices.a]\nhost = "x"\n[devices.a.meter]\nkind = "ina219"\n', "voltage_max_v: missing"),
        (f'[devices.a]\nhost = "x"\nmeter = {{{LIMITS_CROSSED}}}\n', "above voltage_max_v"),
        ("", "devices: missing"),
        ('[devices.a]\nhost = "x"\nshared_meter = "bensh"\n', "no meter 'bensh'; known: none"),
        ('[devices.a_b]\nhost = "x"\n', "devices.a_b"),
        ('[devices.a]\nhost = "x"\nlimits = {temperature_max = 3}\n', "temperature_max: unknown key"),
        ('[devices.a]\nhost = "x"\nlimits = {battery_min_level = 20}\n', "battery_min_level"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "devices.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_inventory(tmp_path / "devices.toml")
    assert message in caught.value.message


def test_an_unknown_device_lists_the_known() -> None:
    with pytest.raises(ConfigError) as caught:
        find_device(EXAMPLE, "phon")
    assert "did you mean 'phone'?" in caught.value.hint


def test_a_local_device_keeps_its_state_at_home(tmp_path: Path) -> None:
    (tmp_path / "devices.toml").write_text('[devices.here]\ntransport = "local"\n')
    place = installation(find_device(tmp_path / "devices.toml", "here"))
    assert place.state == str(Path.home() / ".joulefleet")


def test_shared_meters_are_one_resource(tmp_path: Path) -> None:
    inventory = load_inventory(EXAMPLE)
    assert inventory.meter_of("left") == inventory.meter_of("right") == inventory.meters["bench"]
    assert inventory.meter_key("left") == inventory.meter_key("right")
    keys = {inventory.meter_key(name) for name in ("pi", "phone", "far", "left")}
    assert len(keys) == 4


def test_one_instrument_written_twice_is_still_one(tmp_path: Path) -> None:
    meter = '{kind = "ina219", port = "/dev/ttyUSB0", voltage_v = 5, voltage_max_v = 5, current_limit_a = 1}'
    text = "".join(f'[devices.{name}]\nhost = "{name}"\nmeter = {meter}\n' for name in "ab")
    (tmp_path / "devices.toml").write_text(text)
    inventory = load_inventory(tmp_path / "devices.toml")
    assert inventory.meter_key("a") == inventory.meter_key("b")


@pytest.mark.parametrize("named", ['port = "/dev/ttyUSB0"', 'serial = "7"'])
def test_a_shared_instrument_is_known_under_every_name(tmp_path: Path, named: str) -> None:
    meter = f'{{kind = "ina219", {named}, voltage_v = 5, voltage_max_v = 5, current_limit_a = 1}}'
    own = {"a": 'shared_meter = "bench"', "b": 'shared_meter = "other"', "c": f"meter = {meter}"}
    text = "".join(f'[devices.{name}]\nhost = "{name}"\n{line}\n' for name, line in own.items())
    text += f"[meters]\nbench = {meter}\nother = {meter}\n"
    (tmp_path / "devices.toml").write_text(text)
    inventory = load_inventory(tmp_path / "devices.toml")
    assert len({inventory.meter_key(name) for name in "abc"}) == 1


def test_shared_meters_without_port_and_number_are_told_apart_by_name(tmp_path: Path) -> None:
    meter = '{kind = "ina219", voltage_v = 5, voltage_max_v = 5, current_limit_a = 1}'
    text = "".join(f'[devices.{name}]\nhost = "{name}"\nshared_meter = "{name}"\n' for name in "ab")
    (tmp_path / "devices.toml").write_text(text + f"[meters]\na = {meter}\nb = {meter}\n")
    inventory = load_inventory(tmp_path / "devices.toml")
    assert inventory.meter_key("a") != inventory.meter_key("b")


def test_a_device_has_one_meter(tmp_path: Path) -> None:
    (tmp_path / "devices.toml").write_text(
        EXAMPLE.read_text().replace('host = "raspberrypi.local"', 'host = "x"\nshared_meter = "bench"')
    )
    with pytest.raises(ConfigError, match="not both"):
        load_inventory(tmp_path / "devices.toml")
