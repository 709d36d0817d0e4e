"""Whether a profile measured the work that rounds do: what has to agree, and what a reader should know."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from harness.evidence.capture import Capture
from harness.profiles.cells import CellKey
from joulefleet.errors import ConfigError
from power import DeviceProfile

UNSTATED = ("threads", "synthetic_data", "warmup_epochs")
"""Fields that profiles written by hand, or by earlier versions, may leave out."""


@dataclass(frozen=True, slots=True)
class RoundWork:
    """What one device trains in rounds, where nothing is trained before the first epoch.

    Attributes:
        key: Device, workload, data set and backend.
        samples: Of one epoch.
        batch_size: Samples per step.
        threads: Of the backend; 0 if that is left to it, None if not known.
        synthetic_data: Whether the samples are random ones.
    """

    key: CellKey
    samples: int
    batch_size: int
    threads: int | None
    synthetic_data: bool

    @classmethod
    def of(cls, capture: Capture) -> Self:
        """As a capture of a round tells it."""
        record = capture.record
        return cls(
            CellKey.of(capture), record.samples, record.batch_size, record.threads, record.synthetic_data
        )


def fitting_profile(profiles: Sequence[DeviceProfile], work: RoundWork) -> DeviceProfile:
    """The one profile of this work; another number of samples is left to the caller.

    Raises:
        ConfigError: There is none, there are several, or it was measured with other batches or threads.
    """
    key = work.key
    about = (key.device, key.model, key.dataset, key.backend)
    found = [p for p in profiles if (p.device, p.model, p.dataset, p.backend) == about]
    if len(found) != 1:
        others = ", ".join(p.label for p in profiles if p.device == key.device) or "nothing"
        raise ConfigError(
            f"{len(found) or 'no'} profiles of {'/'.join(about)}",
            hint=f"one is needed; of this device there is {others}",
        )
    (profile,) = found
    for name, here, there in (
        ("batch_size", profile.batch_size, work.batch_size),
        ("threads", profile.threads, work.threads),
    ):
        if here != there and None not in (here, there):
            zero = " (0: as many as the backend likes)" if name == "threads" and 0 in (here, there) else ""
            raise ConfigError(
                f"the profile of {key.device} was measured with {name} = {here}, "
                f"the rounds with {there}{zero}",
                hint=f"measure a profile with `{name} = {there}` in the plan",
            )
    return profile


def reservations(profile: DeviceProfile, work: RoundWork) -> list[str]:
    """What a reader of a prediction should know about its profile, and how the work differs."""
    device = profile.device
    notes = [f"profile of {device}: {note}" for note in profile.notes]
    if profile.warmup_epochs:
        notes.append(
            f"{device}: profiled after {profile.warmup_epochs} warm-up epochs, which rounds do not have: "
            "their first epoch may take longer"
        )
    if work.synthetic_data and profile.synthetic_data is False:
        notes.append(
            f"{device}: profiled on real samples, the rounds have random ones, which may take longer"
        )
    if unstated := [name for name in UNSTATED if getattr(profile, name) is None]:
        notes.append(f"{device}: whether {', '.join(unstated)} are as in the rounds is not in its profile")
    if profile.samples != work.samples:
        notes.append(
            f"{device}: profiled with {profile.samples} samples, the rounds have {work.samples}; "
            f"predicted in proportion{_by_steps(profile, work)}"
        )
    return notes


def _by_steps(profile: DeviceProfile, work: RoundWork) -> str:
    """Where the last batch is not full, epochs differ by more than their samples."""
    profiled, trained = (math.ceil(samples / work.batch_size) for samples in (profile.samples, work.samples))
    by_samples = profiled * work.samples / profile.samples
    return "" if trained == by_samples else f", by steps it would be {trained / by_samples - 1:+.1%}"
