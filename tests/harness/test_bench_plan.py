"""Plans, the jobs in them, and what a dry run says about them."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from harness.bench.estimate import estimate
from harness.bench.matrix import choose, expand, fingerprint
from harness.bench.plan import Plan, load_plan
from harness.cli import run as joulefleet
from harness.cli.bench.files import SCHEMAS, json_schema
from harness.inventory import Inventory, load_inventory
from joulefleet.config import parse_toml
from joulefleet.errors import ConfigError
from power.profile.model import DeviceProfile
from tests.conftest import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
SMALL = 'models = ["softmax"]\nbackends = ["numpy"]\n'


def plan_of(text: str) -> Plan:
    return parse_toml(SMALL + text, Plan, name="plan.toml")


@pytest.fixture
def inventory() -> Inventory:
    return load_inventory(EXAMPLES / "devices.toml")


def test_the_example_is_a_plan_for_the_example(inventory: Inventory) -> None:
    plan = load_plan(EXAMPLES / "plan.toml")
    jobs = expand(plan, inventory)
    assert len(jobs) == 2 * 2 * 2 * 3 * 10 * 3
    assert sum(not job.optional for job in jobs) == 2 * 2 * 2 * 3 * 3 * 3
    assert plan.device_samples["phone"] == 640


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("local_epoch = 3", r"local_epoch: unknown key.*did you mean 'local_epochs'\?"),
        ("[cooldown]\ntemperatur_c = 40", r"cooldown\.temperatur_c: unknown key.*'temperature_c'"),
        ("[[loads]]\nname = 'x'\ncpu_share = 1.5", r"loads\[0\]\.cpu_share"),
        ("[[loads]]\nname = 'x'\ncpu_share = 0\n[[loads]]\nname = 'x'\ncpu_share = 1", "same name"),
        ("[[loads]]\nname = 'No Load'\ncpu_share = 0", r"loads\[0\]\.name"),
        ("[repetitions]\nuntil_relative = 0.1", "belong together"),
        ("[repetitions]\ncount = 1\nuntil_relative = 0.1\nmaximum = 5", "between 2"),
        ("[repetitions]\nsessions = 0", r"repetitions\.sessions"),
        ("[repetitions]\napart = '12 h'", "apart needs two sessions or more"),
        *(
            (f"[repetitions]\nsessions = 3\napart = {apart}", r"repetitions\.apart: .*such as '12 h', got")
            for apart in (
                "'12'",
                "'tomorrow'",
                "'-1 h'",
                "12",
                "'1,5 h'",
                "'0 h'",
                "'367 d'",
                "'999999999 d'",
            )
        ),
        ("[repetitions]\nbetween_sessions = 0.03", "between_sessions_source belong together"),
        ("[repetitions]\nbetween_sessions = 3.0\nbetween_sessions_source = 'x'", "between_sessions"),
        ("[timing]\nidle_s = 0", r"timing\.idle_s"),
        ("[abort]\ncurrent_max_a = -1", r"abort\.current_max_a"),
        ("devices = ['a', 'a']", "listed twice"),
        ("samples = 0", "samples"),
        ("seed = -1", "seed"),
        ("[sync]\norder = 99", r"sync\.order"),
    ],
)
def test_mistakes_in_a_plan_are_named(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan_of(text)
    assert re.search(message, f"{caught.value.message} {caught.value.hint}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('models = ["mnist-lenet"]\nbackends = ["torch"]', "did you mean 'mnist-lenet5'"),
        ('models = ["mnist-lenet5"]\nbackends = ["numpy"]', "'numpy' does not train 'mnist-lenet5'"),
        ('models = ["softmax"]\nbackends = ["torch"]', "numpy trains softmax"),
        ('models = []\nbackends = ["torch"]', "models"),
        ('models = ["softmax"]\nbackends = ["tf"]', r"backends\[0\]"),
    ],
)
def test_only_what_can_be_trained_is_planned(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_toml(text, Plan, name="plan.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('devices = ["fone"]', "no device 'fone'"),
        ('devices = ["pi"]\ndevice_samples = {fone = 3}', "no device 'fone'"),
    ],
)
def test_a_plan_names_devices_that_exist(inventory: Inventory, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        expand(plan_of(text), inventory)


def test_devices_without_a_meter_are_not_measured(tmp_path: Path) -> None:
    bare = parse_toml('[devices.a]\nhost = "a"\n', Inventory, name="devices.toml")
    with pytest.raises(ConfigError, match="no device of the inventory has a meter"):
        expand(plan_of(""), bare)
    with pytest.raises(ConfigError, match="'a' has no meter"):
        expand(plan_of('devices = ["a"]'), bare)


def test_every_block_holds_every_cell_once_in_an_order_of_its_own(inventory: Inventory) -> None:
    loads = "".join(f"[[loads]]\nname = 'l{i}'\ncpu_share = 0.{i}\n" for i in range(1, 4))
    jobs = expand(plan_of(f"seed = 3\n{loads}[repetitions]\ncount = 4\n"), inventory)
    assert [job.number for job in jobs] == list(range(1, len(jobs) + 1))
    blocks = [[job.cell for job in jobs if job.repetition == r] for r in (1, 2, 3, 4)]
    assert all(Counter(block) == Counter(blocks[0]) for block in blocks)
    assert len({tuple(cell.name for cell in block) for block in blocks}) == 4
    assert jobs == expand(plan_of(f"seed = 3\n{loads}[repetitions]\ncount = 4\n"), inventory)
    assert jobs != expand(plan_of(f"seed = 4\n{loads}[repetitions]\ncount = 4\n"), inventory)
    assert len({job.name for job in jobs}) == len(jobs)


def test_only_chooses_by_number_name_and_pattern(inventory: Inventory) -> None:
    jobs = expand(plan_of('devices = ["pi", "phone"]'), inventory)
    assert [job.number for job in choose(jobs, ["2", jobs[4].name])] == [2, 5]
    assert {job.cell.device for job in choose(jobs, ["*_phone_*"])} == {"phone"}
    assert choose(jobs, []) == jobs
    with pytest.raises(ConfigError, match="no job '77'"):
        choose(jobs, ["77"])


def test_the_fingerprint_is_about_what_is_measured(inventory: Inventory) -> None:
    text = (EXAMPLES / "devices.toml").read_text()
    plan = plan_of('devices = ["phone"]')

    def changed(old: str, new: str) -> bool:
        assert old in text
        other = parse_toml(text.replace(old, new), Inventory, name="x")
        return fingerprint(plan, other) != fingerprint(plan, inventory)

    assert not changed("192.168.1.40", "192.168.1.41")  # where it is reached
    assert not changed("/dev/ttyACM0", "/dev/ttyACM1")  # an instrument plugged in again
    assert not changed("raspberrypi.local", "elsewhere")  # not in this plan
    assert changed("voltage_v = 4.2", "voltage_v = 4.1")
    assert changed("temperature_max_c = 70", "temperature_max_c = 71")
    assert fingerprint(plan_of('devices = ["phone"]\nseed = 5'), inventory) != fingerprint(plan, inventory)
    assert fingerprint(plan_of('# said\ndevices = ["phone"]'), inventory) == fingerprint(plan, inventory)


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_exported_schemas_are_current(name: str) -> None:
    """If not: joulefleet bench schema NAME > docs/schemas/NAME.schema.json."""
    stored = json.loads((REPOSITORY / "docs" / "schemas" / f"{name}.schema.json").read_text())
    assert stored == json_schema(name)
    assert stored["additionalProperties"] is False


def test_an_estimate_without_a_profile_is_a_lower_bound(inventory: Inventory) -> None:
    timing = "[timing]\nidle_s = 10\nsettle_s = 4\nload_only_s = 7\ndecision_wait_s = 1\n"
    timing += "[cooldown]\nseconds = 30\n"
    loads = "[[loads]]\nname = 'none'\ncpu_share = 0\n[[loads]]\nname = 'game'\ncpu_share = 0.5\n"
    plan = plan_of(f"devices = ['phone']\nsync_pattern = false\n{loads}{timing}[repetitions]\ncount = 2\n")
    cost = estimate(plan, inventory, expand(plan, inventory))
    assert cost.is_lower_bound
    assert sorted(job.fixed_s for job in cost.jobs) == [59, 59, 66, 66]
    assert cost.duration_s == pytest.approx(250)
    assert cost.energy_j is None, "not 0 J"
    assert all(job.energy_j is None and job.basis.startswith("none") for job in cost.jobs)
    assert cost.disk_bytes == pytest.approx(88e3 * (29 + 29 + 36 + 36))


def test_an_estimate_from_a_profile(inventory: Inventory) -> None:
    def cost_of(seconds: float, joules: float) -> dict[str, object]:
        return {"duration_s": {"mean": seconds}, "gross_j": {"mean": joules}}

    profile = DeviceProfile.model_validate(
        {
            "device": "phone",
            "model": "softmax",
            "dataset": "synthetic",
            "backend": "numpy",
            "samples": 100,
            "batch_size": 32,
            "probe": cost_of(3, 6),
            "epoch": cost_of(2, 5),
            "upload": cost_of(1, 1),
            "idle_power_w": {"mean": 0.5},
            "load_levels": [{"name": "game", "kind": "cpu", "load": 0.5, "epoch": cost_of(4, 8)}],
            "provenance": {"origin": "literature", "basis": "a test"},
        }
    )
    plan = plan_of(
        "devices = ['phone']\nsamples = 200\nlocal_epochs = 4\nwarmup_epochs = 1\nsync_pattern = false\n"
        "[[loads]]\nname = 'none'\ncpu_share = 0\n[[loads]]\nname = 'game'\ncpu_share = 0.5\n"
        "[timing]\nidle_s = 10\nsettle_s = 0\ndecision_wait_s = 0\nload_only_s = 0\n"
        "[repetitions]\ncount = 2\nuntil_relative = 0.1\nmaximum = 3\n"
    )
    jobs = expand(plan, inventory)
    cost = estimate(plan, inventory, jobs, [profile])
    by_load = {job.cell.load.name: c for job, c in zip(jobs, cost.jobs, strict=True) if not job.optional}
    first, beside, optional = by_load["none"], by_load["game"], cost.jobs[-1]
    assert beside.training_s == pytest.approx(2 * 5 * 4 + 1)
    assert first.training_s == pytest.approx(2 * (3 + 4 * 2) + 1)  # one warm-up epoch and three later ones
    assert first.energy_j == pytest.approx(2 * (6 + 4 * 5) + 1 + 0.5 * 20)
    assert "literature profile of 100 samples per epoch, scaled to 200" in first.basis
    assert optional.optional
    assert not cost.is_lower_bound
    assert cost.most_s == pytest.approx(1.5 * cost.duration_s)
    without = estimate(plan, inventory, jobs, [profile.model_copy(update={"idle_power_w": None})])
    assert without.is_lower_bound
    assert without.jobs[0].basis.endswith("without idle power, which it does not know")


def test_devices_on_one_meter_take_turns_in_the_estimate(inventory: Inventory) -> None:
    def seconds(text: str) -> float:
        plan = plan_of(text + "sync_pattern = false\n[repetitions]\ncount = 1\n")
        return estimate(plan, inventory, expand(plan, inventory)).duration_s

    alone = seconds('devices = ["left"]\n')
    assert seconds('devices = ["left", "right"]\n') == pytest.approx(2 * alone)
    assert seconds('devices = ["left", "far"]\n') == pytest.approx(alone)
    assert seconds('devices = ["left", "far"]\nparallel = 1\n') == pytest.approx(2 * alone)


def test_sessions_repeat_all_of_a_plan(inventory: Inventory) -> None:
    plan = plan_of(
        "devices = ['pi', 'phone']\n[repetitions]\ncount = 2\nuntil_relative = 0.1\nmaximum = 3\n"
        "sessions = 2\n"
    )
    jobs = expand(plan, inventory)
    assert [job.number for job in jobs] == list(range(1, 13))
    assert [(job.session, job.repetition) for job in jobs[::2]] == [(s, r) for s in (1, 2) for r in (1, 2, 3)]
    assert [job.optional for job in jobs[::2]] == [False, False, True] * 2
    assert jobs[-1].name.endswith("_softmax-numpy-none_s2_rep3")
    assert len({job.name for job in jobs}) == 12
    third = next(job for job in jobs if (job.session, job.repetition, job.cell.device) == (2, 3, "pi"))
    assert [(j.session, j.repetition) for j in jobs if third.follows(j)] == [(2, 1), (2, 2)]


@pytest.mark.parametrize(
    ("text", "apart_s"),
    [("", 43_200), ("apart = '90 min'", 5400), ("apart = '1.5h'", 5400), ("apart = '2 d'", 172_800)],
)
def test_sessions_are_so_far_apart(text: str, apart_s: float) -> None:
    assert plan_of(f"[repetitions]\nsessions = 3\n{text}\n").repetitions.apart_s == apart_s
    assert plan_of("").repetitions.apart_s is None


def _uncalibrated(inventory: Inventory) -> Inventory:
    pi = inventory.devices["pi"]
    assert pi.meter is not None
    meter = pi.meter.model_copy(update={"calibration": None})
    devices = {**inventory.devices, "pi": pi.model_copy(update={"meter": meter})}
    return inventory.model_copy(update={"devices": devices})


def test_a_run_of_before_can_still_be_resumed(inventory: Inventory) -> None:
    """The hash is that of a plan when plans had no sessions, and meters no calibration."""
    plan = plan_of("devices=['pi']\n")
    calibrated, inventory = inventory, _uncalibrated(inventory)
    assert fingerprint(plan, calibrated) != fingerprint(plan, inventory)
    assert fingerprint(plan, inventory) == "3eb9ee67917f486c9020caed87e828eacbff46174486c7a8dc9e9d69e3013429"
    other = plan_of("devices=['pi']\n[repetitions]\nsessions = 3\n")
    assert fingerprint(other, inventory) != fingerprint(plan, inventory)


def test_the_schedule_of_sessions_is_estimated(inventory: Inventory) -> None:
    text = "devices = ['pi']\nsync_pattern = false\n[repetitions]\ncount = 2\n"
    once = plan_of(text)
    alone = estimate(once, inventory, expand(once, inventory))
    assert alone.sessions == ()
    plan = plan_of(text + "sessions = 3\napart = '1 h'\n")
    cost = estimate(plan, inventory, expand(plan, inventory))
    assert cost.duration_s == pytest.approx(3 * alone.duration_s)
    assert [(s.session, s.jobs) for s in cost.sessions] == [(1, 2), (2, 2), (3, 2)]
    assert [s.begins_s for s in cost.sessions] == pytest.approx(
        [0, alone.duration_s + 3600, 2 * (alone.duration_s + 3600)]
    )


@pytest.mark.parametrize(("apart", "warned"), [("30 min", True), ("6 h", False), ("12 h", False)])
def test_a_dry_run_says_what_sessions_of_one_evening_do_not_show(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], apart: str, warned: bool
) -> None:
    plan, devices = tmp_path / "plan.toml", tmp_path / "devices.toml"
    plan.write_text(
        f"models = ['softmax']\nbackends = ['numpy']\n[repetitions]\nsessions = 3\napart = '{apart}'\n"
    )
    devices.write_text("[devices.here]\ntransport = 'local'\n[devices.here.meter]\nkind = 'monsoon-lvpm'\n")
    with devices.open("a") as file:
        file.write("voltage_v = 4\nvoltage_max_v = 4.2\ncurrent_limit_a = 3\n")
    assert joulefleet(["bench", "run", str(plan), "--inventory", str(devices), "--dry-run"]) == 0
    assert ("not how days do" in capfd.readouterr().out) == warned
