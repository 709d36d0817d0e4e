"""Power traces of devices whose clock is known: patterns behind a regulator, noise, background, jitter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.signal import lfilter

from device_agents.payload.sync_pattern import Pattern
from device_agents.session.agent_session import Ping
from harness.clock import BurstRun
from power.model import Accuracy, InstrumentInfo, RangeAccuracy, SampleBlock
from power.recording import Recording, RecordingWriter, open_recording
from power.timebase import Timebase

VOLTAGE_V = 4.0
FINE_HZ = 10_000
HOST_START_NS = 3_000_000_000_000
DEVICE_START_NS = 777_000_000_000
PATTERN = Pattern()


@dataclass(frozen=True)
class Setting:
    """One kind of bench. Powers in watts."""

    rate_hz: int = 5000
    step_w: float = 1.0
    noise_w: float = 0.3
    slow_w: float = 0.1
    tau_s: tuple[float, float] = (0.001, 0.020)
    jitter_s: float = 0.002
    journalled: bool = False
    background_per_s: float = 0.7
    background_w: tuple[float, float] = (0.1, 1.0)
    skew_ppm: float = 100.0
    work_s: float = 8.0
    round_trip_s: float = 0.03
    meter_delay_s: float = 0.002
    prior_error_s: float = 0.0
    plays: bool = True
    echoes_s: tuple[float, ...] = ()
    echo_gain: float = 1.0
    gaps_s: tuple[tuple[float, float], ...] = ()
    pattern: Pattern = PATTERN


@dataclass(frozen=True)
class Trial:
    """What a bench recorded, and the truth."""

    recording: Recording
    pings: list[Ping]
    bursts: tuple[BurstRun, ...]
    tau_s: float
    offset_ns: int
    skew: float

    def host_ns(self, t_dev_ns: int) -> int:
        """Where a device time lies in the recording."""
        return t_dev_ns + self.offset_ns + round((t_dev_ns - DEVICE_START_NS) * self.skew)

    def errors_s(self, to_host_ns: Callable[[int], int]) -> np.ndarray:
        """Errors of a conversion at the first pattern, in the middle and at the last pattern."""
        first, last = (run.middle_ns for run in (self.bursts[0], self.bursts[-1]))
        return np.array([to_host_ns(t) - self.host_ns(t) for t in (first, (first + last) // 2, last)]) * 1e-9


def draw(setting: Setting, rng: np.random.Generator, folder: Path) -> Trial:
    """One trial: idle, pattern, work, pattern, idle."""
    s = setting
    duration_s = s.pattern.duration_ns * 1e-9
    starts_s = (3.0, 3.0 + duration_s + s.work_s)
    total_s = starts_s[1] + duration_s + 3.0
    skew = rng.uniform(-1, 1) * s.skew_ppm * 1e-6
    tau_s = rng.uniform(*s.tau_s)
    grid_s = np.arange(round(total_s * FINE_HZ)) / FINE_HZ
    load = np.zeros(len(grid_s))
    bursts = []
    for when, start_s in zip(("before", "after"), starts_s, strict=True):
        run = BurstRun(DEVICE_START_NS + round(start_s * 1e9), s.pattern, when)
        edge_s, change = run.edges()
        late_s = _lateness(s, len(edge_s), rng)
        if s.journalled:
            run = BurstRun(run.start_ns, run.pattern, when, tuple(np.rint(late_s * 1e9).astype(int).tolist()))
        device_s = np.append(start_s + edge_s + late_s, start_s + duration_s)
        host_s = np.maximum.accumulate(device_s * (1 + skew))
        change = np.append(change, -change.sum())
        for gain, echo_s in ((float(s.plays), 0.0), *((s.echo_gain, echo) for echo in s.echoes_s)):
            _add_steps(load, host_s + echo_s, gain * s.step_w * change)
        bursts.append(run)
    work_s = starts_s[0] + duration_s
    _add_steps(load, np.array([work_s, work_s + s.work_s]), np.array([1.5, -1.5]) * s.step_w)
    _add_background(load, s, total_s, rng)
    keep = np.exp(-1 / (FINE_HZ * tau_s))
    # The filter's output belongs to the end of the cell that went in.
    power = 0.8 + np.append(0.0, lfilter([1 - keep], [1, -keep], load)[:-1])
    sampled = power[:: FINE_HZ // s.rate_hz]
    sampled = sampled + rng.normal(0, s.noise_w, len(sampled)) + _slow(s, len(sampled), rng)
    delay_s = rng.uniform(0, s.meter_delay_s)
    recording = _store(sampled, s, folder, delay_s)
    offset_ns = HOST_START_NS - DEVICE_START_NS
    pings = _pings(s, skew, offset_ns, total_s, rng)
    seen_ns = offset_ns + round(delay_s * 1e9)
    return Trial(recording, pings, tuple(bursts), tau_s, seen_ns, skew)


def _lateness(s: Setting, n: int, rng: np.random.Generator) -> np.ndarray:
    """Journalled: late only, as a scheduler is. Otherwise both ways, as nothing tells how late."""
    return rng.exponential(s.jitter_s, n) if s.journalled else rng.normal(0, s.jitter_s, n)


def _add_steps(load: np.ndarray, t_s: np.ndarray, change_w: np.ndarray) -> None:
    """Add steps at any time: the cell in which one falls gets its share."""
    for t, change in zip(t_s * FINE_HZ, change_w, strict=True):
        cell = int(t)
        if 0 <= cell < len(load) - 1:
            load[cell] += change * (cell + 1 - t)
            load[cell + 1 :] += change


def _add_background(load: np.ndarray, s: Setting, total_s: float, rng: np.random.Generator) -> None:
    for start_s in rng.uniform(0, total_s, rng.poisson(s.background_per_s * total_s)):
        length_s = 0.03 + rng.exponential(0.2)
        watts = rng.uniform(*s.background_w)
        _add_steps(load, np.array([start_s, start_s + length_s]), np.array([watts, -watts]))


def _slow(s: Setting, n: int, rng: np.random.Generator) -> np.ndarray:
    """Noise with a correlation time of a second, and a drift."""
    keep = np.exp(-1.0 / s.rate_hz)
    noise = lfilter([np.sqrt(1 - keep**2) * s.slow_w], [1, -keep], rng.normal(0, 1, n))
    return np.asarray(noise + np.linspace(0, rng.normal(0, s.slow_w), n))


def _pings(s: Setting, skew: float, offset_ns: int, total_s: float, rng: np.random.Generator) -> list[Ping]:
    pings = []
    for at_s in (0.5, total_s - 0.5):
        for i in range(20):
            device_s = at_s + i * 0.01
            t_dev_ns = DEVICE_START_NS + round(device_s * 1e9)
            host_ns = t_dev_ns + offset_ns + round(device_s * skew * 1e9) + round(s.prior_error_s * 1e9)
            there, back = s.round_trip_s * (0.2 + rng.exponential(0.5, 2))
            pings.append(Ping(host_ns - round(there * 1e9), t_dev_ns, host_ns + round(back * 1e9)))
    return pings


def _store(power_w: np.ndarray, s: Setting, folder: Path, delay_s: float) -> Recording:
    folder.mkdir(parents=True)
    accuracy = Accuracy(
        current=(RangeAccuracy(name="all", gain_rel=0.01, offset_a=0.001),),
        voltage_gain_rel=0.01,
        voltage_offset_v=0.01,
        source="synthetic",
    )
    info = InstrumentInfo(
        kind="synthetic",
        emulated=True,
        rate_hz=s.rate_hz,
        tick_hz=s.rate_hz,
        uniform_ticks=True,
        accuracy=accuracy,
    )
    writer = RecordingWriter(folder, info, None, started_ns=HOST_START_NS)
    n, end = len(power_w), 0
    for start, stop in _kept(n, s.rate_hz, s.gaps_s):
        for low in range(start, stop, s.rate_hz):
            ticks = np.arange(low, min(low + s.rate_hz, stop))
            writer.append(
                SampleBlock(
                    t_ns=HOST_START_NS + ticks * (10**9 // s.rate_hz),
                    ticks=ticks,
                    current_a=power_w[ticks] / VOLTAGE_V,
                    voltage_v=np.full(len(ticks), VOLTAGE_V),
                    first_index=low,
                    dropped_before=low - end,
                )
            )
            end = int(ticks[-1]) + 1
    first_ns = HOST_START_NS + round(delay_s * 1e9)
    base = Timebase(ticks=(0, n), host_ns=(first_ns, first_ns + n * (10**9 // s.rate_hz)), residual_ns=5e5)
    writer.close(base, ())
    return open_recording(folder)


def _kept(n: int, rate_hz: int, gaps_s: Sequence[tuple[float, float]]) -> list[tuple[int, int]]:
    kept, at = [], 0
    for low_s, high_s in gaps_s:
        kept.append((at, round(low_s * rate_hz)))
        at = round(high_s * rate_hz)
    return [*kept, (at, n)]
