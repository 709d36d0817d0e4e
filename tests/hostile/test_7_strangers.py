"""Class 7, by somebody who had read SECURITY.md only: configuration that asks for too much, or a shell."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from harness.cli import run as joulefleet

INVENTORY = '[devices.a]\nhost = "127.0.0.1"\nuser = "u"\n'
METER = '[devices.a.meter]\nkind = "ina219"\nport = "/dev/null"\n'
PLANS = {
    "a name that is a path": 'name = "../../x"',
    "a name with an end": 'name = "x\\u0000y"',
    "a name that turns": 'name = "\\u202egnp"',
    "more than a float": "samples = 1e400",
    "more than 64 bits": "samples = 99999999999999999999",
    "no number": "timing = { idle_s = nan }",
    "for ever": "timing = { deadline_s = inf }",
    "longer than the sun": "timing = { idle_s = 1e300 }",
    "a million million times": "repetitions = { count = 1_000_000_000_000 }",
    "as often as it takes": "retry = { attempts = 99999999999999999999 }",
    "a model of the system": 'models = ["../../etc/passwd"]',
    "a back end of the system": 'backends = ["os.system"]',
    "a load without a number": 'loads = [{ name = "x", cpu_share = nan }]',
    "a pattern without end": "sync = { order = 64 }",
    "a device elsewhere": 'devices = ["../a"]',
    "a date": "seed = 2026-01-01",
    "deep": "x = " + "[" * 5000 + "]" * 5000,
}


@pytest.mark.parametrize("text", PLANS.values(), ids=PLANS.keys())
def test_a_plan_that_asks_for_too_much(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "devices.toml").write_text(INVENTORY + METER)
    rest = {"models": 'models = ["softmax"]', "backends": 'backends = ["numpy"]'}
    lines = [line for name, line in rest.items() if not text.startswith(name)]
    (tmp_path / "plan.toml").write_text("\n".join([text, *lines]))
    assert joulefleet(["bench", "run", "plan.toml", "--dry-run"]) == 3
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert len(said) < 2000
    assert sorted(one.name for one in tmp_path.iterdir()) == ["devices.toml", "plan.toml"]


@pytest.mark.parametrize(
    "text",
    [
        '[devices."../../x"]\nhost = "h"\nuser = "u"',
        '[devices."a\\n b"]\nhost = "h"\nuser = "u"',
        '[devices.a]\nhost = "h"\nuser = "u"\nport = 70000',
        '[devices.a]\nhost = "h"\nuser = "u"\njump = { host = "x", user = "y", jump = { host = "z" } }',
        '[devices.a]\nhost = "h"\nuser = "u"\nrun = "touch pwned"',
    ],
)
def test_an_inventory_that_is_none(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "devices.toml").write_text(text)
    assert joulefleet(["bench", "ping", "a"]) == 3
    assert "devices.toml" in capsys.readouterr().err


@pytest.mark.parametrize(
    "word", ["; touch pwned", "$(touch pwned)", "`touch pwned`", "\n touch pwned", " -c x"]
)
def test_a_word_of_an_inventory_is_no_command(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the device the interpreter and the folder are one argument each."""
    monkeypatch.chdir(tmp_path)
    quoted = (sys.executable + word).replace("\n", "\\n")
    (tmp_path / "devices.toml").write_text(
        f'[devices.a]\ntransport = "local"\npython = "{quoted}"\nstate = "{tmp_path}/state"\n'
    )
    assert joulefleet(["bench", "ping", "a"]) != 0
    assert not (tmp_path / "pwned").exists()
    assert "Traceback" not in capsys.readouterr().err


SCENARIOS = {
    "no rounds": "[protocol]\nrounds = 0",
    "rounds without end": "[protocol]\nrounds = 99999999999999999999",
    "epochs without end": "[protocol]\nlocal_epochs = 9223372036854775807",
    "a deadline beyond every clock": "[protocol]\ndeadline_s = 1e300",
    "a probe without end": "[protocol]\nprobe_deadline_s = 1e300",
    "speeds beyond what a float holds": "[fleet]\nspeed_spread = 1e308",
    "days without end": '[fleet.traces]\nsource = "synthetic"\nat_end = "wrap"\njitter_s = 1e308',
    "more people than there are": '[fleet.traces]\nsource = "synthetic"\nat_end = "wrap"\nusers = 999999999',
    "half a client": "[protocol]\nk = nan",
    "a fleet of the world": "[fleet]\ndevices = 1_000_000_000_000",
    "a selector of the system": '[selector]\nname = "os.system"',
    "an option that is none": '[selector]\nname = "oort"\noptions = { alpha = nan }',
    "a trainer of the system": '[trainer]\nkind = "subprocess"',
}


@pytest.mark.parametrize("text", SCENARIOS.values(), ids=SCENARIOS.keys())
def test_a_scenario_that_asks_for_too_much(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rest = {
        "[fleet]": "[fleet]\ndevices = 6",
        "[protocol]": "[protocol]\nrounds = 1\nk = 2",
        "[trainer]": '[trainer]\nkind = "surrogate"',
    }
    sections = [section for name, section in rest.items() if not text.startswith(name)]
    (tmp_path / "s.toml").write_text("\n".join(['name = "s"', *sections, text]))
    assert joulefleet(["emulate", "s.toml", "--seeds", "0", "--root", "runs"]) == 3
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert not list(tmp_path.glob("runs/*/*_s0/rounds*"))


def test_a_pipe_or_device_in_place_of_a_profile_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Named by a colleague's scenario, in the colleague's folder."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.json")
    Path("zero.json").symlink_to("/dev/zero")
    for name in ("pipe", "zero"):
        fleet = f'[fleet]\ndevices = 6\nprofiles = ["{name}.json"]'
        Path("s.toml").write_text(f'name = "s"\n{fleet}\n[protocol]\nk = 2\n[trainer]\nkind = "surrogate"\n')
        assert joulefleet(["emulate", "s.toml", "--seeds", "0", "--dry-run"]) == 1
        assert f"{name}.json: is no plain file" in " ".join(capsys.readouterr().err.split())
