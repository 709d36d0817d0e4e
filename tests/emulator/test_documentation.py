"""`docs/emulator.md` says what a run leaves on disk, and its notebook recipe works."""

import re
import time
from pathlib import Path
from typing import Any

import pytest

import joulefleet
from emulator.compare.load import compare_emulations
from emulator.compare.render import rows
from emulator.round.outcome import COSTS
from emulator.runs.batch import plan, play, run, start
from emulator.runs.replay.devices import devices_schema
from emulator.runs.tables import clients_schema, rounds_schema
from emulator.scenario.load import preset_names
from emulator.scenario.model import FleetSection, ProtocolSection, Scenario, TrainerSection
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "emulator.md").read_text(encoding="utf-8")
ON_DISK = PAGE[PAGE.index("## On disk") : PAGE.index("## Your own")]
SMALL = Scenario(
    name="small",
    fleet=FleetSection(devices=10),
    protocol=ProtocolSection(rounds=2, k=2),
    trainer=TrainerSection(kind="surrogate"),
)


def test_every_column_of_a_run() -> None:
    named = set(re.findall(r"`(\w+)`", ON_DISK))
    fates = {name for name in rounds_schema([]).names if name.startswith("n_")}
    assert {"n_finished", "n_rejected"} <= fates & named
    assert set(rounds_schema([]).names) - fates <= named
    assert set(devices_schema().names) <= named
    costs = set(COSTS)
    assert {name[:-2] for name in costs} | set(clients_schema().names) - costs <= named


def test_the_recipe_for_notebooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the newest of two runs, the older one with the same selectors and seeds."""
    monkeypatch.chdir(tmp_path)
    index = plan(SMALL, ["fedavg", "tifl"], [0, 1])
    with start(Path("emulations"), index, "") as started:
        play(started, index)
    time.sleep(1)  # the names of runs tell seconds
    with start(Path("emulations"), index, "") as started:
        played = play(started, index)
    program, line = re.findall(r"```python\n(.*?)```", ON_DISK, re.DOTALL)
    found: dict[str, Any] = {}
    exec(program, found)  # the page's own words
    assert len(found["found"].results) == 4
    assert eval(line, found).index.names == ["phone", "fate"]
    curves = found["curves"]
    assert set(curves.index.get_level_values("method")) == {"fedavg", "tifl"}
    own = [result.rounds for result in played if result.record.selector == "tifl"]
    expected = sum(table["time_s_honest"].sum() for table in own) / 2
    assert curves.loc[("tifl", 2), "time_s"] == pytest.approx(expected)


def test_every_column_of_a_comparison(tmp_path: Path) -> None:
    for seed in (0, 1):
        run(SMALL, seed=seed, out=tmp_path)
    text = (REPOSITORY / "docs" / "comparing.md").read_text(encoding="utf-8")
    header, _ = rows(compare_emulations([tmp_path], target=0.0).comparison, "time_to_target_s")
    for title in header[1:]:
        column = re.sub(r"^vs .*", "vs NAME", title).removesuffix(" s")
        assert f"\n| {column} |" in text, title


@pytest.mark.timeout(600)
def test_the_table_that_is_read_is_the_one_that_is_printed(tmp_path: Path) -> None:
    text = (REPOSITORY / "docs" / "comparing.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"emulate quick --selector (\S+) --seeds 0-4", text)
    (block,) = re.findall(r"```text\n(energy per round.*?)```", text, re.DOTALL)
    found = joulefleet.emulate("quick", selectors=line.split(","), seeds=range(5), out=tmp_path)
    header, table = rows(compare_emulations([found.path]).comparison, "round_energy_j")
    shown = [" ".join(row.split()) for row in block.splitlines()[1:]]
    assert shown == [" ".join(" ".join(row).split()) for row in [header, *table]]


def test_where_presets_live() -> None:
    (folder,) = re.findall(r"`(emulator/scenario/\w+/)`", PAGE)
    assert sorted(path.stem for path in (REPOSITORY / folder).glob("*.toml")) == preset_names()


def test_what_the_code_points_to_is_there() -> None:
    notes = (REPOSITORY / "docs" / "selectors-notes.md").read_text(encoding="utf-8")
    items = set(re.findall(r"\bA\d+\b", notes))
    for file in (REPOSITORY / "emulator").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for page in re.findall(r"\b(?:docs/)?[\w/-]+\.md\b", text):
            assert (REPOSITORY / page).is_file(), (file, page)
        assert set(re.findall(r"(?<=[ (,])A\d\d?\b(?=[,;:) ])", text)) <= items, file
