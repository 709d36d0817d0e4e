"""What has to be true of a job's evidence before it becomes a capture, and when a capture is read back."""

from collections.abc import Callable
from pathlib import Path

import pytest

from device_agents.protocol import EpochMarker, Phase
from harness.bench.job.cooldown import require_enough_samples
from harness.bench.job.verify import require_power
from harness.bench.plan import JobTiming
from harness.evidence.capture import MARKERS_FILE, Capture, HostWindow, is_whole, open_capture
from joulefleet.errors import (
    ConfigError,
    DataQualityError,
    DeviceProtocolError,
    JoulefleetError,
    StorageError,
)
from tests.harness.profile_captures import CLOCK, one_round, write


@pytest.fixture
def capture(tmp_path: Path) -> Capture:
    return write(tmp_path / "job", one_round([0.5, 0.5], load_w=1.2))


def require(capture: Capture, *, idle: tuple[HostWindow, ...] = (), markers: object = None) -> None:
    chosen = capture.markers if markers is None else markers
    require_power(capture.recording, chosen, CLOCK, idle or capture.record.idle)  # type: ignore[arg-type]


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


def test_a_phase_that_ends_without_having_begun_is_the_devices_fault(capture: Capture) -> None:
    torn = tuple(m for m in capture.markers if (m.kind, m.edge) != (Phase.LOAD, "start"))
    with pytest.raises(DeviceProtocolError, match="load ended without having begun"):
        require(capture, markers=torn)


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
