"""The scenario file.

Defaults are the settings of the FedRank paper (N=100, K=10, 50 rounds, 5 local epochs), and where it is
silent those of the sister paper's published configuration (FedGCS, IJCAI 2024), which the tasks hold.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from emulator.fleet.interference import BackgroundGroup, InterferenceModel
from emulator.fleet.network import TransferSource
from emulator.round.outcome import Accounting
from emulator.round.reward import BudgetRule
from joulefleet.config import SPAN, SPAN_S, ClosedModel, span_s
from joulefleet.provenance import Sha256
from joulefleet.records import StoredRecord
from power.profile import EnergyKind

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
LONGEST_RUN_S = 50 * 366 * SPAN_S["d"]
"""More virtual time than anybody plans, and few enough nanoseconds for an integer."""


MOST_EPOCHS = 100_000
"""Of one device in one round: more would take longer than its clock goes."""


def _seconds(value: object) -> object:
    """A stretch of time that may be written with its unit."""
    if not isinstance(value, str):
        return value
    found = span_s(value)
    if found is None:
        raise ValueError("should be seconds, or a number and a unit (s, min, h, d), such as '30 min'")
    return found


TIME_OF_DAY = r"^([01]\d|2[0-3]):[0-5]\d$"
_TimeOfDay = Annotated[str, Field(pattern=TIME_OF_DAY)]


def _time_of_day(value: object) -> object:
    if not isinstance(value, str) or not re.fullmatch(TIME_OF_DAY, value):
        raise ValueError("should be a time of day from 00:00 to 23:59, such as '22:00'")
    return value


Seconds = Annotated[
    float,
    BeforeValidator(_seconds, json_schema_input_type=float | Annotated[str, Field(pattern=SPAN)]),
    Field(ge=0, le=366 * SPAN_S["d"]),
]


class TracesSection(ClosedModel):
    """What happens to the phones while they train.

    Attributes:
        source: A trace set (folder), its flat form (`joulefleet traces flatten`: opens at once, whatever its
            size), or ``synthetic`` for generated people.
        policy: When a phone may train (`traces.replay.policy`).
        at_end: What happens where a recording ends: it begins again, or the phone is gone. No default: this
            decides results.
        start: Time of day at which the run begins, ``HH:MM`` on the users' clocks.
        time_zone: Of the users, as an IANA name; ``mixed`` to let users of several zones each live by
            their own recording. By default the one zone that the traces name.
        shift: Start each device on a random day of its recording.
        jitter_s: Up to this much is added to or taken from each shift, so that devices that replay the same
            user do not switch in lock-step.
        model: For ``synthetic``: which usage model (`joulefleet traces synth --model`).
        users: For ``synthetic``: how many people.
        days: For ``synthetic``: for how long.
        seed: For ``synthetic``: which people; the same for every seed of the run.
    """

    source: str = "synthetic"
    policy: str = "recorded"
    at_end: Literal["wrap", "stop"]
    start: Annotated[str, BeforeValidator(_time_of_day, json_schema_input_type=_TimeOfDay)] = "00:00"
    time_zone: str = ""
    shift: bool = True
    jitter_s: Seconds = 1800.0
    model: str = "default"
    users: int = Field(default=100, gt=0, le=1_000_000)
    days: int = Field(default=14, gt=0)
    seed: int = Field(default=0, ge=0)


class NetworkSection(ClosedModel):
    """Throughput that was recorded by others than the traces' users (`traces.replay.paired`).

    Attributes:
        source: A trace set with throughput (folder) or its flat form, or ``synthetic`` for generated
            recordings. Each user is given some of it by the seed, of Wi-Fi and mobile networks as the traces
            say.
    """

    source: str

    @field_validator("source")
    @classmethod
    def _not_a_word(cls, source: str) -> str:
        if source in list(TransferSource):
            raise ValueError(f'is for recordings; write network = "{source}" in [fleet]')
        return source


class BatterySection(ClosedModel):
    """Batteries.

    Attributes:
        floor: Level at which a phone switches itself off.
        restart: Level at which a phone that did so takes part again; a choice, not a measurement.
        initial: Level at the start where no trace tells it.
    """

    floor: Share = 0.0
    restart: Share = 0.05
    initial: Share = 1.0


class InterferenceSection(ClosedModel):
    """How apps slow training on phones that nobody measured; a profile from a bench has its own load curve.

    Attributes:
        model: ``literature`` draws from published measurements of training beside apps, ``fair_share`` is a
            scheduler's arithmetic.
        background: For ``literature``: when training is in Android's background group, on two little cores.
    """

    model: InterferenceModel = InterferenceModel.LITERATURE
    background: BackgroundGroup = BackgroundGroup.IN_USE


LogSd = Annotated[float, Field(ge=0, le=2)] | Literal["profile"]
"""A standard deviation of a logarithm, or that of each device's profile."""


class VariationSection(ClosedModel):
    """What no trace explains: a device's time and power vary between rounds; see `emulator.fleet.variation`.

    Attributes:
        time: Standard deviation of the logarithm of a device's time; ``profile``: as between its sessions.
        power: Of its power, likewise.
        correlation_s: After so long values have lost all but 1/e of their correlation; seconds, or ``2 h``.
            The default is a choice: sessions six hours apart, as a bench counts them, share 5 %.
    """

    time: LogSd = "profile"
    power: LogSd = "profile"
    correlation_s: Annotated[Seconds, Field(ge=1)] = 7200.0


class FleetSection(ClosedModel):
    """The devices.

    Attributes:
        devices: N.
        profiles: Profile files and folders of them (relative to the scenario file), ``reference`` for the
            phones computed from published facts, or ``ai-benchmark`` for several hundred of a benchmark list.
        mix: Share of each device name; all profiles alike by default.
        speed_spread: Standard deviation of the logarithm of a device's speed around its profile.
        traces: What happens to them; without, they are always there and idle.
        battery: Batteries.
        network: Where transfer times come from; a table for throughput that was recorded elsewhere.
        interference: How apps slow training.
        variation: What no trace explains.
        registration_error: Standard deviation of the logarithm of what the server knows about a device's
            speed at registration; ``profile``: as well as the profile says that it is known. 0: exact.
    """

    LATER = frozenset({"interference", "variation", "registration_error"})
    BEFORE = MappingProxyType(
        {
            "interference": InterferenceSection(model=InterferenceModel.FAIR_SHARE),
            "variation": VariationSection(time=0.0, power=0.0),
            "registration_error": 0.0,
        }
    )

    devices: int = Field(default=100, gt=0, le=100_000_000)
    profiles: Literal["reference", "ai-benchmark"] | tuple[str, ...] = "reference"
    mix: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)
    speed_spread: float = Field(default=0.0, ge=0, le=5)
    traces: TracesSection | None = None
    battery: BatterySection = BatterySection()
    network: TransferSource | NetworkSection = TransferSource.PROFILE
    interference: InterferenceSection = InterferenceSection()
    variation: VariationSection = VariationSection()
    registration_error: LogSd = "profile"

    @property
    def link(self) -> TransferSource:
        """Where transfer times come from; throughput is throughput, whoever recorded it."""
        return TransferSource.TRACE if isinstance(self.network, NetworkSection) else self.network


class TaskSection(ClosedModel):
    """What is learned.

    Attributes:
        name: A task (`joulefleet list tasks`): the model, and the data it is made for.
        data: Another data set of the same shape.
        partition: Who has which samples (`emulator.data.partition`).
        options: Of the partition.
        held_out: Share of each device's samples that it does not train on.
        batch_size: Samples per step; that of the task by default.
        learning_rate: Of SGD, likewise.
        momentum: Of SGD, likewise.
        samples_per_device: With the surrogate trainer, which loads no data: the size of every device's.
        train_samples: The training split is cut to so many samples, at random by the seed, before it is
            divided among the devices: for machines on which all of them would take too long.
        server_samples: The server's validation and test splits are cut to so many samples each, at random by
            the seed: for models whose evaluation would cost more than their training.
    """

    name: str = "mnist-lenet5"
    data: str | None = None
    partition: str = "iid"
    options: dict[str, float | int | str] = Field(default_factory=dict)
    held_out: float = Field(default=0.0, ge=0, lt=1)
    batch_size: int | None = Field(default=None, gt=0)
    learning_rate: Positive | None = None
    momentum: Annotated[float, Field(ge=0, lt=1)] | None = None
    samples_per_device: int = Field(default=600, gt=0)
    train_samples: int | None = Field(default=None, gt=0)
    server_samples: int | None = Field(default=None, gt=0)


class ProtocolSection(ClosedModel):
    """The rounds; see `emulator.round.rules.RoundRules`.

    Attributes:
        aggregation: A registered one (`emulator.round.rules`).
        candidates: M, for methods that probe; ``all`` is the paper's reading, three times K the default (A3).
        every_s: A round begins no earlier than this after the last one began; seconds, or such as ``30 min``.
            0: as soon as the last one has ended.
    """

    LATER = frozenset({"every_s"})

    rounds: int = Field(default=50, gt=0)
    k: int = Field(default=10, gt=0)
    candidates: int | Literal["all"] | None = None
    local_epochs: int = Field(default=5, gt=0, le=MOST_EPOCHS)
    deadline_s: Annotated[Seconds, Field(gt=0)] | None = None
    probe_deadline_s: Annotated[Seconds, Field(gt=0)] | None = None
    over_commit: float = Field(default=1.0, ge=1, le=10)
    aggregation: str = "by_size"
    test_every: int = Field(default=1, ge=0)
    every_s: Seconds = 0.0


class SelectorSection(ClosedModel):
    """Who chooses: a registered name and the options of its constructor."""

    name: str = "fedavg"
    options: dict[str, Any] = Field(default_factory=dict)


class RewardSection(ClosedModel):
    """How a round is judged; see `emulator.round.reward`.

    Attributes:
        function: A registered reward.
        alpha: Exponent of the time.
        beta: Exponent of the energy.
        budgets: The rule for T and E where they are not given (`emulator.round.budgets`).
        budget_quantile: For ``feasible``: the share of random rounds that keep T, and of those that keep E.
        time_budget_s: T; by the rule if not given.
        energy_budget_j: E, likewise.
        budget_scale: Both are multiplied by this, wherever they come from.
        split: Whose accuracy counts.
    """

    LATER = frozenset({"budgets", "budget_quantile"})
    BEFORE = MappingProxyType({"budgets": BudgetRule.BEST_30})

    function: str = "signed"
    alpha: float = Field(default=2.0, ge=0)
    beta: float = Field(default=2.0, ge=0)
    budgets: BudgetRule = BudgetRule.FEASIBLE
    budget_quantile: Share = 0.5
    time_budget_s: Positive | None = None
    energy_budget_j: Positive | None = None
    budget_scale: Positive = 1.0
    split: Literal["validation", "test"] = "validation"


class TrainerSection(ClosedModel):
    """Who trains.

    Attributes:
        kind: ``auto`` or the name of an implementation; ``surrogate`` trains nothing.
        workers: Processes; as many as there are cores by default. Results do not depend on it.
        precision: ``bfloat16`` computes products with about three digits, faster on processors that have it;
            the results are others, and say so.
    """

    LATER = frozenset({"precision"})

    kind: str = "auto"
    precision: Literal["float32", "bfloat16"] = "float32"
    workers: int | None = Field(default=None, gt=0)


class Scenario(StoredRecord):
    """Everything that decides a run, but for its seed.

    Examples:
        >>> Scenario(name="mine", protocol={"rounds": 20, "k": 5}, selector={"name": "oort"})

    Attributes:
        name: For people, and part of folder names.
        seeds: Which seeds to run.
        accounting: Which R_T and R_E enter the reward; all are logged.
        energy: Which energy is charged.
        checkpoint_every: Rounds between checkpoints, which come at most once a second; 0 for none.
        code: Hash of each file of the user's own that the run executes, by its name. The files are not in it:
            whoever runs it again gives them (``--code``).
        sweep: Variants: dotted keys of this file to lists of values, and ``selectors`` to a list of them.
            `joulefleet emulate` runs every combination.
    """

    LATER: ClassVar[frozenset[str]] = frozenset({"code", "sweep"})

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(default=(0,), min_length=1)
    accounting: Accounting = Accounting.HONEST
    energy: EnergyKind = "marginal"
    checkpoint_every: int = Field(default=1, ge=0)
    fleet: FleetSection = FleetSection()
    task: TaskSection = TaskSection()
    protocol: ProtocolSection = ProtocolSection()
    selector: SelectorSection = SelectorSection()
    reward: RewardSection = RewardSection()
    trainer: TrainerSection = TrainerSection()
    code: dict[str, Sha256] | None = None
    sweep: dict[str, Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _stored_before(cls, data: Any) -> Any:
        """A record without a table that every record has by now is of before: it keeps its meaning.

        Only records say their version; a file that somebody wrote has the defaults of today.
        """
        if not isinstance(data, dict) or "schema_version" not in data:
            return data
        before = {"fleet": FleetSection.BEFORE, "reward": RewardSection.BEFORE}
        known = {name: data[name] for name in before if isinstance(data.get(name), dict)}
        return {**data, **{name: {**before[name], **table} for name, table in known.items()}}

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.protocol.k > self.fleet.devices:
            raise ValueError(
                f"protocol.k: {self.protocol.k} clients per round are more than the fleet of "
                f"{self.fleet.devices}"
            )
        if isinstance(self.protocol.candidates, int) and self.protocol.candidates < self.protocol.k:
            raise ValueError(
                f"protocol.candidates: {self.protocol.candidates} are fewer than the {self.protocol.k} wanted"
            )
        if self.protocol.rounds * self.protocol.every_s > LONGEST_RUN_S:
            raise ValueError(
                f"protocol.every_s: {self.protocol.rounds} rounds would span more than 50 years; "
                "this clock does not go so far"
            )
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError("seeds: one comes twice")
        return self

    @property
    def candidates(self) -> int:
        """M as a number."""
        n, k, m = self.fleet.devices, self.protocol.k, self.protocol.candidates
        return n if m == "all" else min(n, 3 * k if m is None else m)
