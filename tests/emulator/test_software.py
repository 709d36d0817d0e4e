"""The hash of the code that decides results."""

import subprocess
import sys
from pathlib import Path

import pytest

from emulator.runs import software
from emulator.runs.batch import plan, reopen, start
from emulator.runs.software import deciding_files, hash_of, sources_sha256
from emulator.scenario.load import load_scenario
from joulefleet.errors import ConfigError


def test_what_decides_a_number_is_hashed_and_what_shows_it_is_not() -> None:
    files = deciding_files()
    deciding = (
        "emulator/round/engine.py",
        "emulator/selectors/fedavg.py",
        "traces/replay/policy.py",
        "power/profile/model.py",
    )
    for name in (*deciding, "device_agents/workloads/tasks.py", "joulefleet/seeds.py"):
        assert files[name].is_file()
    assert not [name for name in files if name.startswith(("emulator/compare/", "emulator/experiments/"))]
    assert not [name for name in files if name.startswith(("harness/", "device_agents/payload"))]
    assert sources_sha256() == hash_of(files)


def test_no_instrument_is_hashed() -> None:
    drivers = ("power/meters/", "power/wire/", "power/emulated/", "traces/readers/", "traces/synth/fit/")
    assert not [name for name in deciding_files() if name.startswith(drivers)]


def test_a_resumed_run_asks_for_the_same_numbers_not_the_same_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, timeline = (tmp_path / f"{name}.py" for name in ("engine", "timeline"))
    names = {"emulator/round/engine.py": engine, "emulator/round/timeline.py": timeline}
    for name, copy in names.items():
        copy.write_text(deciding_files()[name].read_text())
    files = {**deciding_files(), **names}
    monkeypatch.setattr(software, "deciding_files", lambda: files)
    monkeypatch.setattr(software, "sources_sha256", sources_sha256.__wrapped__)
    index = plan(load_scenario("quick"), ["fedavg"], [0])
    with pytest.raises(KeyboardInterrupt), start(tmp_path / "runs", index) as run:
        raise KeyboardInterrupt
    engine.write_text(engine.read_text().replace('"""The round engine', '"""Rounds', 1))
    with pytest.raises(KeyboardInterrupt), reopen(run.path)[0]:
        raise KeyboardInterrupt
    text = timeline.read_text()
    timeline.write_text(text.replace("FORWARD_SHARE = 1.0 / 3.0", "FORWARD_SHARE = 1.0 / 2.0"))
    assert timeline.read_text() != text
    with pytest.raises(ConfigError, match=r"was made by other software.*sources"):
        reopen(run.path)


def test_other_code_is_another_hash(tmp_path: Path) -> None:
    file = tmp_path / "engine.py"
    file.write_text("a = 1\n")
    before = hash_of({"engine.py": file})
    assert hash_of({"other.py": file}) != before
    file.write_text("a = 2\n")
    assert hash_of({"engine.py": file}) != before


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("a = 1\n", "# why\na  =  1\n"),
        ("a = 1\n", '"""Of the file."""\n\na = 1\n"""Of the number."""\n'),
        ("def f():\n    return 1\n", 'def f():\n    """What it gives."""\n    return 1\n'),
        ("class A:\n    x = 1\n", 'class A:\n    """Of the class."""\n\n    x = 1\n    """Of x."""\n'),
    ],
)
def test_what_is_written_for_readers_is_not_hashed(tmp_path: Path, text: str, other: str) -> None:
    file = tmp_path / "engine.py"
    file.write_text(text)
    before = hash_of({"engine.py": file})
    file.write_text(other)
    assert hash_of({"engine.py": file}) == before
    file.write_text(other.replace("1", "2"))
    assert hash_of({"engine.py": file}) != before


def test_a_public_name_more_changes_no_number(tmp_path: Path) -> None:
    file = tmp_path / "__init__.py"
    file.write_text("__getattr__, __dir__, __all__ = lazy_names(__name__, {})\n")
    before = hash_of({"round/__init__.py": file})
    file.write_text("__getattr__, __dir__, __all__ = lazy_names(__name__, {'a': ('b',)})\n")
    assert hash_of({"round/__init__.py": file}) == before


IN_EMULATIONS = """
import sys
from pathlib import Path
from emulator.runs.batch import plan, play, start
from emulator.scenario.load import load_scenario
out = Path(sys.argv[1])
quick = load_scenario("quick")
short = quick.model_copy(update={"protocol": quick.protocol.model_copy(update={"rounds": 1})})
index = plan(short, ["fedrank", "oort"], [0])
with start(out, index) as run:
    play(run, index)
ours = {"device_agents", "emulator", "joulefleet", "power", "traces"}
for name, module in sorted(sys.modules.items()):
    if name.partition(".")[0] in ours and not hasattr(module, "__path__"):
        print(name.replace(".", "/") + ".py")
"""
DECIDE_NOTHING = {
    "emulator/runs/batch.py": "plays what is planned",
    "emulator/runs/opening.py": "opens folders",
    "emulator/runs/planning.py": "says what is played; the scenario of each emulation is stored with it",
    "emulator/runs/replay/devices.py": "says who the devices were; no round asks",
    "emulator/runs/replay/floors.py": "says what the fleet allows; no round asks",
    "emulator/runs/result.py": "reads back",
    "emulator/runs/software.py": "is this very hash",
    "traces/quality/checks.py": "refuses traces, never changes one",
}


def test_all_code_that_an_emulation_uses_is_hashed(tmp_path: Path) -> None:
    """Of the common ground only the seeds decide a number; of packages, what is in their modules."""
    command = [sys.executable, "-c", IN_EMULATIONS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    used = {name for name in done.stdout.split() if not name.startswith("joulefleet/")}
    assert len(used) > 60
    assert used - set(deciding_files()) == set(DECIDE_NOTHING)
