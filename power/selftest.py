"""Self-test of a meter against a known resistor: accuracy, sample rate, loss, step response.

The test only reads. It never touches the output: the voltage that is on is used, and for the step it is the
load that a person connects, because no instrument here takes commands while it samples. The current that
the resistor should draw follows from the meter's own voltage, so what is judged is volts against amperes.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from joulefleet.config import ClosedModel
from joulefleet.errors import DataQualityError, MeterError, StorageError
from joulefleet.provenance import Sha256
from joulefleet.records import StoredRecord, write_record
from power.meter import MeterConfig, open_meter
from power.model import InstrumentInfo, SampleBlock, Severity
from power.recording.checks import rate_limit_ppm, rate_offset_ppm
from power.recording.reader import Recording, open_recording
from power.recording.recorder import put_earlier_aside, record

if TYPE_CHECKING:
    from numpy.typing import NDArray

SELFTEST_FILE = "selftest.json"

LOSS_LIMIT = 1e-3
"""Above 0.1 % of lost samples a window is invalid, as in MLPerf Tiny's EnergyRunner."""

DEAD_V = 0.5
"""Below this the output is off: no supported instrument regulates under 0.8 V."""

NO_LOAD_SHARE = 0.2
"""Less than this share of the expected current means that the resistor is not connected."""

SETTLED_SHARE = 0.02
"""A step has settled when it stays within 2 % of its height, or within the noise if that is more."""


class LoadResult(ClosedModel):
    """A resistor of known value, measured.

    Attributes:
        expected_current_a: Mean voltage over ``load_ohms``.
        error_rel: Measured current against the expected one, minus one.
        reference_limit_rel: How far off the expectation may be because of the voltmeter, 95 % limit.
        range_name: The measuring range that the current fell into; no other was tested.
        rate_offset_ppm: Sample clock against its nominal rate.
        rate_unsure_ppm: How far that may be off, because the test was short.
    """

    load_ohms: float = Field(gt=0)
    tolerance_rel: float = Field(gt=0)
    duration_s: float
    n_samples: int
    voltage_v: float
    current_a: float
    current_sd_a: float
    expected_current_a: float
    error_rel: float
    reference_limit_rel: float
    range_name: str
    rate_offset_ppm: float
    rate_unsure_ppm: float
    loss_fraction: float | None
    problems: tuple[str, ...] = ()


class StepResult(ClosedModel):
    """A load connected by hand; a bouncing contact is part of it, so the times are upper limits.

    Attributes:
        rise_s: From 10 % to 90 % of the step.
        settle_s: From 10 % until it stays close to its end.
    """

    low_a: float
    high_a: float
    rise_s: float
    settle_s: float


class SelftestRecord(StoredRecord):
    """``selftest.json``: how a meter did against a resistor, and the recordings that show it.

    It is a check, and no calibration (`power.calibrate`): no interval is narrower for it.

    Attributes:
        recording_sha256: The recordings the figures were computed from, by name.
    """

    made_utc: datetime
    info: InstrumentInfo
    config: MeterConfig
    load: LoadResult
    step: StepResult | None = None
    recording_sha256: dict[str, Sha256]

    @property
    def passed(self) -> bool:
        """Whether the meter is as good as it was asked to be."""
        return not self.load.problems


def run_selftest(
    config: MeterConfig,
    folder: Path,
    *,
    load_ohms: float,
    tolerance_rel: float,
    seconds: float = 10.0,
    step_seconds: float | None = None,
    on_block: Callable[[SampleBlock], None] | None = None,
    before_step: Callable[[], None] | None = None,
) -> SelftestRecord:
    """Record the load, judge it, and write ``selftest.json`` beside the recordings.

    Args:
        config: The meter.
        folder: Where the recordings and the result go; those of a try without result make room.
        load_ohms: The resistor that is connected.
        tolerance_rel: Largest error that passes; the resistor's own tolerance is part of it.
        seconds: How long to measure.
        step_seconds: Also record for so long while somebody connects the load.
        on_block: Sees every block.
        before_step: Called when the load has to be disconnected for the step.

    Raises:
        MeterError: The output is off, or there is no load.
        DataQualityError: No step was seen.
        StorageError: There is a result already, or the disk refused.
    """
    if (folder / SELFTEST_FILE).exists():
        raise StorageError(f"{folder}: holds a self-test already", hint="choose another folder")
    for name in ("load", "step"):
        put_earlier_aside(folder / name)
    with open_meter(config) as meter:
        record(meter, folder / "load", config=config, seconds=seconds, on_block=on_block)
    recordings = {"load": open_recording(folder / "load")}
    load = measure_load(recordings["load"], load_ohms=load_ohms, tolerance_rel=tolerance_rel)
    step = None
    if step_seconds is not None:
        if before_step is not None:
            before_step()
        with open_meter(config) as meter:
            record(meter, folder / "step", config=config, seconds=step_seconds, on_block=on_block)
        recordings["step"] = open_recording(folder / "step")
        step = measure_step(recordings["step"])
    result = SelftestRecord(
        made_utc=datetime.now(UTC),
        info=recordings["load"].record.info,
        config=config,
        load=load,
        step=step,
        recording_sha256={name: recording.record.sha256() for name, recording in recordings.items()},
    )
    write_record(folder / SELFTEST_FILE, result)
    return result


def measure_load(recording: Recording, *, load_ohms: float, tolerance_rel: float) -> LoadResult:
    """Judge a recording of a resistor.

    Raises:
        MeterError: The output is off, or there is no load.
    """
    current_a, voltage_v, current_sd_a = _means(recording)
    info, clock = recording.record.info, recording.record.timebase
    accuracy = recording.info.accuracy
    _require_load(info, current_a, voltage_v, load_ohms)
    expected_a = voltage_v / load_ohms
    offset_ppm, unsure_ppm = rate_offset_ppm(clock, info)
    provenance = recording.record.provenance("selftest")
    result = LoadResult(
        load_ohms=load_ohms,
        tolerance_rel=tolerance_rel,
        duration_s=(clock.host_ns[-1] - clock.host_ns[0]) * 1e-9,
        n_samples=recording.record.n_samples,
        voltage_v=voltage_v,
        current_a=current_a,
        current_sd_a=current_sd_a,
        expected_current_a=expected_a,
        error_rel=current_a / expected_a - 1.0,
        reference_limit_rel=accuracy.voltage_gain_rel + accuracy.voltage_floor_v / voltage_v,
        range_name=_range_name(info, current_a),
        rate_offset_ppm=offset_ppm,
        rate_unsure_ppm=unsure_ppm,
        loss_fraction=provenance.loss_fraction,
    )
    return result.model_copy(update={"problems": tuple(_problems(result, recording))})


def _means(recording: Recording) -> tuple[float, float, float]:
    """Mean current, mean voltage, standard deviation of the current; in one pass."""
    sums = np.zeros(3)
    for block in recording.blocks():
        current = block.current_a.astype(np.float64)
        sums += current.sum(), block.voltage_v.sum(dtype=np.float64), current @ current
    current_a, voltage_v, square_a2 = sums / recording.record.n_samples
    return float(current_a), float(voltage_v), float(np.sqrt(max(0.0, square_a2 - current_a**2)))


def _require_load(info: InstrumentInfo, current_a: float, voltage_v: float, load_ohms: float) -> None:
    if voltage_v < DEAD_V:
        raise MeterError(
            f"{info.kind}: its output is off ({voltage_v:.3f} V)",
            hint="the self-test never switches it on: do so with `joulefleet meter output --set VOLTS --yes`",
        )
    if current_a < NO_LOAD_SHARE * voltage_v / load_ohms:
        raise MeterError(
            f"{info.kind}: {current_a:.4f} A at {voltage_v:.3f} V is no load of {load_ohms:g} ohms",
            hint="connect the resistor to the main output, and check its value",
        )


def _range_name(info: InstrumentInfo, current_a: float) -> str:
    for part in info.accuracy.current:
        if part.up_to_a is None or current_a <= part.up_to_a:
            return part.name
    return info.accuracy.current[-1].name


def _problems(result: LoadResult, recording: Recording) -> list[str]:
    found = []
    if abs(result.error_rel) > result.tolerance_rel:
        found.append(
            f"the current is {result.error_rel:+.2%} off, more than the {result.tolerance_rel:.2%} allowed"
        )
    if result.loss_fraction is not None and result.loss_fraction > LOSS_LIMIT:
        found.append(f"{result.loss_fraction:.2%} of the samples were lost, more than {LOSS_LIMIT:.1%}")
    if abs(result.rate_offset_ppm) - result.rate_unsure_ppm > rate_limit_ppm(recording.record.info):
        found.append(f"the sample rate is {result.rate_offset_ppm:+.0f} ppm off")
    found += [f.message for f in recording.record.findings if f.severity is Severity.ERROR]
    return found


def measure_step(recording: Recording) -> StepResult:
    """Rise and settling time of the largest step in a recording.

    Raises:
        DataQualityError: There is no step from one level to another.
    """
    blocks = list(recording.blocks())
    t_s = (np.concatenate([b.t_ns for b in blocks]) - blocks[0].t_ns[0]) * 1e-9
    current_a = np.concatenate([b.current_a for b in blocks]).astype(np.float64)
    middle_a = (float(current_a.min()) + float(current_a.max())) / 2
    at = int(np.argmax(current_a > middle_a))
    no_step = DataQualityError(
        f"{recording.folder}: no step of the current from one level to a higher one",
        hint="begin with the load disconnected, and connect it while the test records",
    )
    if at == 0:  # high from the first sample on: nothing to rise from
        raise no_step
    tail = current_a[at:]
    low_a, high_a = float(np.median(current_a[:at])), float(np.median(tail))
    noise_a = 8.0 * float(np.median(np.abs(tail - high_a)))
    height_a = high_a - low_a
    if height_a <= 2 * noise_a:
        raise no_step
    start_s = _crossing(t_s, current_a, low_a + 0.1 * height_a, last_before=at)
    risen_s = _crossing(t_s[at - 1 :], current_a[at - 1 :], low_a + 0.9 * height_a)
    if start_s is None or risen_s is None:  # a spike set the middle, not the step
        raise no_step
    unsettled = np.flatnonzero(np.abs(tail - high_a) > max(SETTLED_SHARE * height_a, noise_a))
    settled_s = float(t_s[min(at + int(unsettled[-1]) + 1, len(t_s) - 1)]) if len(unsettled) else risen_s
    return StepResult(
        low_a=low_a, high_a=high_a, rise_s=max(0.0, risen_s - start_s), settle_s=max(0.0, settled_s - start_s)
    )


def _crossing(
    t_s: NDArray[np.float64], current_a: NDArray[np.float64], level_a: float, last_before: int | None = None
) -> float | None:
    """When the current rises through a level, if ever: for the first time, or the last before a sample."""
    rising = (current_a[:-1] <= level_a) & (current_a[1:] > level_a)
    found = np.flatnonzero(rising if last_before is None else rising[:last_before])
    if not len(found):
        return None
    i = int(found[0 if last_before is None else -1])
    share = (level_a - current_a[i]) / (current_a[i + 1] - current_a[i])
    return float(t_s[i] + share * (t_s[i + 1] - t_s[i]))
