"""An instrument that is set so that nothing may be recorded: found when it is opened, before other work."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.cli import run
from harness.rounds.session import open_session
from joulefleet.errors import EXIT_DEVICE, EXIT_METER, MeterError, UnsafeOutput
from power.emulated.options import EmulatorOptions
from power.emulated.service import EmulatorProcess
from power.meter import MeterConfig, open_meter
from power.meters.monsoon_hvpm import MonsoonHvpm
from power.meters.monsoon_lvpm import MonsoonLvpm
from power.wire.hvpm_control import UsbPassthrough
from tests.harness.test_sessions import KINDS, files_of

MONSOONS = ("monsoon-lvpm", "monsoon-hvpm")
SAFE = {"voltage_v": 4.0, "voltage_max_v": 4.2, "current_limit_a": 3.0}


@pytest.fixture(params=MONSOONS)
def unit(request: pytest.FixtureRequest) -> Iterator[MeterConfig]:
    """An instrument and limits that suit it as it is: on at 4 V."""
    with EmulatorProcess(request.param, EmulatorOptions(signal="constant:current=0.4,voltage=4.0")) as meter:
        yield MeterConfig.model_validate({"kind": request.param, "port": meter.address, **SAFE})


def put(
    config: MeterConfig, *, voltage_v: float | None = None, passthrough: UsbPassthrough | None = None
) -> None:
    """Set an instrument as another client, for another device, might have left it."""
    other = config.model_copy(update={"voltage_max_v": 5.0, "options": {}})
    with open_meter(other, any_settings=True) as meter:
        assert isinstance(meter, MonsoonLvpm | MonsoonHvpm)
        if voltage_v is not None:
            meter.set_voltage(voltage_v)
        if passthrough is not None:
            meter.set_usb_passthrough(passthrough)


def words(config: MeterConfig) -> list[str]:
    limits = ["--voltage", "4", "--voltage-max", "4.2", "--current-limit", "3"]
    return ["--kind", config.kind, "--port", config.port, *limits]


def ask(capfd: pytest.CaptureFixture[str], *arguments: str, code: int) -> Any:
    capfd.readouterr()
    returned = run([*arguments, "--json"])
    out, err = capfd.readouterr()
    assert returned == code, out + err
    return json.loads(out) if out.strip() else err


def test_an_output_above_the_limit_is_refused_when_the_meter_opens(unit: MeterConfig) -> None:
    put(unit, voltage_v=4.5)
    for _ in range(2):  # refusing has let go of the instrument
        with pytest.raises(UnsafeOutput, match=r"on at 4\.50 V, above voltage_max_v 4\.2") as caught:
            open_meter(unit)
        assert "meter output" in caught.value.hint


@pytest.mark.parametrize("unit", ["monsoon-hvpm"], indirect=True)
def test_every_channel_is_refused(unit: MeterConfig) -> None:
    put(unit, voltage_v=4.5)
    for channel in ("usb", "aux"):
        with pytest.raises(UnsafeOutput, match="above voltage_max_v"):
            open_meter(unit.model_copy(update={"channel": channel}))


@pytest.mark.parametrize("voltage_v", [4.2, 4.19])
def test_the_limit_itself_is_allowed(unit: MeterConfig, voltage_v: float) -> None:
    put(unit, voltage_v=voltage_v)
    with open_meter(unit) as meter:
        assert meter.config == unit


def test_an_output_that_is_off_is_not_refused(unit: MeterConfig) -> None:
    put(unit, voltage_v=4.5)
    with open_meter(unit, any_settings=True) as meter:
        assert isinstance(meter, MonsoonLvpm | MonsoonHvpm)
        meter.switch_output_off()
        assert not meter.output_setting().on
    open_meter(unit).__exit__(None, None, None)


def test_a_passthrough_that_is_on_is_refused_unless_it_may_be_switched(unit: MeterConfig) -> None:
    put(unit, passthrough=UsbPassthrough.ON)
    with pytest.raises(MeterError, match="USB passthrough is not off") as caught:
        open_meter(unit)
    assert not isinstance(caught.value, UnsafeOutput)
    willing = unit.model_copy(update={"options": {"usb_passthrough_off": True}})
    open_meter(willing).__exit__(None, None, None)


def test_all_that_is_wrong_is_named_at_once(unit: MeterConfig) -> None:
    put(unit, voltage_v=4.5, passthrough=UsbPassthrough.ON)
    with pytest.raises(UnsafeOutput, match=r"above voltage_max_v 4\.2; .*USB passthrough is not off"):
        open_meter(unit)


def test_info_shows_it_and_output_mends_it(unit: MeterConfig, capfd: pytest.CaptureFixture[str]) -> None:
    put(unit, voltage_v=4.5)
    said = ask(capfd, "meter", "info", *words(unit), code=EXIT_METER)
    assert said["output"]["on"]
    assert said["output"]["above_voltage_max_v"]
    assert said["output"]["voltage_v"] == pytest.approx(4.5)
    assert said["output"]["run_time_limit_a"] > 0
    assert "above voltage_max_v 4.2" in said["refused"][0]
    assert run(["meter", "info", *words(unit)]) == EXIT_METER
    assert "output on, set to 4.500 V, above voltage_max_v 4.2; cut at" in capfd.readouterr().out

    assert run(["meter", "output", *words(unit), "--off", "--yes"]) == 0
    said = ask(capfd, "meter", "info", *words(unit), code=0)
    assert (said["output"]["on"], said["refused"]) == (False, [])

    put(unit, voltage_v=4.5)
    assert run(["meter", "output", *words(unit), "--set", "4.1", "--yes"]) == 0
    said = ask(capfd, "meter", "info", *words(unit), code=0)
    assert said["output"]["voltage_v"] == pytest.approx(4.1)
    for name in ("run_time_limit_a", "power_up_limit_a"):
        assert 2.98 < said["output"][name] <= 3.0


@pytest.mark.parametrize("command", ["record", "selftest"])
def test_a_refused_command_leaves_no_folder(
    unit: MeterConfig, tmp_path: Path, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    put(unit, voltage_v=4.5)
    more = ["--load-ohms", "10", "--tolerance", "2"] if command == "selftest" else []
    out = tmp_path / "out"
    assert run(["meter", command, *words(unit), "--seconds", "1", "--out", str(out), *more]) == EXIT_METER
    assert "above voltage_max_v 4.2" in capfd.readouterr().err
    assert not out.exists()


def inventory(*configs: MeterConfig) -> str:
    """Devices that nobody can reach, each with a meter."""
    text = ""
    for name, config in zip(("pi", "phone", "far", "left"), configs, strict=False):
        text += (
            f'\n[devices.{name}]\nhost = "127.0.0.1"\nport = 9\nuser = "nobody"\n'
            f'state = ".joulefleet-{name}"\n'
            f'[devices.{name}.meter]\nkind = "{config.kind}"\nport = "{config.port}"\n'
            f"voltage_v = 4.0\nvoltage_max_v = {config.voltage_max_v}\ncurrent_limit_a = 3.0\n"
        )
    return text


def test_ping_says_what_is_wrong_with_the_meter_and_not_that_a_cable_is_missing(
    unit: MeterConfig, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    put(unit, voltage_v=4.5)
    devices = tmp_path / "devices.toml"
    devices.write_text(inventory(unit))
    said = ask(capfd, "bench", "ping", "--inventory", str(devices), "pi", code=EXIT_DEVICE)
    assert "above voltage_max_v 4.2" in said["meter"]["error"]
    assert said["meter"]["output"]["voltage_v"] == pytest.approx(4.5)
    assert said["missing"] == []
    run(["bench", "ping", "--inventory", str(devices), "pi"])
    assert "output on, set to 4.500 V, above voltage_max_v 4.2" in capfd.readouterr().out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrong", ["voltage", "passthrough"])
def test_no_run_begins_with_a_meter_that_could_not_record(
    unit: MeterConfig, tmp_path: Path, kind: str, wrong: str
) -> None:
    """The second of four devices has the meter that is set wrongly; those of the others are not there."""
    nowhere = "/dev/nowhere" if unit.kind == "monsoon-lvpm" else "emulated:/nowhere"
    others = [unit.model_copy(update={"port": f"{nowhere}{i}"}) for i in range(3)]
    text = inventory(others[0], unit, *others[1:])
    if wrong == "voltage":
        put(unit, voltage_v=4.5)
    else:
        put(unit, passthrough=UsbPassthrough.ON)
    files = files_of(kind, tmp_path, text)
    runs = tmp_path / "runs"
    with (
        pytest.raises(MeterError, match=r"^phone: .*(above voltage_max_v|passthrough)"),
        open_session(files, runs),
    ):
        pytest.fail("a run was begun")
    assert not runs.exists()


def test_devices_that_share_a_meter_are_each_asked_for(unit: MeterConfig, tmp_path: Path) -> None:
    """The limits are the devices'."""
    put(unit, voltage_v=4.5)
    robust = unit.model_copy(update={"voltage_max_v": 5.0})
    files = files_of("bench", tmp_path, inventory(robust, unit, robust, robust))
    with pytest.raises(UnsafeOutput, match=r"^phone: "), open_session(files, tmp_path / "runs"):
        pytest.fail("a run was begun")
