"""The usage model: what is fitted on recorded traces, stored as JSON and drawn from.

A `Process` is a semi-Markov process over the joint state of one or more yes-or-no channels. In each state runs
a clock whose rate depends on the hour of the local day and on weekday or weekend; the state is left when the
clock has run an amount drawn from a ``stay`` distribution, which depends on the part of the day in which the
state was entered. The mean of all stays is 1, so the rates say how often a state is left at each hour, and the
distributions how irregularly. People differ: each belongs to a class with rates of its own, and has a factor
on them. Classes are aggregates of at least three people; no row belongs to one person.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from fedjoule.config import ClosedModel, validate
from fedjoule.errors import ConfigError
from fedjoule.provenance import Origin
from fedjoule.records import StoredRecord, read_record

HOURS = 24
DAY_TYPES = ("weekday", "weekend")
BLOCKS = 4
"""Parts of the day, of six hours each."""

CHANNELS = ("screen", "plugged", "wifi", "available")
"""What a process can be about; ``wifi`` becomes network spans, the others facts of a trace."""

STAY_LEVELS = tuple(i / 64 for i in range(64)) + (0.9921875, 0.99609375, 0.998046875, 0.9990234375, 1.0)
"""Levels of the quantiles of a ``stay`` distribution: even, and closer in the tail."""

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
HourRates = tuple[tuple[Positive, ...], tuple[Positive, ...]]


class Evidence(ClosedModel):
    """Where the numbers of one part come from.

    Attributes:
        origin: ``imported``: counted in recorded traces; ``literature``: from a publication.
        source: Which set or publication.
        licence: Terms of the set.
        users: How many people.
        user_days: Days of recording that were counted.
        assumption: What had to be assumed.
    """

    origin: Literal[Origin.IMPORTED, Origin.LITERATURE]
    source: str = Field(min_length=1)
    licence: str = ""
    users: int = Field(default=0, ge=0)
    user_days: float = Field(default=0.0, ge=0)
    assumption: str = ""


class UserClass(ClosedModel):
    """People who behave alike.

    Attributes:
        weight: Share of the people.
        start: Share of each state at midnight.
        leave_per_h: Per state, for weekdays and weekends, how often it is left per hour spent in it.
        goes_to: Per state and part of the day, the odds of each state as the next one.
    """

    weight: Share
    start: tuple[Share, ...]
    leave_per_h: tuple[HourRates, ...]
    goes_to: tuple[tuple[tuple[Share, ...], ...], ...]


class Process(ClosedModel):
    """A semi-Markov process over ``2 ** len(channels)`` states; bit ``k`` of a state is channel ``k``.

    Attributes:
        channels: What it is about.
        classes: Kinds of people.
        stay: Per state and part of the day in which it was entered, quantiles of the amount of clock to spend
            in it, at `STAY_LEVELS`.
        pace_sigma: Spread (standard deviation of the logarithm) of a person's factor on all rates.
        state_sigma: Per state, spread of a person's further factor on the rate of that state.
        evidence: Of the rates and distributions.
        spread_evidence: Of ``state_sigma``, where it is not the same.
    """

    channels: tuple[Literal["screen", "plugged", "wifi", "available"], ...] = Field(min_length=1)
    classes: tuple[UserClass, ...] = Field(min_length=1)
    stay: tuple[tuple[tuple[Annotated[float, Field(ge=0)], ...], ...], ...]
    pace_sigma: float = Field(default=0.0, ge=0)
    state_sigma: tuple[Annotated[float, Field(ge=0)], ...]
    evidence: Evidence
    spread_evidence: Evidence | None = None

    @property
    def states(self) -> int:
        """How many states."""
        return int(2 ** len(self.channels))

    @model_validator(mode="after")
    def _shapes_fit(self) -> Process:
        n = self.states
        for kind in self.classes:
            fits = len(kind.start) == len(kind.leave_per_h) == len(kind.goes_to) == n
            fits &= all(len(row) == HOURS for rates in kind.leave_per_h for row in rates)
            fits &= all(
                len(odds) == BLOCKS and all(len(row) == n and abs(sum(row) - 1) < 1e-6 for row in odds)
                for odds in kind.goes_to
            )
            if not fits or abs(sum(kind.start) - 1) > 1e-6:
                raise ValueError(f"{'+'.join(self.channels)}: a class does not fit {n} states")
        if len(self.stay) != n or len(self.state_sigma) != n:
            raise ValueError(f"{'+'.join(self.channels)}: stay or state_sigma is not of {n} states")
        if any(len(parts) != BLOCKS for parts in self.stay):
            raise ValueError(f"{'+'.join(self.channels)}: stay is not of {BLOCKS} parts of the day")
        for row in (row for parts in self.stay for row in parts):
            if len(row) != len(STAY_LEVELS) or any(a > b for a, b in zip(row, row[1:], strict=False)):
                raise ValueError(f"{'+'.join(self.channels)}: quantiles of stay do not increase")
        if abs(sum(kind.weight for kind in self.classes) - 1) > 1e-6:
            raise ValueError(f"{'+'.join(self.channels)}: weights of the classes do not sum to 1")
        return self


class BatteryModel(ClosedModel):
    """How fast batteries drain and fill.

    Attributes:
        drain_per_h: Quantiles over people, at even levels, of the level lost per hour unplugged.
        fill_per_h: Likewise, of the level gained per hour on a charger while below 90 %.
        screen_factor: How many times faster the level falls with the screen on than with it off.
        evidence: Of the two rates.
        screen_evidence: Of the factor.
    """

    drain_per_h: tuple[Positive, ...] = Field(min_length=2)
    fill_per_h: tuple[Positive, ...] = Field(min_length=2)
    screen_factor: float = Field(default=1.0, ge=1)
    evidence: Evidence
    screen_evidence: Evidence | None = None


class AppMix(ClosedModel):
    """What people do while the screen is on: one category of app per session.

    Attributes:
        categories: Names from the intensity table, most popular first.
        ratio_low: Smallest ratio of the popularity of a category to that of the one before it.
        ratio_high: Largest; each person has one ratio, evenly distributed between the two.
        evidence: Where this comes from.
    """

    categories: tuple[str, ...] = Field(min_length=1)
    ratio_low: Share
    ratio_high: Share
    evidence: Evidence


class UsageModel(StoredRecord):
    """Everything that traces are generated from.

    Attributes:
        name: For people.
        processes: No channel appears in two of them; they are independent of each other given the hour.
        battery: Needs a process with ``plugged``.
        apps: Needs a process with ``screen``.
    """

    name: str = Field(min_length=1)
    processes: tuple[Process, ...] = Field(min_length=1)
    battery: BatteryModel | None = None
    apps: AppMix | None = None

    @model_validator(mode="after")
    def _parts_fit(self) -> UsageModel:
        channels = [channel for process in self.processes for channel in process.channels]
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
"""Models that ship with fedjoule, by name."""


def load_model(name_or_path: str) -> UsageModel:
    """A bundled model by its name, or one from a file.

    Raises:
        ConfigError: There is neither.
    """
    if name_or_path in BUNDLED:
        import json

        text = files("traces").joinpath("data", BUNDLED[name_or_path]).read_text(encoding="utf-8")
        return validate(json.loads(text), UsageModel, name=BUNDLED[name_or_path])
    path = Path(name_or_path)
    if not path.is_file():
        raise ConfigError(
            f"{name_or_path}: no such usage model",
            hint=f"give a file made by `fedjoule traces fit`, or one of {', '.join(BUNDLED)}",
        )
    return read_record(path, UsageModel)
