"""What has to be true of a job's evidence before it becomes a capture, and when a capture is read back."""

from collections.abc import Callable
from pathlib import Path

import pytest

from device_agents.protocol import EpochMarker, Phase
from harness.bench.job.cooldown import require_enough_samples
from harness.bench.job.verify import require_accounted, require_power
from harness.bench.plan import JobTiming
from harness.evidence.capture import MARKERS_FILE, Capture, HostWindow, is_whole, open_capture, phases_of
from harness.evidence.unaccounted import Unaccounted
from joulefleet.errors import ConfigError, DataQualityError, JoulefleetError, StorageError
from power.model import Severity
from tests.harness.profile_captures import CLOCK, IDLE_W, one_round, write


@pytest.fixture
def capture(tmp_path: Path) -> Capture:
    return write(tmp_path / "job", one_round([0.5, 0.5], load_w=1.2))


def require(
    capture: Capture, *, idle: tuple[HostWindow, ...] = (), markers: tuple[EpochMarker, ...] | None = None
) -> None:
    phases = phases_of(capture.markers if markers is None else markers, CLOCK)
    assert require_power(capture.recording, phases, idle or capture.record.idle) == ()


def test_whole_evidence_passes(capture: Capture) -> None:
    require(capture)


def test_an_idle_window_without_a_baseline_is_refused(capture: Capture) -> None:
    """Its energy is known, but 20 samples do not tell how idle power moves: no net energy could be made."""
    before, after = capture.record.idle
    short = HostWindow(start_ns=before.start_ns, end_ns=before.start_ns + 20_000_000)
    with pytest.raises(DataQualityError, match="idle"):
        require(capture, idle=(short, after))


def test_a_load_that_ran_alone_too_shortly_is_refused(capture: Capture) -> None:
    begin = next(m for m in capture.markers if m.kind is Phase.LOAD and m.edge == "start")

    def shortened(marker: EpochMarker) -> EpochMarker:
        if marker.kind is not Phase.LOAD or marker.edge == "start":
            return marker
        return marker.model_copy(update={"t_dev_ns": begin.t_dev_ns + 20_000_000})

    with pytest.raises(DataQualityError, match="load"):
        require(capture, markers=tuple(map(shortened, capture.markers)))


def test_a_trace_that_shows_no_training_is_a_finding(tmp_path: Path) -> None:
    flat = write(tmp_path / "flat", one_round([0.5, 0.5], train_w=IDLE_W))
    (finding,) = require_power(flat.recording, flat.phases(), flat.record.idle)
    assert (finding.code, finding.severity) == ("training_not_seen", Severity.WARNING)
    assert f"{IDLE_W:.3g} W without" in finding.message


def left(seconds: float, passed_s: float = 10.0) -> Unaccounted:
    gap = (0, round(seconds * 1e9))
    return Unaccounted((2, 3), passed_s=passed_s, trained_s=passed_s - seconds, seconds=seconds, gaps=(gap,))


@pytest.mark.parametrize(("seconds", "told"), [(0.09, False), (0.4, False), (0.6, True), (4.9, True)])
def test_time_that_no_marker_accounts_for_is_a_finding(capture: Capture, seconds: float, told: bool) -> None:
    findings = require_accounted(capture.recording, [left(seconds)])
    assert [finding.code for finding in findings] == ["time_unaccounted"] * told
    for finding in findings:
        assert f"{seconds:.3g} s beside epoch 2 to 3" in finding.message
        assert seconds > 2 or f"it drew {IDLE_W:.3g} W" in finding.message  # the first two seconds are idle


def test_a_job_of_which_most_time_is_not_accounted_for_is_refused(capture: Capture) -> None:
    with pytest.raises(DataQualityError, match=r"nothing accounts for 5\.1 s of the 10 s"):
        require_accounted(capture.recording, [left(5.1)])
    # Less than a second may be a disk: it is said, and in the interval.
    (finding,) = require_accounted(capture.recording, [left(0.9, passed_s=1.0)])
    assert finding.code == "time_unaccounted"


@pytest.mark.parametrize(
    ("timing", "rate_hz", "loaded", "message"),
    [
        (JobTiming(idle_s=2), 10.0, False, r"timing\.idle_s: 2 s .* 10 samples per second.* at least 6\.4 s"),
        (JobTiming(load_only_s=2), 10.0, True, r"timing\.load_only_s: 2 s"),
        (JobTiming(load_only_s=2), 10.0, False, None),
        (JobTiming(load_only_s=0), 10.0, True, None),  # it does not run alone at all
        (JobTiming(idle_s=0.5), 376.0, True, None),
    ],
)
def test_windows_too_short_for_the_meter_are_refused_before_measuring(
    timing: JobTiming, rate_hz: float, loaded: bool, message: str | None
) -> None:
    if message is None:
        require_enough_samples(timing, rate_hz, loaded=loaded)
        return
    with pytest.raises(ConfigError, match=message):
        require_enough_samples(timing, rate_hz, loaded=loaded)


def _bad_value(text: str) -> str:
    return text.replace('"t_dev_ns":', '"t_dev_ns":"soon","x":', 1)


@pytest.mark.parametrize(
    ("damage", "error"),
    [(lambda text: "{]\n" + text, StorageError), (_bad_value, DataQualityError)],
)
def test_damaged_markers_are_named_with_file_and_line(
    capture: Capture, damage: Callable[[str], str], error: type[JoulefleetError]
) -> None:
    markers = capture.folder / MARKERS_FILE
    markers.write_text(damage(markers.read_text()))
    with pytest.raises(error, match=rf"{MARKERS_FILE}:1: "):
        open_capture(capture.folder)
    assert not is_whole(capture.folder)


def test_missing_markers_are_named(capture: Capture) -> None:
    (capture.folder / MARKERS_FILE).unlink()
    with pytest.raises(StorageError, match=MARKERS_FILE):
        open_capture(capture.folder)
    assert not is_whole(capture.folder)
