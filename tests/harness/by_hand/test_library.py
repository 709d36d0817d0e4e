"""Profiles of made-up runs: which captures count, what is stored where, what is believed, who is found."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.evidence.capture import DeviceFacts
from harness.profiles.library import (
    Stored,
    build_run_profiles,
    captures_in,
    file_stem,
    find_profile,
    profiles_at,
    read,
    recalibrated,
    run_profiles,
    store,
    stored_profiles,
    verifier,
)
from joulefleet.errors import ConfigError, DataQualityError, StorageError
from joulefleet.provenance import Origin, SourceRef
from joulefleet.runstore import RunStore
from power.calibration import CurrentCorrection, MeterCalibration
from power.profile import DeviceProfile, StatedSpread, save_profile
from power.reference import listed_fleet, reference_fleet
from tests.harness.profile_captures import Stretch, one_round, write

STATED = StatedSpread(relative_sd=0.03, source="our own bench")


@dataclass
class Bench:
    path: Path
    run_id: str

    def capture(self, name: str, seconds: float = 1.0, device: str = "board", **facts: object) -> None:
        """One round of two epochs, on an instrument that says it is real."""
        facts = {"capture_id": f"{self.run_id}/{name}", **facts}
        device_facts = DeviceFacts(name=device, transport="ssh")
        write(
            self.path / "jobs" / name,
            one_round([seconds, seconds]),
            emulated=False,
            device=device_facts,
            **facts,
        )


def bench(root: Path, *names: str) -> Bench:
    with RunStore(root).create("bench", kind="bench") as made:
        made.subfolder("jobs")
    new = Bench(made.path, made.record.run_id)
    for i, name in enumerate(names):
        new.capture(name, 1.0 + 0.25 * i)
    return new


@pytest.fixture
def run(tmp_path: Path) -> Bench:
    return bench(tmp_path / "runs", "b", "a")


def test_finished_captures_in_order_and_failed_attempts_aside(run: Bench) -> None:
    shutil.copytree(run.path / "jobs" / "a", run.path / "failed" / "a-attempt1")
    shutil.copytree(run.path / "jobs" / "a", run.path / "jobs" / "failed" / "a-attempt2")
    assert [one.folder.name for one in captures_in(run.path)] == ["a", "b"]
    kept = run.path.rename(run.path.parent / "failed")  # what lies above the folder says nothing about it
    assert len(captures_in(kept)) == 2
    with pytest.raises(DataQualityError, match="no finished capture in it"):
        captures_in(kept / "config")
    (kept / "link").symlink_to(kept)
    with pytest.raises(StorageError, match="link is a link"):
        captures_in(kept)


def test_a_capture_that_changed_is_named_with_its_files(run: Bench) -> None:
    markers = run.path / "jobs" / "b" / "markers.jsonl"
    markers.write_text(markers.read_text().replace('"epoch":2', '"epoch":3'))
    with pytest.raises(DataQualityError, match=r"jobs/b: markers\.jsonl changed since"):
        captures_in(run.path)


def test_one_profile_of_each_device_and_none_of_those_to_leave_out(run: Bench) -> None:
    run.capture("c", 3.0, device="other")
    write(run.path / "jobs" / "d", [Stretch(1.0, 2.0)], local_epochs=1, workload="mnist-mlp")
    built = build_run_profiles(run.path)
    assert [(one.profile.device, one.profile.epoch.duration_s.mean) for one in built.profiles] == [
        ("board", pytest.approx(1.125)),
        ("other", pytest.approx(3.0)),
    ]
    (problem,) = built.problems
    assert problem.startswith("board, mnist-mlp with torch: ")
    assert [one.path.parent for one in built.profiles if one.path] == [run.path / "profiles"] * 2
    less = build_run_profiles(run.path, without={("board", "mnist-lenet5", "torch")})
    assert [one.profile.device for one in less.profiles] == ["other"]
    assert less.problems == built.problems
    none = build_run_profiles(
        run.path, without={(d, "mnist-lenet5", "torch") for d in ("board", "other")}
    )  # fmt: skip
    assert (none.profiles, none.problems) == ((), built.problems)


def test_profiles_of_several_runs_or_of_a_stated_spread_lie_beside_them(run: Bench) -> None:
    other = bench(run.path.parent, "c", "d")
    (both,) = build_run_profiles(run.path, str(other.path), run.path).profiles
    assert (both.profile.epoch.duration_s.n, len(both.profile.provenance.sources)) == (4, 4)
    (stated,) = build_run_profiles(run.path, stated_spread=STATED).profiles
    assert stated.profile.stated_spread == STATED
    assert {one.run.split("_")[1] for one in (both, stated)} == {"profiles"}
    assert both.run != stated.run
    assert not (run.path / "profiles").exists()
    copy = shutil.copytree(run.path, run.path.parent.parent / "copy")
    with pytest.raises(DataQualityError, match=f"capture {run.run_id}/a is in {run.path}.* and in {copy}"):
        build_run_profiles(run.path, copy)
    for record in copy.rglob("capture.json"):  # under names of its own
        record.write_text(record.read_text().replace(run.run_id, "another"))
    with pytest.raises(DataQualityError, match=r"recording [0-9a-f]{16} is in "):
        build_run_profiles(run.path, copy)


def test_a_profile_of_fewer_captures_gives_way_to_that_of_more(run: Bench) -> None:
    """One of other captures stays, and so does what is no profile, or one of another device."""
    (first,) = build_run_profiles(run.path).profiles
    run.capture("0", 2.0)
    run.capture("c", device="another")
    assert first.path is not None
    folder = first.path.parent
    (folder / "0.json").write_text("{")
    unlike = {
        "other-device": first.profile.model_copy(update={"device": "other"}),
        "other-captures": first.profile.model_copy(
            update={
                "provenance": first.profile.provenance.model_copy(
                    update={"sources": (SourceRef(id="x/1", sha256="0" * 64),)}
                )
            }
        ),
    }
    kept = [store(profile, folder).path for profile in unlike.values()]
    later = build_run_profiles(run.path).profiles
    assert {*folder.glob("*.json")} == {*(one.path for one in later), *kept, folder / "0.json"}
    assert [path.name for path in (folder / "earlier").iterdir()] == [first.path.name]
    assert build_run_profiles(run.path).profiles == later


def calibration(gain: float = 1.1, name: str = "only") -> MeterCalibration:
    corrected = CurrentCorrection(gain=gain, gain_uncertainty=0.01)
    return MeterCalibration(current={name: corrected}, k=2)


def test_a_calibration_belongs_to_the_meter_of_one_device(run: Bench) -> None:
    run.capture("c", device="other")
    captures = captures_in(run.path)
    new = calibration()
    found = recalibrated(captures, new, "board")
    assert [one.recording.calibration for one in found] == [new, new, None]
    assert [one.record for one in found] == [one.record for one in captures]
    for device in ("", "board"):
        assert [one.recording.calibration for one in recalibrated(captures[:2], new, device)] == [new, new]
    with pytest.raises(ConfigError, match=r"fits the meters of board, other\n") as caught:
        recalibrated(captures[::-1], new, "")
    assert "--device" in caught.value.hint
    with pytest.raises(ConfigError, match="no capture of a device 'nobody'"):
        recalibrated(captures, new, "nobody")
    with pytest.raises(ConfigError, match="range 'fine'"):
        recalibrated(captures, calibration(name="fine"), "board")
    (plain, _), (built, unlike) = (
        [one.profile for one in build_run_profiles(run.path, calibration=by, device="board").profiles]
        for by in (None, new)
    )
    assert built.epoch.gross_j.mean == pytest.approx(1.1 * plain.epoch.gross_j.mean, rel=1e-6)
    assert unlike.provenance.calibration_sha256 is None


def test_storing_twice_is_storing_once_and_names_are_those_of_files(tmp_path: Path) -> None:
    profile = reference_fleet()[0].model_copy(update={"device": "my/board #1 (new)", "content_sha256": None})
    first = store(profile, tmp_path)
    assert first.path is not None
    before = first.path.stat()
    assert store(first.profile, tmp_path) == first
    assert first.path.stat() == before
    assert first.profile.content_sha256 is not None
    assert first.id == first.profile.content_sha256[:8]
    assert Stored(profile, None).id == first.id
    assert first.path.name == f"{file_stem(profile)}_{first.id}.json"
    assert file_stem(profile).startswith("my_board_1_new_")
    assert not set(file_stem(profile)) & set("/# ()")
    assert (first.place, Stored(profile, None).place) == (str(first.path), "reference fleet")


def test_captures_prove_a_profile_in_their_run_and_beside_it(run: Bench) -> None:
    other = bench(run.path.parent, "c")
    hashes = {
        one.record.capture_id: one.record.sha256()
        for folder in (run, other)
        for one in captures_in(folder.path)
    }
    (mine, *_), (theirs,) = (
        [SourceRef(id=name, sha256=sha) for name, sha in hashes.items() if name.startswith(of.run_id)]
        for of in (run, other)
    )
    verify = verifier(run.path)
    for i in range(20):
        (run.path.parent / f"empty{i}_{other.run_id}").mkdir()
    assert verify(mine)
    assert verify(theirs)
    assert not verify(mine.model_copy(update={"sha256": theirs.sha256}))
    assert not verify(SourceRef(id=f"{other.run_id}/d", sha256=theirs.sha256))
    assert not verify(SourceRef(id="*/c", sha256=theirs.sha256)), "a name is no pattern"
    (other.path / "jobs" / "c" / "markers.jsonl").write_text("")
    assert verify(theirs), "each run is looked at once"
    assert not verifier(run.path)(theirs)
    run.capture("c", 1.5)
    last = captures_in(run.path)[-1].record
    (run.path / "jobs" / "a" / "markers.jsonl").write_text("")
    (run.path / "jobs" / "c" / "link").symlink_to(run.path)
    (run.path / "jobs" / "0").mkdir()
    (run.path / "jobs" / "0" / "capture.json").write_text("{")
    changed = verifier(run.path)
    asked = [*hashes.items(), (last.capture_id, last.sha256())]
    found = {name: changed(SourceRef(id=name, sha256=sha)) for name, sha in asked if run.run_id in name}
    assert found == {f"{run.run_id}/a": False, f"{run.run_id}/b": True, f"{run.run_id}/c": False}


def origins(*found: Stored) -> list[Origin]:
    return [one.profile.origin for one in found]


def test_a_profile_claims_what_the_captures_around_it_prove(run: Bench, tmp_path: Path) -> None:
    (built,) = build_run_profiles(run.path).profiles
    assert built.path is not None
    assert origins(built, read(built.path), *run_profiles(run.path)) == [Origin.MEASURED] * 3
    assert read(built.path).path == built.path
    beside = shutil.copy(built.path, run.path / "copy.json")
    assert origins(read(Path(beside))) == [Origin.MEASURED]
    (tmp_path / "away").mkdir()
    alone = shutil.copy(built.path, tmp_path / "away" / "alone.json")
    assert origins(read(Path(alone))) == [Origin.IMPORTED]
    assert [one.path for one in stored_profiles(run.path.parent)] == [built.path]
    assert stored_profiles(tmp_path / "absent") == []
    assert stored_profiles(built.path) == []


def test_profiles_in_files_and_runs(run: Bench, tmp_path: Path) -> None:
    other = bench(run.path.parent, "c")
    run.capture("d", device="other")
    for one in (run, other):
        build_run_profiles(one.path)
    file = tmp_path / "own.json"
    save_profile(reference_fleet()[0], file)
    found = profiles_at([run.path, file, other.path])
    published = reference_fleet()[0]
    assert [(one.device, one.origin) for one in found] == [
        ("board", Origin.MEASURED), ("other", Origin.MEASURED), (published.device, published.origin),
        ("board", Origin.MEASURED),
    ]  # fmt: skip
    assert [len(one.provenance.sources) for one in found if one.origin is Origin.MEASURED] == [2, 1, 1]
    assert len(stored_profiles(run.path.parent)) == 3
    with pytest.raises(ConfigError, match="no profiles in it") as caught:
        profiles_at([run.path, tmp_path])
    assert f"profile build {tmp_path.name}" in caught.value.hint


def test_any_folder_without_profiles_is_not_judged(run: Bench, tmp_path: Path) -> None:
    """One with profiles is a run, in which nothing may lead elsewhere."""
    (tmp_path / "link").symlink_to(run.path)
    assert run_profiles(tmp_path) == []
    build_run_profiles(run.path)
    (run.path / "link").symlink_to(tmp_path)
    with pytest.raises(StorageError):
        run_profiles(run.path)


def stored(root: Path, *profiles: DeviceProfile) -> Sequence[Path]:
    with RunStore(root).create("bench", kind="bench") as made:
        folder = made.subfolder("profiles")
    return [path for one in profiles if (path := store(one, folder).path)]


def test_who_is_found_by_which_name(tmp_path: Path) -> None:
    """By the whole label before a part of it, in any case of letters; those of runs before the published."""
    plain = reference_fleet()[0]
    one, longer, alike = (
        plain.model_copy(update={"device": device, "samples": plain.samples + more, "content_sha256": None})
        for device, more in (("Odd", 0), ("Odd-Two", 0), ("Odd-Two", 1))
    )
    first, second = stored(tmp_path, one, longer)
    (third,) = stored(tmp_path, alike)
    assert find_profile(one.label, tmp_path).path == first
    assert find_profile("oDD/", tmp_path).path == first
    assert find_profile(Stored(alike, None).id, tmp_path).path == third
    with pytest.raises(ConfigError) as caught:
        find_profile("odd", tmp_path)
    labels = caught.value.message.removeprefix("'odd' fits 3 profiles: ").split(", ")
    assert sorted(labels) == sorted(profile.label for profile in (one, longer, alike))
    with pytest.raises(ConfigError) as caught:
        find_profile(longer.label, tmp_path)
    listed = caught.value.message.removeprefix(f"{longer.label!r} fits 2 profiles: ").split(", ")
    assert sorted(listed) == sorted(f"{found.id} ({found.run})" for found in map(read, (second, third)))
    assert find_profile(plain.label, tmp_path).path is None
    stored(tmp_path, plain)
    assert find_profile(plain.label, tmp_path).path is not None
    unlisted = next(p for p in listed_fleet() if p.label not in {q.label for q in reference_fleet()})
    assert find_profile(unlisted.label, tmp_path).profile == unlisted


def test_the_nearest_name_is_suggested(tmp_path: Path) -> None:
    label = reference_fleet()[7].label
    with pytest.raises(ConfigError) as caught:
        find_profile(label.replace("/", "-"), tmp_path)
    assert f"did you mean {label!r}?" in caught.value.hint
