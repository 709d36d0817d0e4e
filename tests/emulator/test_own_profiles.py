"""Profiles that people write by hand and bring as files or folders."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from device_agents.workloads.tasks import find_task
from emulator.runs.assembly import assemble
from emulator.runs.fleet_inputs import profiles_of
from emulator.scenario.load import load_scenario
from emulator.scenario.model import FleetSection
from harness.profiles.exchange import export_profiles
from joulefleet.errors import ConfigError
from joulefleet.provenance import Origin
from power.profile.model import load_profile
from power.reference import reference_fleet
from power.reference.facts import reference_facts
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "profiles.md").read_text(encoding="utf-8")
SOURCES = (REPOSITORY / "docs" / "reference-fleet.md").read_text(encoding="utf-8")
(BLOCK,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
TASK = find_task("mnist-lenet5")


def written(path: Path, **provenance: Any) -> Path:
    data = json.loads(BLOCK)
    data["provenance"] |= provenance
    path.write_text(json.dumps(data))
    return path


def test_the_documented_profile_is_one_and_says_literature(tmp_path: Path) -> None:
    (tmp_path / "acme-one.json").write_text(BLOCK)
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\n[fleet]\nprofiles = ["acme-one.json"]\n[trainer]\nkind = "surrogate"\n'
    )
    found = load_profile(tmp_path / "acme-one.json")
    assert found.origin is Origin.LITERATURE
    assert found.provenance.basis.endswith("; written by hand: the file has no seal")
    facts = assemble(load_scenario(tmp_path / "mine.toml"), 0).facts
    assert facts["cost_origin"] == "literature"
    assert facts["profiles"] == {"acme-one/lenet5/mnist/tflite": 100}
    assert facts["not_measured"]


@pytest.mark.parametrize("origin", ["measured", "guessed", 3])
def test_an_origin_that_cannot_be_written_by_hand(origin: object, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a file written by hand says 'imported', 'scaled', 'literature'"):
        load_profile(written(tmp_path / "p.json", origin=origin))


@pytest.mark.parametrize("origin", ["imported", "scaled", "literature", "emulated"])
def test_an_origin_that_can(origin: str, tmp_path: Path) -> None:
    assert load_profile(written(tmp_path / "p.json", origin=origin)).origin == origin


def test_a_folder_is_all_its_profiles(tmp_path: Path) -> None:
    phones = reference_fleet("mnist-lenet5")
    assert len(export_profiles(phones, tmp_path / "phones")) == len(phones) == 34
    (tmp_path / "phones" / "README.txt").write_text("not a profile")
    own = written(tmp_path / "acme-one.json")
    chosen = FleetSection(profiles=(str(tmp_path / "phones"), str(own)))
    found = profiles_of(chosen, TASK)
    assert {profile.device for profile in found} == {phone.device for phone in phones} | {"acme-one"}
    assert len(found) == 35


def test_a_path_that_leads_nowhere_says_where_it_was_looked_for(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('name = "mine"\n[fleet]\nprofiles = ["phnes"]\n')
    with pytest.raises(ConfigError, match=f"{tmp_path}/phnes: no such file or folder") as caught:
        profiles_of(load_scenario(tmp_path / "mine.toml").fleet, TASK)
    assert "relative to the scenario file" in caught.value.hint
    with pytest.raises(ConfigError, match="a folder without profiles"):
        profiles_of(FleetSection(profiles=(str(tmp_path),)), TASK)


def test_the_sources_that_are_named_are_those_of_the_facts() -> None:
    for name, source in reference_facts().sources.items():
        if name in ("bodt", "flash", "freqbench", "sigcomm21", "extrasensory"):
            assert source.place.split(",")[0] in SOURCES, name
