"""The usage model: what is fitted on recorded traces, stored as JSON and drawn from.

A `Process` is a semi-Markov process of one yes-or-no channel. While it is on, and while it is off, a clock
runs whose rate depends on the hour of the local day and on weekday or weekend; the state is left when the
clock has run an amount drawn from a distribution of dwell times (``stay``), which depends on the part of the
day in which the state was entered. The mean of all dwell times is 1, so the rates say how often a state is
left at each hour, and the distributions how irregularly. A process may be *given* another one: its clock then
runs at different rates while the other is off and on (Wi-Fi given plugged: people charge where they have
Wi-Fi).

Of a source that was read at fixed times, a `Grid` says instead by which factor the chance to leave at the
next reading depends on the readings spent in the state so far.

People differ: each belongs to a class with rates and dwell times of its own, and has a factor on the rates.
A class is an aggregate of at least three people, unless the whole set has fewer.
"""

from __future__ import annotations

import json
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from joulefleet.config import ClosedModel, validate
from joulefleet.errors import ConfigError
from joulefleet.provenance import Origin
from joulefleet.records import StoredRecord, read_record

HOURS = 24
WEEK_H = 168
WEEKEND_H = 120
"""Hours since Monday 0:00 from which on it is the weekend."""

BLOCKS = 4
"""Parts of the day, of six hours each."""

DWELL_LEVELS = (*(i / 64 for i in range(64)), *(1 - 2.0**-n for n in (7, 8, 9, 10)), 1.0)
"""Levels of the quantiles of a distribution of dwell times: even, and closer in the tail."""

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Spread = Annotated[float, Field(ge=0)]
Quantiles = tuple[Annotated[float, Field(ge=0)], ...]
Factors = Annotated[tuple[Positive, ...], Field(min_length=1)]
DayRates = tuple[tuple[Positive, ...], tuple[Positive, ...]]
DwellQuantiles = tuple[Quantiles, Quantiles, Quantiles, Quantiles]
Channel = Literal["screen", "plugged", "wifi", "available"]


def part_of_day(t_h: NDArray[np.float64]) -> NDArray[np.int64]:
    """Which of the parts of the day a time is in; times are not negative."""
    return np.asarray(t_h.astype(np.int64) % HOURS // (HOURS // BLOCKS))


class ModelSource(ClosedModel):
    """Where the numbers of one part come from.

    Attributes:
        origin: ``imported``: counted in recorded traces; ``literature``: from a publication; ``emulated``:
            counted in generated traces.
        source: Which set or publication.
        licence: Terms of the set.
        users: How many people.
        user_days: Days of recording that were counted.
        assumption: What had to be assumed.
    """

    origin: Literal[Origin.IMPORTED, Origin.LITERATURE, Origin.EMULATED]
    source: str = Field(min_length=1)
    licence: str = ""
    users: int = Field(default=0, ge=0)
    user_days: float = Field(default=0.0, ge=0)
    assumption: str = ""


class UserClass(ClosedModel):
    """People who behave alike.

    Attributes:
        weight: Share of the people.
        on_at_midnight: Share of the midnights at which the channel is on, per regime.
        leave_per_h: Per regime, state (off, on) and kind of day (weekday, weekend): how often the state is
            left per hour spent in it.
        stay: Per state and part of the day in which it was entered: quantiles of the dwell time, as an amount
            of clock, at `DWELL_LEVELS`; None on a grid.
    """

    weight: Share
    on_at_midnight: tuple[Share, ...]
    leave_per_h: tuple[tuple[DayRates, DayRates], ...]
    stay: tuple[DwellQuantiles, DwellQuantiles] | None = None

    @model_validator(mode="after")
    def _shapes_fit(self) -> UserClass:
        if any(len(row) != HOURS for regime in self.leave_per_h for state in regime for row in state):
            raise ValueError(f"leave_per_h: not of {HOURS} hours")
        for row in (row for dwells in self.stay or () for row in dwells):
            if len(row) != len(DWELL_LEVELS) or any(a > b for a, b in pairwise(row)):
                raise ValueError(f"stay: not {len(DWELL_LEVELS)} increasing quantiles")
        return self


class Grid(ClosedModel):
    """For a source that was read at fixed times: the state changes at readings only.

    Attributes:
        step_h: How far apart the readings are.
        factor: For off and for on, by how much the chance to leave the state at the next reading differs from
            the rate of the hour, by the number of readings spent in it; the last one holds on.
    """

    step_h: Positive
    factor: tuple[Factors, Factors]


class Process(ClosedModel):
    """A semi-Markov process of one channel.

    Attributes:
        channel: What it is about.
        given: A channel of another process; there are then two regimes (it is off, it is on), else one.
        classes: Kinds of people.
        pace_sigma: Spread (standard deviation of the logarithm) of a person's factor on all rates.
        state_sigma: For off and for on, spread of a person's further factor on the rate of that state.
        grid: If the source was read at fixed times; a process on a grid is given no other.
        evidence: Of the rates and distributions.
        spread_evidence: Of ``state_sigma``, where it is not the same.
    """

    channel: Channel
    given: Channel | None = None
    classes: tuple[UserClass, ...] = Field(min_length=1)
    pace_sigma: float = Field(default=0.0, ge=0)
    state_sigma: tuple[Spread, Spread] = (0.0, 0.0)
    grid: Grid | None = None
    evidence: ModelSource
    spread_evidence: ModelSource | None = None

    @property
    def regimes(self) -> int:
        """In how many circumstances the rates differ."""
        return 1 if self.given is None else 2

    @model_validator(mode="after")
    def _classes_fit(self) -> Process:
        if any(
            len(k.leave_per_h) != self.regimes or len(k.on_at_midnight) != self.regimes for k in self.classes
        ):
            raise ValueError(f"{self.channel}: a class is not of {self.regimes} regimes")
        if self.grid is not None and self.given is not None:
            raise ValueError(f"{self.channel}: a process on a grid is given no other")
        if any((kind.stay is None) != (self.grid is not None) for kind in self.classes):
            raise ValueError(f"{self.channel}: a class has stays if and only if there is no grid")
        if abs(sum(kind.weight for kind in self.classes) - 1) > 1e-6:
            raise ValueError(f"{self.channel}: weights of the classes do not sum to 1")
        return self


class BatteryModel(ClosedModel):
    """How fast batteries drain and fill.

    Attributes:
        drain_per_h: Quantiles over people, at even levels, of the level lost per hour unplugged.
        fill_per_h: Likewise, of the level gained per hour on a charger while below 90 %.
        level_at_midnight: Likewise, of the level at midnight, where people begin.
        screen_factor: How many times faster the level falls with the screen on than with it off.
        evidence: Of all but the factor.
        screen_evidence: Of the factor.
    """

    drain_per_h: tuple[Positive, ...] = Field(min_length=2)
    fill_per_h: tuple[Positive, ...] = Field(min_length=2)
    level_at_midnight: tuple[Share, ...] = Field(min_length=2)
    screen_factor: float = Field(default=1.0, ge=1)
    evidence: ModelSource
    screen_evidence: ModelSource | None = None


class AppMix(ClosedModel):
    """What people do while the screen is on: one category of app per session.

    Attributes:
        categories: Names from the intensity table, most popular first.
        ratio_low: Smallest ratio of the popularity of a category to that of the one before it.
        ratio_high: Largest; each person has one ratio, evenly distributed between the two.
        evidence: Where this comes from.
    """

    categories: tuple[str, ...] = Field(min_length=1, max_length=100)
    ratio_low: Annotated[float, Field(gt=0, lt=1)]
    ratio_high: Annotated[float, Field(gt=0, lt=1)]
    evidence: ModelSource


class ThroughputModel(ClosedModel):
    """Throughput of one kind of network: log-normal, between recordings and within them.

    Attributes:
        network: What the recordings were made on.
        log_mean: Mean of the logarithm of bits per second towards the phone.
        between_log_sd: Standard deviation of that mean from recording to recording.
        within_log_sd: Of the logarithm around the mean of its recording.
        correlation_s: After so long the pooled autocorrelation within recordings has fallen to 1/e.
        evidence: Whose.
    """

    network: Literal["ethernet", "3g"]
    log_mean: Positive
    between_log_sd: Spread
    within_log_sd: Spread
    correlation_s: Positive
    evidence: ModelSource


class NetworkModel(StoredRecord):
    """Throughput of the networks that phones are on; what is uploaded is not known."""

    name: str
    kinds: tuple[ThroughputModel, ...]


class UsageModel(StoredRecord):
    """Everything that traces are generated from.

    Attributes:
        name: For people.
        processes: One per channel, a given one before those that need it; otherwise they are independent of
            each other, given the hour.
        battery: Needs a process with ``plugged``.
        apps: Needs a process with ``screen``.
    """

    name: str = Field(min_length=1)
    processes: tuple[Process, ...] = Field(min_length=1)
    battery: BatteryModel | None = None
    apps: AppMix | None = None

    @model_validator(mode="after")
    def _parts_fit(self) -> UsageModel:
        channels: list[str] = []
        for process in self.processes:
            if process.given is not None and process.given not in channels:
                raise ValueError(f"{process.channel}: there is no process of {process.given} before it")
            channels.append(process.channel)
        if len(set(channels)) != len(channels):
            raise ValueError("a channel appears in two processes")
        for part, channel in (("battery", "plugged"), ("apps", "screen")):
            if getattr(self, part) is not None and channel not in channels:
                raise ValueError(f"{part} needs a process with {channel!r}")
        return self


BUNDLED = {
    "default": "default_usage_model.json",
    "availability": "availability_usage_model.json",
}
"""Models that ship with joulefleet, by name."""
NETWORK_MODEL = "network_model.json"


def load_network_model() -> NetworkModel:
    """The model of throughput that ships with joulefleet."""
    return validate(_shipped(NETWORK_MODEL), NetworkModel, name=NETWORK_MODEL)


def load_model(name_or_path: str) -> UsageModel:
    """A bundled model by its name, or one from a file.

    Raises:
        ConfigError: There is neither.
    """
    if name_or_path in BUNDLED:
        return validate(_shipped(BUNDLED[name_or_path]), UsageModel, name=BUNDLED[name_or_path])
    path = Path(name_or_path)
    if not path.is_file():
        raise ConfigError(
            f"{name_or_path}: no such usage model",
            hint=f"give a file made by `joulefleet traces fit`, or one of {', '.join(BUNDLED)}",
        )
    return read_record(path, UsageModel)


def _shipped(name: str) -> Any:
    return json.loads(files("traces").joinpath("data", name).read_text(encoding="utf-8"))
