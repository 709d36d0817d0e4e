"""`docs/selectors.md` says what the code does: the fields and how one is added; its notes have every item."""

import re
import tomllib
from pathlib import Path

import pytest

from emulator.compare.load import compare_emulations
from emulator.round.view import PRIVILEGED_FIELDS, SCALARS, VIEW_FIELDS
from emulator.selectors.registry import SELECTORS
from harness.cli import run
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "selectors.md").read_text(encoding="utf-8")
HOW_TO = PAGE[PAGE.index("## Adding one") :]
NOTES = (REPOSITORY / "docs" / "selectors-notes.md").read_text(encoding="utf-8")


def test_every_selector_is_in_the_table() -> None:
    rows = "".join(row.split("|")[1] for row in PAGE.splitlines() if row.startswith("| `"))
    assert {name for name in SELECTORS.entries() if f"`{name}`" not in rows} == set()


def test_every_field_that_can_be_asked_for() -> None:
    kept_by_the_engine = {"asked"}
    fields = (VIEW_FIELDS | SCALARS) - kept_by_the_engine
    assert {name for name in fields if f"`{name}`" not in HOW_TO} == set()
    (oracles,) = [line for line in HOW_TO.splitlines() if "privileged = True" in line]
    assert {name for name in PRIVILEGED_FIELDS if f"`{name}`" not in oracles} == set()


def test_every_item_of_the_paper_once() -> None:
    found = [row.group(1) for row in re.finditer(r"^\| (A\d+(?:, A\d+)*) ", NOTES, re.MULTILINE)]
    numbers = [int(item[1:]) for row in found for item in row.split(", ")]
    assert sorted(numbers) == list(range(1, 37))


def test_the_entry_point_is_the_one_that_is_looked_for() -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", HOW_TO, re.DOTALL)
    assert list(tomllib.loads(block)["project"]["entry-points"]) == [SELECTORS.group]


def test_an_own_one_is_compared_with_a_built_in_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(REPOSITORY / "examples")
    (program,) = re.findall(r"```python\n(.*?)```", HOW_TO, re.DOTALL)
    exec(program.replace("range(5)", "range(1)"), {})  # the page's own words
    assert run(["emulate", "quick", "--selector", "fedavg", "--seeds", "0"]) == 0
    found = compare_emulations([Path("mine"), Path("emulations")], pairs=[("loss_per_joule", "fedavg")])
    assert found.comparison.seeds == (0,)
    assert set(found.comparison.cells) == {"loss_per_joule", "fedavg"}
