"""`docs/traces.md` says what the code does: its words, its recipe, its table and its program."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from emulator.scenario.model import Scenario
from harness.cli.traces.commands import traces as commands
from joulefleet.config import parse_toml
from tests.conftest import REPOSITORY
from traces.replay.devices import FleetRecipe
from traces.replay.flat_store import write_flat
from traces.replay.intensity import load_table
from traces.replay.policy import WORDS, parse_policy
from traces.replay.policy import __doc__ as grammar
from traces.synth.model import load_model
from traces.synth.write import synthesise

PAGE = (REPOSITORY / "docs" / "traces.md").read_text(encoding="utf-8")


def block(language: str, holding: str = "") -> str:
    blocks = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    (found,) = (text for text in blocks if holding in text)
    return found


def test_every_word_of_a_policy_and_the_grammar() -> None:
    for word, (_, meaning) in WORDS.items():
        assert f"| `{word}` | {meaning} |" in PAGE
    rules = [line.split() for line in grammar.splitlines() if " = " in line]
    assert len(rules) == 4
    section = PAGE[PAGE.index("## Policies") :]
    assert rules == [
        line.split() for line in section.splitlines() if re.match(r"(policy|conj|factor|level)\w* +=", line)
    ]


def test_every_field_of_a_recipe_and_every_command() -> None:
    for field in FleetRecipe.model_fields.keys() - {"schema_version"}:
        assert f"`{field}`" in PAGE, field
    for name in commands.commands:
        assert f"joulefleet traces {name}" in PAGE, name


def test_the_intensity_table_is_one(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(block("toml", "[[category]]"), encoding="utf-8")
    table = load_table(path)
    assert table.row("com.example.game").cpu == 0.31
    assert table.row("com.example.mail").cpu == 0.10


def test_the_scenario_with_networks_is_one() -> None:
    scenario = parse_toml(block("toml", "[fleet.network]"), Scenario, name="mine.toml")
    assert scenario.fleet.model_dump()["network"] == {"source": "networks"}


def test_the_scenario_is_one() -> None:
    scenario = parse_toml(block("toml", "my-phones"), Scenario, name="mine.toml")
    assert scenario.fleet.traces is not None
    assert (scenario.fleet.traces.source, scenario.fleet.traces.start) == ("phones", "20:00")
    parse_policy(scenario.fleet.traces.policy)


def test_the_program_runs_and_its_two_ways_agree(tmp_path: Path) -> None:
    people = synthesise(load_model("default"), tmp_path / "people", users=30, days=3, seed=1)
    write_flat(people, tmp_path / "people-flat")
    program = block("python").replace("1_000_000", "10_000")
    program += "assert cpu_s.max() > 1\n"
    program += "np.testing.assert_allclose(cpu_s, mean.cpu * (until_ns - t_ns) * 1e-9, rtol=1e-6)\n"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
