from pathlib import Path

import pytest

from fedjoule.errors import ConfigError
from harness.inventory import find_device, installation, known_hosts_file, load_inventory, ssh_target
from tests.conftest import REPOSITORY

LIMITS_CROSSED = 'kind = "ina219", voltage_v = 5, voltage_max_v = 4, current_limit_a = 1'
EXAMPLE = REPOSITORY / "examples" / "devices.toml"


def test_the_example_is_valid() -> None:
    devices = load_inventory(EXAMPLE).devices
    assert set(devices) == {"pi", "phone", "far"}
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
    assert place.state == str(Path.home() / ".fedjoule")
