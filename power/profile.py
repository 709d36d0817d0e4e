"""`DeviceProfile`: what one device needs for one model, in seconds and joules, with error bars.

A profile file is self-contained. It names the captures it was computed from by their hashes; where that
chain is absent or broken, or the file was edited, the numbers are still usable but say ``imported``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from fedjoule.config import ClosedModel
from fedjoule.errors import StorageError
from fedjoule.provenance import Origin, Provenance, Sha256, SourceRef
from fedjoule.records import StoredRecord, read_record, write_record


class Quantity(ClosedModel):
    """A mean with what is known about its spread. The unit is in the name of the field that holds it.

    Attributes:
        mean: Best estimate.
        n: Repetitions behind it; 0 for values that were not repeated here (literature, scaled).
        sd: Standard deviation between repetitions; None with fewer than two.
        half_width_95: Half of the 95 % interval, systematic parts included; None if unknown.
    """

    mean: float
    n: int = Field(default=0, ge=0)
    sd: float | None = Field(default=None, ge=0)
    half_width_95: float | None = Field(default=None, ge=0)


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


class Battery(ClosedModel):
    """Battery of the device: capacity in joules and charging power in watts."""

    capacity_j: float = Field(gt=0)
    charge_w: float = Field(gt=0)


class DeviceProfile(StoredRecord):
    """Costs of federated training on one (device, model, data set, backend).

    Attributes:
        samples: Training samples of one epoch in the measurement.
        probe: The first local epoch, from which the server decides.
        epoch: Any later local epoch.
        download: Receiving the global model.
        upload: Sending the update.
        idle_power_w: Device asleep or idle, nothing running.
        wait_power_w: Awake and waiting for the server's decision.
        load_curve: Slowdown and energy against background load, by increasing load.
        content_sha256: Hash of everything else in the file, set when it is saved.
    """

    device: str = Field(min_length=1)
    model: str = Field(min_length=1)
    dataset: str = Field(min_length=1)
    backend: str = Field(min_length=1)
    samples: int = Field(gt=0)
    batch_size: int = Field(gt=0)
    probe: PhaseCost
    epoch: PhaseCost
    download: PhaseCost | None = None
    upload: PhaseCost | None = None
    idle_power_w: Quantity | None = None
    wait_power_w: Quantity | None = None
    load_curve: tuple[LoadPoint, ...] = ()
    battery: Battery | None = None
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


def load_profile(path: Path, *, verify: Callable[[SourceRef], bool] | None = None) -> DeviceProfile:
    """Read a profile, weakening its claim to what can be shown here.

    Args:
        path: The file.
        verify: Tells whether a source (a capture) is at hand with that hash. Without it nothing is.

    Returns:
        The profile; ``measured`` only if the file is as it was sealed and every source verifies.
    """
    if path.suffix != ".json":
        raise StorageError(f"{path}: a profile is a .json file")
    profile = read_record(path, DeviceProfile)
    problems = []
    if not profile.is_sealed:
        problems.append("the file was edited after it was saved")
    if profile.origin is Origin.MEASURED:
        missing = [s.id for s in profile.provenance.sources if verify is None or not verify(s)]
        if missing:
            problems.append(f"captures not at hand: {', '.join(missing)}")
    if problems and profile.origin.strength > Origin.IMPORTED.strength:
        weaker = profile.provenance.weakened(Origin.IMPORTED, basis="; ".join(problems))
        return profile.model_copy(update={"provenance": weaker})
    return profile
