"""The facts behind the reference fleet, with a source for each: ``facts.json``, written by a script.

``python -m harness.profiles.reference_fleet`` computes the file from the data sets it names. No number in it
was measured by joulefleet.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from joulefleet.config import ClosedModel, validate
from joulefleet.records import StoredRecord
from power.profile.model import Cores

Family = Literal["convolution", "depthwise", "recurrent"]
Watts = Annotated[float, Field(gt=0)]
Duration = Annotated[float, Field(gt=0)]


class FactSource(ClosedModel):
    """Where facts were taken from, and what was done with them."""

    title: str
    place: str
    licence: str
    used_for: str


class Anchor(ClosedModel):
    """A published training time on the anchor SoC.

    Attributes:
        macs_per_sample: Multiply-adds of a forward pass.
        batch_s: Intercept of time per batch against batch size; 0 where a single size was published.
        sample_s: Slope of the same.
        source: Key of a source.
    """

    model: str
    family: Family
    device: str
    macs_per_sample: float = Field(gt=0)
    parameters: int = Field(gt=0)
    batch_s: float
    sample_s: float = Field(gt=0)
    source: str


class Speed(ClosedModel):
    """Training time of a batch on the anchor SoC.

    ``batch_s + parameter_s x parameters + batch x FLOP per sample / flop_s[family]``

    Attributes:
        soc: The SoC whose speed is 1.
        flop_s: Arithmetic per second by kind of model, forward and backward.
        log_sd: Standard deviation of the logarithm of a prediction, by kind of model.
        device_log_sd: The same for predicting another SoC from its score.
        coremark_exponent: Score of a SoC without one: proportional to its CoreMark to this power.
        coremark_log_sd: How well that fits where both are known.
        check: What an independent data set says about it.
    """

    soc: str
    batch_s: float = Field(gt=0)
    parameter_s: float = Field(ge=0)
    flop_s: dict[Family, float]
    log_sd: dict[Family, float]
    device_log_sd: float = Field(gt=0)
    coremark_exponent: float
    coremark_log_sd: float
    check: str
    anchors: tuple[Anchor, ...]


class PowerFacts(ClosedModel):
    """Power while training, waiting and asleep.

    Attributes:
        training_factor: Training power above awake idle, over the sum of the cores' CoreMark power.
        training_log_sd: Between the runs behind it.
        repeat_log_sd: Between freqbench runs of one SoC.
        awake_w: Awake and idle, screen off.
        asleep_w: Screen off, nothing running.
    """

    training_factor: float = Field(gt=0)
    training_log_sd: float = Field(gt=0)
    repeat_log_sd: float = Field(gt=0)
    awake_w: float = Field(gt=0)
    awake_log_sd: float = Field(gt=0)
    asleep_w: float = Field(gt=0)


class RadioLink(ClosedModel):
    """One direction of a radio: power = base + slope x rate, at the median rate of the measurement."""

    base_w: float = Field(gt=0)
    slope_j_per_bit: float = Field(gt=0)
    sd_w: float = Field(gt=0)
    rate_bit_s: float = Field(gt=0)


class Radio(ClosedModel):
    """Both directions; the power is that of the radio, above an idle phone."""

    download: RadioLink
    upload: RadioLink


class TaskFacts(ClosedModel):
    """One model on one data set, counted from the code of `device_agents.workloads`.

    Attributes:
        model: What follows the data set in the task's name.
        samples: Training samples of one of the paper's 100 clients.
        flop_per_sample: Forward and backward.
        bytes: Of the model as float32, buffers included.
    """

    model: str
    dataset: str
    family: Family
    samples: int = Field(gt=0)
    batch_size: int = Field(gt=0)
    local_epochs: int = Field(gt=0)
    flop_per_sample: float = Field(gt=0)
    parameters: int = Field(gt=0)
    bytes: int = Field(gt=0)

    @property
    def name(self) -> str:
        """The task's name, e.g. ``mnist-lenet5``; of one's own its one name."""
        return self.model if self.model == self.dataset else f"{self.dataset}-{self.model}"


class PhoneFacts(ClosedModel):
    """One phone class.

    Attributes:
        score: AI-Benchmark's CPU float score: median over the phones with this SoC, or from CoreMark.
        score_phones: Phones behind it; 0 if it was predicted.
        score_log_sd: Spread between them.
        coremark: Sum over the four fastest cores, iterations per second, at their highest frequency; None if
            it was not measured.
        core_w: Their power, summed, above an idle phone.
        runs: Measurements behind it; 0 if it was interpolated.
        battery_mah: Maker's specification.
        radio: ``lte`` or ``nr`` (5G).
        cores: Whether it has big and little ones.
    """

    device: str
    soc: str
    score: float = Field(gt=0)
    score_phones: int = Field(ge=0)
    score_log_sd: float | None
    coremark: float | None = Field(gt=0)
    core_w: float = Field(gt=0)
    runs: int = Field(ge=0)
    battery_mah: float = Field(gt=0)
    radio: Literal["lte", "nr"]
    cores: Cores


class ListedPhones(StoredRecord):
    """Phones of a published benchmark list, beyond those whose power was measured.

    Attributes:
        power_exponent: Power of a SoC whose power nobody measured: proportional to its score to this power.
        power_log_sd: How well that fits where both are known, and so how well it is known.
        battery_mah: Of every phone: the median of the reference phones, since the list has none.
        columns: What the numbers of a row are.
        rows: One per phone: device, SoC, score, watts of the four fastest cores, measurements behind these (0
            if they were interpolated), radio, cores.
    """

    source: str
    power_exponent: float
    power_log_sd: float = Field(gt=0)
    battery_mah: float = Field(gt=0)
    columns: tuple[str, ...]
    rows: tuple[tuple[str, str, float, float, int, Literal["lte", "nr"], Cores], ...]

    def phones(self) -> tuple[PhoneFacts, ...]:
        """The rows as facts."""
        return tuple(
            PhoneFacts(
                **dict(zip(self.columns, row, strict=True)),
                score_phones=1,
                score_log_sd=None,
                coremark=None,
                battery_mah=self.battery_mah,
            )
            for row in self.rows
        )


class CoreChoice(ClosedModel):
    """The same work on the two little cores of Android's background group, and on four big ones."""

    little_s: Duration
    big_s: Duration
    little_j: float = Field(gt=0)
    big_j: float = Field(gt=0)
    source: str

    @property
    def slowdown(self) -> float:
        """Time in the background group over time outside it."""
        return self.little_s / self.big_s

    @property
    def energy_factor(self) -> float:
        """Energy likewise."""
        return self.little_j / self.big_j


class TrainingBeside(ClosedModel):
    """Training in the background of one phone, alone and beside apps.

    Attributes:
        alone_w: Power of the phone while it only trains.
        alone_s: Time of the training then.
        idle_w: Power of the idle phone; None if it was not published.
        beside: App to its power alone, the power of both, and the time of the training.
    """

    device: str
    cores: Cores
    alone_w: Watts
    alone_s: Duration
    idle_w: Watts | None
    beside: dict[str, tuple[Watts, Watts, Duration]]

    def factors(self, app: str) -> tuple[float, float] | None:
        """Time and marginal energy beside an app over those alone; None if the idle power is not known."""
        if self.idle_w is None:
            return None
        app_w, both_w, both_s = self.beside[app]
        alone_j = (self.alone_w - self.idle_w) * self.alone_s
        return both_s / self.alone_s, (both_w - app_w) * both_s / alone_j


class InterferenceFacts(ClosedModel):
    """Published measurements of training beside apps.

    Attributes:
        background: What Android's background group costs.
        phones: Where training beside apps was measured.
        classes: Class of apps to the measured ones that stand for it.
        categories: Category of apps (`traces.replay.intensity`) to its class.
        otherwise: Class of every other category.
        assumed: What is not measured in this.
    """

    background: CoreChoice
    phones: tuple[TrainingBeside, ...]
    source: str
    classes: dict[str, tuple[str, ...]]
    categories: dict[str, str]
    otherwise: str
    assumed: str

    @model_validator(mode="after")
    def _names_resolve(self) -> Self:
        apps = {app for named in self.classes.values() for app in named}
        lacking = [phone.device for phone in self.phones if apps - set(phone.beside)]
        unknown = {self.otherwise, *self.categories.values()} - set(self.classes)
        if lacking or unknown:
            raise ValueError(f"interference: no measurement for {', '.join((*lacking, *sorted(unknown)))}")
        return self


class VariationFacts(ClosedModel):
    """How one phone differs from session to session: standard deviations of logarithms."""

    time_log_sd: float = Field(ge=0)
    power_log_sd: float = Field(ge=0)
    source: str
    assumed: str


class ReferenceFacts(StoredRecord):
    """Everything that the reference fleet is computed from."""

    sources: dict[str, FactSource]
    speed: Speed
    power: PowerFacts
    radios: dict[str, Radio]
    battery_v: float = Field(gt=0)
    charge_share_per_h: float = Field(gt=0)
    tasks: tuple[TaskFacts, ...]
    phones: tuple[PhoneFacts, ...]
    interference: InterferenceFacts
    variation: VariationFacts


@cache
def listed_phones() -> ListedPhones:
    """The phones of benchmark lists that this version ships."""
    import json

    text = files("power.reference").joinpath("listed.json").read_text(encoding="utf-8")
    return validate(json.loads(text), ListedPhones, name="power/reference/listed.json")


@cache
def reference_facts() -> ReferenceFacts:
    """The facts that this version ships."""
    import json

    text = files("power.reference").joinpath("facts.json").read_text(encoding="utf-8")
    return validate(json.loads(text), ReferenceFacts, name="power/reference/facts.json")
