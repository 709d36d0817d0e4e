"""Scenarios and settings for the bench: what is read, what is refused, what a bench makes of a scenario."""

import re
import shlex
from pathlib import Path

import pytest

from emulator.runs.assembly import make_selector
from emulator.scenario.load import load_scenario
from emulator.scenario.model import Scenario, SelectorSection
from emulator.selectors.registry import SELECTORS
from harness.federate.files import bench_devices, check_selector, not_used, on_bench, read_federate_files
from harness.federate.settings import FederateSettings
from harness.inventory import Inventory, load_inventory
from harness.probing.plan import ProbingPlan
from harness.probing.schedule import expand_rounds
from joulefleet.config import parse_toml
from joulefleet.errors import ConfigError
from tests.conftest import REPOSITORY

INVENTORY = REPOSITORY / "examples" / "devices.toml"


@pytest.fixture
def inventory() -> Inventory:
    return load_inventory(INVENTORY)


def settings_of(text: str) -> FederateSettings:
    return parse_toml(text, FederateSettings, name="federate.toml")


def scenario_of(text: str = "") -> Scenario:
    return parse_toml(f'name = "s"\n{text}', Scenario, name="s.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('backend = "numpy"', "backend"),
        ("device = ['pi']", "device: unknown key"),
        ("[timing]\nidle = 1", r"timing\.idle: unknown key"),
        ('[[conditions]]\ndevice = "pi"', "nothing is different"),
        ('[[conditions]]\ndevice = "pi"\nlink_bps = 0', "link_bps"),
        (
            '[[conditions]]\ndevice = "pi"\nload = { name = "m", kind = "memory", cpu_share = 0.5 }',
            "processors",
        ),
    ],
)
def test_bad_settings(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings_of(text)


def test_conditions_hold_from_their_round_on() -> None:
    settings = settings_of(
        '[[conditions]]\ndevice = "pi"\nfrom_round = 5\nlink_bps = 1e6\n'
        '[[conditions]]\ndevice = "pi"\nfrom_round = 3\nload = { name = "game", cpu_share = 0.5 }\n'
        '[[conditions]]\ndevice = "pi"\nfrom_round = 7\nload = { name = "none", cpu_share = 0 }\n'
    )
    assert [settings.load("pi", n).name for n in (2, 3, 6, 7)] == ["none", "game", "game", "none"]
    assert [settings.link_bps("pi", n) for n in (4, 5, 9)] == [None, 1e6, 1e6]
    assert settings.load("phone", 9).name == "none"


def test_the_bench_is_the_fleet(inventory: Inventory) -> None:
    given = load_scenario("quick")
    settings = settings_of("devices = ['pi', 'phone', 'far', 'left']")
    devices = bench_devices(given, settings, inventory)
    scenario = on_bench(given, len(devices))
    assert (scenario.fleet.devices, scenario.fleet.traces) == (4, None)
    assert (scenario.protocol.candidates, scenario.candidates) == (4, 4)
    assert not_used(given) == ["fleet.traces"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[protocol]\nk = 5", "5 clients per round, but the bench has 3 devices"),
        ("[protocol]\nk = 1\nover_commit = 1.5", "over_commit: not on a bench"),
        ("[protocol]\nk = 1\ndeadline_s = 9", "deadline_s: not on a bench"),
        ("[protocol]\nk = 1\nprobe_deadline_s = 9", "probe_deadline_s: not on a bench"),
        ("[protocol]\nk = 1\n[trainer]\nkind = 'surrogate'", "the surrogate trains nothing"),
    ],
)
def test_what_a_bench_does_not_do(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        on_bench(scenario_of(text), 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("devices = ['left', 'right']", "left and right share a meter"),
        ("devices = ['phon']", "no device 'phon'"),
        ("devices = ['pi']\n[[conditions]]\ndevice = 'pie'\nlink_bps = 1", "no device 'pie'"),
    ],
)
def test_devices_that_cannot_be(inventory: Inventory, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        bench_devices(scenario_of("[protocol]\nk = 1"), settings_of(text), inventory)


TWO = "".join(
    f'[devices.{name}]\ntransport = "local"\n[devices.{name}.meter]\nkind = "replay"\nport = "{name}"\n'
    "voltage_v = 4\nvoltage_max_v = 4.2\ncurrent_limit_a = 3\n"
    for name in ("one", "two")
)


def test_two_devices_in_one_folder_are_in_no_round_together() -> None:
    """Its lock lets one job run: every round would lose one of the two."""
    scenario, settings = scenario_of("[protocol]\nk = 1"), settings_of("")
    with pytest.raises(ConfigError, match=r"one and two share the folder \.joulefleet") as refused:
        bench_devices(scenario, settings, parse_toml(TWO, Inventory, name="devices.toml"))
    state = refused.value.hint.split("`")[1]
    apart = TWO.replace("[devices.two]", f"[devices.two]\n{state}")
    assert bench_devices(scenario, settings, parse_toml(apart, Inventory, name="d")) == ("one", "two")
    plan = parse_toml(
        'task = "mnist-lenet5"\ncandidates = [2]\nchosen = [1]\nbackend = "torch"', ProbingPlan, name="p"
    )
    with pytest.raises(ConfigError, match="share the folder"):
        expand_rounds(plan, parse_toml(TWO, Inventory, name="devices.toml"))


def test_every_selector_can_be_run_or_says_why_not() -> None:
    refused = {}
    for name in SELECTORS.entries():
        scenario = scenario_of().model_copy(update={"selector": SelectorSection(name=name)})
        selector = make_selector(scenario)
        try:
            check_selector(selector)
        except ConfigError as error:
            refused[name] = error.message
    assert {"fedavg", "oort", "fedmarl", "fedrank", "fedrank_plus", "autofl", "rpow_d"}.isdisjoint(refused)
    assert "oracle" in refused["speed_oracle"]
    assert "forward pass" in refused["power_of_choice"]
    assert "local objective" in refused["fedprox"]
    assert "profiles every device" in refused["favor"]
    assert "before they train" in refused["afl"]
    assert "batteries" in refused["eafl"]


def test_files_are_read_together(tmp_path: Path) -> None:
    settings = tmp_path / "federate.toml"
    settings.write_text("devices = ['pi', 'phone', 'far', 'left']\n")
    files = read_federate_files("quick", INVENTORY, settings, selector="oort", seed=4, rounds=7)
    assert (files.scenario.selector.name, files.seed, files.scenario.protocol.rounds) == ("oort", 4, 7)
    assert files.devices == ("pi", "phone", "far", "left")
    same = read_federate_files("quick", INVENTORY, settings, selector="oort", seed=4, rounds=7)
    assert files.fingerprint == same.fingerprint
    other = read_federate_files("quick", INVENTORY, settings, selector="oort", seed=5)
    assert files.fingerprint != other.fingerprint
    command = files.command(Path("runs/x"))
    assert command.startswith("joulefleet bench federate quick --inventory")
    assert command.endswith("--resume runs/x")
    words = shlex.split(command)
    options = dict(zip(words[4:-1:2], words[5::2], strict=True))
    again = read_federate_files(
        words[3],
        Path(options["--inventory"]),
        Path(options["--settings"]),
        selector=options["--selector"],
        seed=int(options["--seed"]),
        rounds=int(options["--rounds"]),
    )
    assert again.fingerprint == files.fingerprint, "or the run could not be taken up again"
    with pytest.raises(ConfigError, match="no scenario file and no preset"):
        read_federate_files("quickly", INVENTORY)


def test_the_example_is_for_the_example_inventory() -> None:
    files = read_federate_files("quick", INVENTORY, REPOSITORY / "examples" / "federate.toml")
    assert files.devices == ("pi", "phone", "far", "left")
    assert files.settings.load("phone", 6).name == "game"
    assert files.settings.link_bps("pi", 8) == 2e6


def test_the_first_example_of_the_documentation_can_be_played(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "federate.md").read_text(encoding="utf-8")
    scenario, settings = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)[:2]
    (tmp_path / "mine.toml").write_text(scenario)
    (tmp_path / "federate.toml").write_text(settings)
    files = read_federate_files(str(tmp_path / "mine.toml"), INVENTORY, tmp_path / "federate.toml")
    assert files.devices == ("pi", "phone")
    assert (files.scenario.candidates, files.scenario.protocol.k) == (2, 1)
