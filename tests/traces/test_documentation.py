"""`docs/traces.md` says what the code does: its words, its recipe, its table and its program."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from harness.cli.traces import traces as commands
from tests.conftest import REPOSITORY
from traces.devices import FleetRecipe
from traces.flat_store import write_flat
from traces.intensity import load_table
from traces.policy import WORDS
from traces.policy_text import __doc__ as grammar
from traces.synth.model import load_model
from traces.synth.write import synthesise

PAGE = (REPOSITORY / "docs" / "traces.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return found


def test_every_word_of_a_policy_and_the_grammar() -> None:
    for word, (_, meaning) in WORDS.items():
        assert f"| `{word}` | {meaning} |" in PAGE
    rules = [line.split() for line in grammar.splitlines() if " = " in line]
    assert len(rules) == 4
    assert rules == [
        line.split() for line in PAGE.splitlines() if re.match(r"(policy|conj|factor|level)\w* +=", line)
    ]


def test_every_field_of_a_recipe_and_every_command() -> None:
    for field in FleetRecipe.model_fields.keys() - {"schema_version"}:
        assert f"`{field}`" in PAGE, field
    for name in commands.commands:
        assert f"fedjoule traces {name}" in PAGE, name


def test_the_intensity_table_is_one(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(block("toml"), encoding="utf-8")
    table = load_table(path)
    assert table.row("com.example.game").cpu == 0.31
    assert table.row("com.example.mail").cpu == 0.10


def test_the_program_runs_and_its_two_ways_agree(tmp_path: Path) -> None:
    people = synthesise(load_model("default"), tmp_path / "people", users=30, days=3, seed=1)
    write_flat(people, tmp_path / "people-flat")
    program = block("python").replace("1_000_000", "10_000")
    program += "assert cpu_s.max() > 1\n"
    program += "np.testing.assert_allclose(cpu_s, mean.cpu * (until_ns - t_ns) * 1e-9, rtol=1e-6)\n"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
