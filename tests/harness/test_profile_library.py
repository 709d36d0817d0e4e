"""Profiles by name and by file, and what they are called when they travel."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from harness.profiles.exchange import export_profiles
from harness.profiles.library import (
    Stored,
    _put_earlier_aside,
    build_run_profiles,
    captures_in,
    file_stem,
    find_profile,
    store,
)
from joulefleet.errors import ConfigError, DataQualityError
from joulefleet.provenance import SourceRef
from power.profile import save_profile
from power.reference import reference_fleet
from tests.harness.profile_captures import Stretch, write


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


def test_of_many_that_fit_five_are_named_and_the_others_counted(tmp_path: Path) -> None:
    many = [profile.label for profile in reference_fleet() if "lenet5" in profile.label]
    with pytest.raises(
        ConfigError, match=rf"fits {len(many)} profiles: .* and {len(many) - 5} more"
    ) as caught:
        find_profile("lenet5", tmp_path)
    assert [label for label in many if label in caught.value.message] == many[:5]
    five = [reference_fleet()[0].model_copy(update={"model": f"odd-{i}"}) for i in range(5)]
    export_profiles(five, tmp_path / "RUN" / "profiles")
    (tmp_path / "RUN" / "run.json").write_text("{")
    with pytest.raises(ConfigError, match="fits 5 profiles: ") as caught:
        find_profile("odd-", tmp_path)
    assert " more" not in caught.value.message


def test_a_name_that_is_a_third_right_has_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        find_profile("mnist lenet", tmp_path)
    assert "did you mean" in caught.value.hint
    with pytest.raises(ConfigError) as caught:
        find_profile("zzzz", tmp_path)
    assert "did you mean" not in caught.value.hint


def test_a_profile_is_of_a_run_only_in_its_folder_of_profiles(tmp_path: Path) -> None:
    profile = reference_fleet()[0]
    run = tmp_path / "20260302T090000Z_bench_12345678"
    assert Stored(profile, None).run == ""
    assert Stored(profile, run / "one.json").run == ""
    assert Stored(profile, run / "profiles" / "one.json").run == run.name
    assert Stored(profile, run / "profiles" / "one.json").created_utc == datetime(2026, 3, 2, 9, tzinfo=UTC)
    assert Stored(profile, run / "one.json").created_utc is None


def test_why_no_profile_was_built_is_told(tmp_path: Path) -> None:
    """Of the one capture of a run, without a probe's epoch."""
    write(tmp_path / "run" / "c", [Stretch(1.0, 2.0)], local_epochs=1)
    built = build_run_profiles(tmp_path / "run")
    assert built.profiles == ()
    assert len(built.problems) == 1
    assert "no usable" in built.problems[0]


def test_earlier_profiles_are_put_aside_more_than_once(tmp_path: Path) -> None:
    profile = reference_fleet()[0]
    sources = tuple(SourceRef(id=f"run/{i}", sha256="0" * 64) for i in range(3))
    resting = [
        profile.model_copy(
            update={"provenance": profile.provenance.model_copy(update={"sources": sources[: i + 1]})}
        )
        for i in range(3)
    ]
    for later in (1, 2):
        stored = store(resting[later - 1], tmp_path)
        _put_earlier_aside(tmp_path, [resting[later]])
        assert stored.path is not None
        assert (tmp_path / "earlier" / stored.path.name).is_file()
    assert len(list((tmp_path / "earlier").iterdir())) == 2
