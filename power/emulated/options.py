"""How an emulated instrument is described: on the command line, in a file, or in a test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from joulefleet.config import ClosedModel
from joulefleet.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from power.emulated.signals import Signal

_SIGNALS = {
    "constant": ("current", "voltage"),
    "step": ("before", "after", "at", "voltage"),
    "square": ("low", "high", "period", "duty", "voltage"),
    "process": ("pid", "pidfile", "idle", "dynamic", "voltage", "speedfile"),
    "recording": ("path",),
}


class EmulatorOptions(ClosedModel):
    """One emulated instrument.

    Attributes:
        signal: The load, e.g. ``square:low=0.1,high=0.5,period=1``; amperes, volts, seconds, watts.
        rate_hz: Samples per second; 0 means the instrument's own rate.
        skew_ppm: How far its crystal is off.
        tau_s: Time constant of the supply's regulator.
        noise_a: White current noise, standard deviation in amperes.
        seed: Seed of the noise.
        gain: What it reads, times too much: reading = gain x true current + offset_a.
        offset_a: What it reads without a current, amperes.
        voltage_gain: The same for the voltage.
        voltage_offset_v: The same, volts.
        faults: As `power.emulated.faults.parse_fault` reads them.
        serial: Serial number it reports.
        variant: Which of several wire formats or models, where an instrument has some; empty for the usual.
        truth: File that keeps the true load, for tests.
    """

    signal: str = "constant:current=0.25,voltage=4.0"
    rate_hz: float = Field(default=0.0, ge=0)
    skew_ppm: float = Field(default=0.0, ge=-1000, le=1000)
    tau_s: float = Field(default=0.0, ge=0, le=10)
    noise_a: float = Field(default=0.0, ge=0, le=10)
    seed: int = Field(default=0, ge=0)
    gain: float = Field(default=1.0, gt=0, le=2)
    offset_a: float = Field(default=0.0, ge=-1, le=1)
    voltage_gain: float = Field(default=1.0, gt=0, le=2)
    voltage_offset_v: float = Field(default=0.0, ge=-1, le=1)
    faults: tuple[str, ...] = ()
    serial: str = ""
    variant: str = ""
    truth: Path | None = None

    def build_signal(self) -> Signal:
        """The load as seen by a perfect meter behind the regulator."""
        from joulefleet.seeds import generator
        from power.emulated.signals import Regulated

        load = parse_signal(self.signal)
        return Regulated(load, self.tau_s, self.noise_a, generator(self.seed, "emulated meter noise"))

    def misread(
        self, current_a: NDArray[np.float64], voltage_v: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The load as an instrument takes it that was never calibrated."""
        return self.gain * current_a + self.offset_a, self.voltage_gain * voltage_v + self.voltage_offset_v


def parse_signal(text: str) -> Signal:
    """Turn ``kind:key=value,...`` into a load."""
    from power.emulated import signals

    kind, _, rest = text.partition(":")
    if kind not in _SIGNALS:
        raise ConfigError(f"signal {text!r}: no kind {kind!r}", hint=f"kinds: {', '.join(_SIGNALS)}")
    values = dict(part.partition("=")[::2] for part in rest.split(",") if part)
    unknown = set(values) - set(_SIGNALS[kind])
    if unknown:
        raise ConfigError(
            f"signal {text!r}: unknown {', '.join(sorted(unknown))}",
            hint=f"{kind} takes {', '.join(_SIGNALS[kind])}",
        )
    if kind == "recording":
        return _recorded(Path(values.get("path", "")))
    pid_file, speed_file = values.pop("pidfile", ""), values.pop("speedfile", "")
    try:
        number = {key: float(value) for key, value in values.items()}
    except ValueError as error:
        raise ConfigError(f"signal {text!r}: {error}") from error
    volts = number.get("voltage", 4.0)
    if kind == "constant":
        return signals.constant(number.get("current", 0.25), volts)
    if kind == "step":
        return signals.StepSignal(
            number.get("before", 0.1), number.get("after", 0.5), volts, number.get("at", 1.0)
        )
    if kind == "square":
        return signals.Square(
            number.get("low", 0.1),
            number.get("high", 0.5),
            volts,
            number.get("period", 1.0),
            number.get("duty", 0.5),
        )
    if ("pid" in number) == bool(pid_file):
        raise ConfigError(f"signal {text!r}: process needs pid= or pidfile=", hint="one of the two")
    root = Path(pid_file) if pid_file else int(number["pid"])
    speed = Path(speed_file) if speed_file else None
    return signals.ProcessLoad(root, number.get("idle", 0.8), number.get("dynamic", 2.0), volts, speed)


def _recorded(folder: Path) -> Signal:
    import numpy as np

    from power.emulated.signals import Recorded
    from power.recording.reader import open_recording

    blocks = list(open_recording(folder).blocks())
    t_ns = np.concatenate([b.t_ns for b in blocks])
    return Recorded(
        (t_ns - t_ns[0]) * 1e-9,
        np.concatenate([b.current_a for b in blocks]).astype(np.float64),
        np.concatenate([b.voltage_v for b in blocks]).astype(np.float64),
    )
