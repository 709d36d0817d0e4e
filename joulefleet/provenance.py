"""Where a number came from. The answer travels with the number and can only get weaker.

``measured`` is the strongest claim and ``emulated`` the weakest: whatever an emulated part touched is
emulated for good. Combining evidence keeps the weakest claim in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from joulefleet.config import ClosedModel
from joulefleet.errors import ProvenanceError

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Origin(StrEnum):
    """How a number came to be, strongest first.

    Examples:
        >>> Origin.MEASURED == "measured"
    """

    MEASURED = "measured"
    IMPORTED = "imported"
    SCALED = "scaled"
    LITERATURE = "literature"
    EMULATED = "emulated"

    @property
    def strength(self) -> int:
        """Larger is a stronger claim."""
        return len(Origin) - list(Origin).index(self)


def weakest(origins: Iterable[Origin]) -> Origin:
    """The claim that survives when evidence of several origins is combined."""
    found = list(origins)
    if not found:
        raise ProvenanceError("a number without any evidence has no origin")
    return min(found, key=lambda origin: origin.strength)


BY_HAND = "a file written by hand says 'imported', 'scaled', 'literature' (both with a basis) or 'emulated'"


class SourceRef(ClosedModel):
    """One piece of evidence, pinned by its content."""

    id: str = Field(min_length=1)
    sha256: Sha256


class Instrument(ClosedModel):
    """The instrument behind a reading, as far as a profile's reader needs to know it."""

    kind: str = Field(min_length=1)
    serial: str = ""
    firmware: str = ""
    emulated: bool


class Provenance(ClosedModel):
    """Origin plus the evidence for it.

    Attributes:
        origin: The claim.
        sources: Captures (or files) the number was computed from.
        instrument: Required for ``measured``; must not be an emulated one there.
        calibration_sha256: The calibration record cited, if there is one.
        sync_uncertainty_s: Clock alignment between instrument and device, standard uncertainty.
        loss_fraction: Share of samples lost in the evidence, 0 to 1.
        basis: For ``scaled``, ``literature`` and ``imported``: from what, and how.
    """

    origin: Origin
    sources: tuple[SourceRef, ...] = ()
    instrument: Instrument | None = None
    calibration_sha256: Sha256 | None = None
    sync_uncertainty_s: float | None = Field(default=None, ge=0)
    loss_fraction: float | None = Field(default=None, ge=0, le=1)
    basis: str = ""

    @field_validator("origin", mode="before")
    @classmethod
    def _known(cls, value: object) -> object:
        if value not in list(Origin):
            raise ValueError(f"no such origin; {BY_HAND}")
        return value

    @model_validator(mode="after")
    def _claim_is_backed(self) -> Provenance:
        if self.instrument is not None and self.instrument.emulated and self.origin is not Origin.EMULATED:
            raise ValueError(f"origin {self.origin.value!r}, but the instrument is emulated, so it is too")
        if self.origin is Origin.MEASURED and (self.instrument is None or not self.sources):
            raise ValueError(
                f"origin 'measured' needs an instrument and at least one source with its hash; {BY_HAND}"
            )
        if self.origin in (Origin.SCALED, Origin.LITERATURE) and not self.basis:
            raise ValueError(f"origin {self.origin.value!r} needs a basis: from what, and how")
        return self

    def weakened(self, origin: Origin, *, basis: str = "") -> Provenance:
        """The same evidence under a claim that is at most as strong.

        Raises:
            ProvenanceError: ``origin`` would be a stronger claim.
        """
        if origin.strength > self.origin.strength:
            raise ProvenanceError(f"{self.origin.value} evidence cannot be called {origin.value}")
        joined = "; ".join(filter(None, (self.basis, basis)))
        return Provenance.model_validate({**self.model_dump(), "origin": origin, "basis": joined})


def combine(parts: Iterable[Provenance], *, basis: str = "") -> Provenance:
    """The provenance of a number computed from several: weakest claim, all sources, worst figures."""
    found = list(parts)
    origin = weakest(part.origin for part in found)
    instruments = {part.instrument for part in found}
    syncs = [part.sync_uncertainty_s for part in found if part.sync_uncertainty_s is not None]
    losses = [part.loss_fraction for part in found if part.loss_fraction is not None]
    calibrations = {part.calibration_sha256 for part in found}
    bases = dict.fromkeys(filter(None, [*(part.basis for part in found), basis]))
    # Evidence from two instruments keeps the one that decides the claim.
    deciding = next(part.instrument for part in found if part.origin is origin)
    return Provenance(
        origin=origin,
        sources=tuple(dict.fromkeys(source for part in found for source in part.sources)),
        instrument=instruments.pop() if len(instruments) == 1 else deciding,
        calibration_sha256=calibrations.pop() if len(calibrations) == 1 else None,
        sync_uncertainty_s=max(syncs, default=None),
        loss_fraction=max(losses, default=None),
        basis="; ".join(bases),
    )
