"""Profiles are used for the work that they measured, or it is said what differs."""

from pathlib import Path
from typing import Any

import pytest

from harness.evidence.capture import CaptureRecord, DeviceFacts
from harness.profiles.build import build_profile
from harness.profiles.cells import CellKey
from harness.profiles.fit import RoundWork, fitting_profile, reservations
from joulefleet.errors import ConfigError, DataQualityError
from power.profile.model import DeviceProfile
from tests.harness.profile_captures import CLOCK, one_round, write

KEY = CellKey("board", "mnist-lenet5", "mnist", "torch")


def profile(tmp_path: Path, **facts: Any) -> DeviceProfile:
    return build_profile([write(tmp_path / "c", one_round([1.0, 1.0]), **({"threads": 1} | facts))])


def work(**changes: Any) -> RoundWork:
    facts = {"key": KEY, "samples": 600, "batch_size": 32, "threads": 1, "synthetic_data": False}
    return RoundWork(**{**facts, **changes})


def test_what_was_captured_before_fields_were_added_keeps_its_hash() -> None:
    """Profiles and rounds name captures by their hash; this one was computed without the `LATER` fields."""
    old = CaptureRecord(
        capture_id="c", device=DeviceFacts(name="board", transport="ssh"), workload="mnist-lenet5",
        samples=600, batch_size=32, clock=CLOCK, recording_sha256="a" * 64, markers_sha256="b" * 64,
    )  # fmt: skip
    assert old.sha256() == "55175a28f0cb3837e594546c32362f4f87d51dd7ea4ac8f3d31a919f3b1a42d3"
    assert old.model_copy(update={"threads": 0}).sha256() != old.sha256()


def test_a_profile_says_what_was_trained(tmp_path: Path) -> None:
    found = profile(tmp_path, threads=2, warmup_epochs=1, synthetic_data=True, epochs_cpu_s=3.0)
    assert (found.batch_size, found.threads, found.warmup_epochs, found.synthetic_data) == (32, 2, 1, True)
    assert found.epoch_cpu_s is not None
    assert found.epoch_cpu_s.mean == pytest.approx(1.5), "two epochs"
    assert build_profile([write(tmp_path / "old", one_round([1.0]))]).epoch_cpu_s is None


def test_processor_time_of_throttled_rounds_is_left_out(tmp_path: Path) -> None:
    good = write(tmp_path / "good", one_round([1.0, 1.0]), epochs_cpu_s=2.0)
    hot = write(tmp_path / "hot", one_round([1.0, 1.0]), epochs_cpu_s=8.0, throttled_epochs=(2,))
    found = build_profile([good, hot]).epoch_cpu_s
    assert found is not None
    assert (found.mean, found.n) == (1.0, 1)


@pytest.mark.parametrize(
    ("name", "one", "other"), [("threads", 1, 2), ("warmup_epochs", 0, 1), ("synthetic_data", False, True)]
)
def test_captures_of_different_work_make_no_profile(tmp_path: Path, name: str, one: int, other: int) -> None:
    captures = [write(tmp_path / str(v), one_round([1.0, 1.0]), **{name: v}) for v in (one, other)]
    with pytest.raises(DataQualityError, match=f"differ in {name}"):
        build_profile(captures)


def test_a_capture_that_does_not_say_its_threads_goes_with_any(tmp_path: Path) -> None:
    old = write(tmp_path / "old", one_round([1.0, 1.0]))
    new = write(tmp_path / "new", one_round([1.0, 1.0]), threads=1)
    assert build_profile([old, new]).probe.duration_s.n == 2


def test_the_same_work_fits_without_reservation(tmp_path: Path) -> None:
    found = profile(tmp_path)
    assert fitting_profile([found], work()) is found
    instrument, sessions = reservations(found, work())
    assert instrument == "profile of board: instrument: test"
    assert sessions.startswith("profile of board: rests on 1 session: the spread between days is not in")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 16}, "with batch_size = 32, the rounds with 16"),
        ({"threads": 4}, "with threads = 1, the rounds with 4"),
        ({"threads": 0}, "the rounds with 0 .0: as many as the backend likes"),
    ],
)
def test_a_profile_of_other_work_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fitting_profile([profile(tmp_path)], work(**changes))


def test_the_same_model_on_another_data_set_is_other_work(tmp_path: Path) -> None:
    found = profile(tmp_path, workload="shakespeare-lstm", dataset="shakespeare")
    with pytest.raises(ConfigError, match="no profiles of board/lstm/wikitext/torch") as caught:
        fitting_profile([found], work(key=CellKey("board", "wikitext-lstm", "wikitext", "torch")))
    assert "board/lstm/shakespeare/torch" in (caught.value.hint or "")


def test_what_may_make_a_prediction_wrong_is_said(tmp_path: Path) -> None:
    found = profile(tmp_path, warmup_epochs=2, synthetic_data=True)
    warm, random = "profiled after 2 warm-up epochs", "trained on random samples"
    notes = reservations(found, work())
    assert any(warm in note for note in notes)
    assert any(random in note for note in notes), "the profile's own notes are passed on"
    (note,) = reservations(found.model_copy(update={"notes": (), "warmup_epochs": None}), work())
    assert note == "board: whether warmup_epochs are as in the rounds is not in its profile"
    real = found.model_copy(update={"notes": (), "warmup_epochs": 0, "synthetic_data": False})
    (note,) = reservations(real, work(synthetic_data=True))
    assert "the rounds have random ones" in note


def test_a_profile_that_says_nothing_is_used_with_a_note(tmp_path: Path) -> None:
    found = profile(tmp_path).model_copy(update={"threads": None})
    assert fitting_profile([found], work(threads=4)) is found
    *_, note = reservations(found, work())
    assert note == "board: whether threads are as in the rounds is not in its profile"
