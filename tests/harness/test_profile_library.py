"""Profiles by name and by file, and what they are called when they travel."""

from pathlib import Path

import pytest

from harness.profiles.exchange import export_profiles
from harness.profiles.library import captures_in, file_stem, find_profile
from joulefleet.errors import ConfigError, DataQualityError
from power.profile import save_profile
from power.reference import reference_fleet


def test_a_file_has_the_label_and_an_id_only_where_two_have_the_same(tmp_path: Path) -> None:
    first, second = reference_fleet()[:2]
    other = first.model_copy(update={"samples": first.samples + 1, "content_sha256": None})
    written = export_profiles([first, second], tmp_path / "unlike")
    assert [path.name for path in written] == [f"{file_stem(first)}.json", f"{file_stem(second)}.json"]
    assert file_stem(first) != file_stem(second)
    alike = [path.name for path in export_profiles([first, second, other], tmp_path / "alike")]
    assert alike[1] == f"{file_stem(second)}.json"
    assert alike[0] != alike[2]
    assert all(name.startswith(f"{file_stem(first)}_") for name in (alike[0], alike[2]))
    assert len(list((tmp_path / "alike").iterdir())) == 3


def test_a_profile_by_its_file_or_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that has the name of a device, and a file that is not there, are no profiles."""
    monkeypatch.chdir(tmp_path)
    first, second = reference_fleet()[:2]
    save_profile(first, tmp_path / "own.json")
    assert find_profile("own.json", tmp_path).profile.label == first.label
    (tmp_path / second.label.replace("/", "_")).mkdir()
    found = find_profile(second.label, tmp_path / "runs")
    assert (found.profile.label, found.path) == (second.label, None)
    Path(second.label).mkdir(parents=True)  # a label has slashes: it is a path too
    assert find_profile(second.label, tmp_path / "runs").profile == second
    with pytest.raises(ConfigError, match=r"gone\.json"):
        find_profile("gone.json", tmp_path)


def test_a_folder_without_a_capture_has_none(tmp_path: Path) -> None:
    with pytest.raises(DataQualityError, match="no finished capture in it"):
        captures_in(tmp_path)
