"""`examples/scenario.toml`: complete, true about defaults, and it runs."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from emulator.scenario.load import load_scenario, preset_names, preset_text
from emulator.scenario.model import Scenario, TracesSection
from harness.cli import run
from joulefleet.config import parse_toml
from joulefleet.errors import ConfigError
from tests.conftest import REPOSITORY

PATH = REPOSITORY / "examples" / "scenario.toml"
TEXT = PATH.read_text(encoding="utf-8")
# Keys that are commented out, and tables of them; prose is not `key = value`.
EVERYTHING = re.sub(r'^# (?=\[[\w.]+\]$|[\w"][\w ]*"? = )', "", TEXT, flags=re.MULTILINE)


def keys(model: type[BaseModel], inside: str = "") -> set[str]:
    """Every key of a model and of the tables in it."""
    found = set()
    for name, field in model.model_fields.items():
        kind = TracesSection if name == "traces" else field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found |= keys(kind, f"{inside}{name}.")
        else:
            found.add(inside + name)
    return found


def written(data: dict[str, Any], known: set[str], inside: str = "") -> dict[str, Any]:
    found = {}
    for name, value in data.items():
        if inside + name in known:
            found[inside + name] = value
        else:
            found |= written(value, known, f"{inside}{name}.")
    return found


def test_it_has_every_key_and_is_a_scenario_with_and_without_the_commented() -> None:
    known = keys(Scenario) - {"schema_version", "code"}  # hashes, which joulefleet writes
    assert "fleet.traces.jitter_s" in known
    assert set(written(tomllib.loads(EVERYTHING), known)) == known
    parse_toml(EVERYTHING, Scenario, name="with all of them")
    assert load_scenario(PATH).fleet.traces is not None


def test_its_values_are_the_defaults_or_the_comment_says_them() -> None:
    known = keys(Scenario)
    plain = Scenario(name="example").model_dump(mode="json")
    plain["fleet"]["traces"] = TracesSection(at_end="wrap").model_dump(mode="json")
    defaults = written(plain, known)
    others = {k: defaults[k] for k, v in written(tomllib.loads(TEXT), known).items() if v != defaults[k]}
    assert others.pop("task.batch_size") is others.pop("task.learning_rate") is None
    assert "default: the task's own" in TEXT
    said = re.findall(r'default ("?[\w-]+"?|{})', TEXT)
    assert sorted(said) == sorted(f'"{v}"' if isinstance(v, str) else str(v) for v in others.values())


def test_it_can_be_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "mine.toml"
    copy.write_text(TEXT, encoding="utf-8")
    assert run(["emulate", str(copy), "--dry-run", "--selector", "fedavg,fedrank"]) == 0
    out = capsys.readouterr().out
    assert "20 devices" in out
    assert "5 of 4 clients from 12 candidates" in out


def test_a_preset_is_printed_as_a_file_to_begin_with(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "scenarios", "quick"]) == 0
    assert capsys.readouterr().out == preset_text("quick")
    assert parse_toml(preset_text("quick"), Scenario, name="printed") == load_scenario("quick")
    with pytest.raises(ConfigError, match="no preset called 'quik'") as caught:
        preset_text("quik")
    assert "did you mean 'quick'?" in caught.value.hint
    assert all(name in caught.value.hint for name in preset_names())
