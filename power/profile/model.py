"""`DeviceProfile`: what one device needs for one model, in seconds and joules, with error bars.

A profile file is self-contained. It names the captures it was computed from by their hashes; where that
chain is absent or broken, or the file was edited, the numbers are still usable but say ``imported``.

How much longer and how much more energy training takes beside a background load is a monotone curve. Between
its points it is PCHIP (Fritsch and Carlson 1980), which never overshoots: monotone points give a monotone
curve. Beyond the first and the last point it stays at their value, because nothing was measured there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from joulefleet.config import ClosedModel
from joulefleet.errors import DataQualityError, StorageError
from joulefleet.provenance import Origin, Provenance, Sha256, SourceRef, weakest
from joulefleet.records import StoredRecord, read_record, write_record
from power.profile.quantity import Quantity, StatedSpread

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray


class LoadPoint(ClosedModel):
    """Training beside a background load.

    Attributes:
        load: Background CPU load, 0 (none) to 1 (all cores busy).
        slowdown: Epoch duration relative to no load, at least 1 up to noise.
        energy_factor: Marginal energy relative to no load.
    """

    load: float = Field(ge=0, le=1)
    slowdown: float = Field(gt=0)
    energy_factor: float = Field(gt=0)


def interpolate(x: Sequence[float], y: Sequence[float], at: ArrayLike) -> NDArray[np.float64]:
    """PCHIP through points of increasing ``x``, constant outside; 1 everywhere without points."""
    import numpy as np  # not at the top: profiles are also listed, where nothing is computed

    where = np.asarray(at, np.float64)
    if not x:
        return np.ones(where.shape)
    if len(x) == 1:
        return np.full(where.shape, float(y[0]))
    from scipy.interpolate import PchipInterpolator

    curve = PchipInterpolator(np.asarray(x, np.float64), np.asarray(y, np.float64))
    values: NDArray[np.float64] = curve(np.clip(where, x[0], x[-1]))
    return values


EnergyKind = Literal["gross", "net", "marginal"]
Cores = Literal["big_little", "equal"]
"""Whether a phone has big and little cores, or all alike."""


class PhaseCost(ClosedModel):
    """What one phase takes.

    Attributes:
        duration_s: Seconds.
        gross_j: Energy drawn by the whole device during the phase, joules.
        net_j: Gross minus idle power times duration.
        marginal_j: Gross minus what the background load alone draws; equals net without background load.
    """

    duration_s: Quantity
    gross_j: Quantity
    net_j: Quantity | None = None
    marginal_j: Quantity | None = None

    @model_validator(mode="after")
    def _physical(self) -> Self:
        for name in ("duration_s", "gross_j"):
            if getattr(self, name).mean < 0:
                raise ValueError(f"{name}: negative mean {getattr(self, name).mean}")
        return self

    def energy_j(self, kind: EnergyKind = "marginal") -> Quantity:
        """The energy of one kind.

        Raises:
            DataQualityError: It was not measured: another kind is never put in its place.
        """
        quantity: Quantity | None = getattr(self, f"{kind}_j")
        if quantity is None:
            raise DataQualityError(
                f"this profile has no {kind} energy",
                hint="measure with idle intervals around the work, or choose gross energy",
            )
        return quantity


class TransferCost(PhaseCost):
    """What a transfer takes. With its size, another network's speed can be put in.

    Attributes:
        bytes: Size of what is transferred; None if it is not known.
    """

    bytes: int | None = Field(default=None, ge=0)


class MeasuredLoad(ClosedModel):
    """One background load as it was measured: a point behind the load curve.

    Attributes:
        name: What the plan called it.
        kind: What it keeps busy. The curve is about processors only.
        load: Share of the device's processors that it asks for, 0 to 1.
        load_only_power_w: The device with the load and without the training.
        epoch: A later local epoch beside the load.
    """

    name: str = Field(min_length=1)
    kind: Literal["none", "cpu", "memory"]
    load: float = Field(ge=0, le=1)
    load_only_power_w: Quantity | None = None
    epoch: PhaseCost


class Battery(ClosedModel):
    """Battery of the device: capacity in joules and charging power in watts."""

    capacity_j: float = Field(gt=0)
    charge_w: float = Field(gt=0)


class PublishedSpread(ClosedModel):
    """What is published about phones like this one, where nobody measured it on the device itself.

    Standard deviations of logarithms.

    Attributes:
        cores: Which measurements of training beside apps apply (`power.reference`).
        time_log_sd: Of its time between sessions.
        power_log_sd: Of its power between sessions.
        class_log_sd: Of what a benchmark score says about the speed of a kind of phone, the same for all.
        unit_log_sd: Of the score between phones of this kind.
    """

    cores: Cores
    time_log_sd: float = Field(ge=0, le=2)
    power_log_sd: float = Field(ge=0, le=2)
    class_log_sd: float = Field(ge=0, le=2)
    unit_log_sd: float = Field(ge=0, le=2)


class Thermal(ClosedModel):
    """How hot the device was, and what was left out because it throttled.

    Attributes:
        epochs_used: Epochs behind the profile's numbers.
        epochs_throttled: Epochs during which the device throttled. They are in no number of the profile.
        epochs_unknown: Of those used, how many had no throttling telemetry.
        temperature_min_c: Lowest temperature at the beginning of a capture, if there was a sensor.
        temperature_max_c: Highest temperature during a capture.
    """

    epochs_used: int = Field(ge=0)
    epochs_throttled: int = Field(default=0, ge=0)
    epochs_unknown: int = Field(default=0, ge=0)
    temperature_min_c: float | None = None
    temperature_max_c: float | None = None


class DeviceProfile(StoredRecord):
    """Costs of federated training on one (device, model, data set, backend).

    Examples:
        >>> profile = reference_fleet("mnist-lenet5")[0]
        >>> profile.label, profile.epoch.duration_s.interval, profile.origin

    Attributes:
        samples: Training samples of one epoch in the measurement.
        batch_size: Samples per step.
        threads: Of the backend; 0 if it was left to the backend, None if not known.
        synthetic_data: Whether the samples were random ones of the same shape; None if not known.
        warmup_epochs: Trained before the probe and counted nowhere; None if not known. Rounds have none.
        probe: The first local epoch, from which the server decides.
        epoch: Any later local epoch.
        epoch_cpu_s: Processor time of an epoch without background load, the first one included.
        round: All ``local_epochs`` epochs together, the probe included, without waiting and transfers.
        local_epochs: l_ep.
        download: Receiving the global model.
        upload: Sending the update.
        idle_power_w: Device asleep or idle, nothing running.
        wait_power_w: Awake and waiting for the server's decision.
        load_curve: Slowdown and energy against background load, monotone, by increasing load.
        load_levels: What the curve was fitted to.
        thermal: Temperature and throttling during the measurement.
        sessions: Sessions behind the profile; None if not known. A quantity may rest on fewer.
        stated_spread: Spread between sessions that was stated for the quantities of fewer than three.
        published: What is published about phones like it; None if it was measured, which then counts.
        notes: What a reader of the numbers should know.
        content_sha256: Hash of everything else in the file, set when it is saved.
    """

    LATER = frozenset(
        {
            "threads",
            "synthetic_data",
            "warmup_epochs",
            "epoch_cpu_s",
            "sessions",
            "stated_spread",
            "published",
        }
    )

    device: str = Field(min_length=1)
    model: str = Field(min_length=1)
    dataset: str = Field(min_length=1)
    backend: str = Field(min_length=1)
    samples: int = Field(gt=0)
    batch_size: int = Field(gt=0)
    threads: int | None = Field(default=None, ge=0)
    synthetic_data: bool | None = None
    warmup_epochs: int | None = Field(default=None, ge=0)
    probe: PhaseCost
    epoch: PhaseCost
    epoch_cpu_s: Quantity | None = None
    round: PhaseCost | None = None
    local_epochs: int | None = Field(default=None, ge=1)
    download: TransferCost | None = None
    upload: TransferCost | None = None
    idle_power_w: Quantity | None = None
    wait_power_w: Quantity | None = None
    load_curve: tuple[LoadPoint, ...] = ()
    load_levels: tuple[MeasuredLoad, ...] = ()
    thermal: Thermal | None = None
    battery: Battery | None = None
    sessions: int | None = Field(default=None, ge=1)
    stated_spread: StatedSpread | None = None
    published: PublishedSpread | None = None
    notes: tuple[str, ...] = ()
    provenance: Provenance
    content_sha256: Sha256 | None = None

    @model_validator(mode="after")
    def _curve_is_ordered(self) -> Self:
        loads = [point.load for point in self.load_curve]
        if loads != sorted(set(loads)):
            raise ValueError("load_curve: loads must increase")
        return self

    @property
    def origin(self) -> Origin:
        """Where these numbers came from."""
        return self.provenance.origin

    @property
    def label(self) -> str:
        """``device/model/dataset/backend``: what the profile is about."""
        return "/".join((self.device, self.model, self.dataset, self.backend))

    @property
    def task(self) -> str:
        """``dataset-model``, as tasks are called, e.g. ``mnist-lenet5``; of one's own its one name."""
        return self.model if self.model == self.dataset else f"{self.dataset}-{self.model}"

    def slowdown_at(self, load: ArrayLike) -> NDArray[np.float64]:
        """Duration of an epoch beside a background load, relative to none; 1 if that was not measured."""
        points = self.load_curve
        return interpolate([p.load for p in points], [p.slowdown for p in points], load)

    def energy_factor_at(self, load: ArrayLike) -> NDArray[np.float64]:
        """Marginal energy of an epoch beside a background load, relative to none; likewise."""
        points = self.load_curve
        return interpolate([p.load for p in points], [p.energy_factor for p in points], load)

    def waiting_w(self, kind: EnergyKind = "marginal") -> float | None:
        """Power of waiting awake as this kind of energy counts it: in full, or what it takes beyond idling.

        Returns:
            ``None`` if waiting was not measured.

        Raises:
            DataQualityError: Idle power was not measured, so that only gross energy is known.
        """
        if self.wait_power_w is None or kind == "gross":
            return self.wait_power_w.mean if self.wait_power_w else None
        if self.idle_power_w is None:
            raise DataQualityError(
                f"profile {self.label} has no idle power, so its waiting has no {kind} energy",
                hint="measure its idle power, or choose gross energy",
            )
        return max(0.0, self.wait_power_w.mean - self.idle_power_w.mean)

    def quantities(self) -> dict[str, Quantity]:
        """Every quantity by its place, such as ``epoch.gross_j`` or ``load_levels.game.epoch.duration_s``.

        Examples:
            >>> {name: (q.sd, q.session_sd, q.session_sd_from) for name, q in profile.quantities().items()}
        """
        costs = {name: getattr(self, name) for name in ("probe", "epoch", "round", "download", "upload")}
        costs |= {f"load_levels.{level.name}.epoch": level.epoch for level in self.load_levels}
        found = {
            f"{place}.{name}": getattr(cost, name)
            for place, cost in costs.items()
            if cost is not None
            for name in ("duration_s", "gross_j", "net_j", "marginal_j")
        }
        found |= {name: getattr(self, name) for name in ("epoch_cpu_s", "idle_power_w", "wait_power_w")}
        found |= {f"load_levels.{x.name}.load_only_power_w": x.load_only_power_w for x in self.load_levels}
        return {name: quantity for name, quantity in found.items() if quantity is not None}

    def sealed(self) -> Self:
        """The same profile with the hash of its content."""
        bare = self.model_copy(update={"content_sha256": None})
        return bare.model_copy(update={"content_sha256": bare.sha256()})

    @property
    def is_sealed(self) -> bool:
        """Whether the content is what was saved."""
        return self.content_sha256 is not None and self.sealed().content_sha256 == self.content_sha256


def save_profile(profile: DeviceProfile, path: Path) -> DeviceProfile:
    """Seal a profile and store it; never overwrites."""
    sealed = profile.sealed()
    write_record(path, sealed)
    return sealed


def load_profile(path: Path | str, *, verify: Callable[[SourceRef], bool] | None = None) -> DeviceProfile:
    """Read a profile, weakening its claim to what can be shown here.

    Examples:
        >>> profile = load_profile("pixel-7_lenet5.json")
        >>> profile.epoch.duration_s.interval, profile.origin

    Args:
        path: The file.
        verify: Tells whether a source (a capture) is at hand with that hash. Without it nothing is.

    Returns:
        The profile; ``measured`` only if the file is as it was sealed and every source verifies.
    """
    path = Path(path)
    if path.suffix != ".json":
        raise StorageError(f"{path}: a profile is a .json file")
    profile = read_record(path, DeviceProfile)
    problems = []
    if not profile.is_sealed:
        edited = "the file was edited after it was saved"
        problems.append(edited if profile.content_sha256 else "written by hand: the file has no seal")
    if profile.origin is Origin.MEASURED:
        missing = [s.id for s in profile.provenance.sources if verify is None or not verify(s)]
        if missing:
            problems.append(f"captures not at hand: {', '.join(missing)}")
    if problems:
        origin = weakest([Origin.IMPORTED, profile.origin])
        weaker = profile.provenance.weakened(origin, basis="; ".join(problems))
        return profile.model_copy(update={"provenance": weaker})
    return profile
