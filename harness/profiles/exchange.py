"""Profiles that travel: exported as they are, imported as what they can prove, which is less."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from harness.profiles.library import Stored, file_stem, store_as_run
from joulefleet.errors import StorageError
from joulefleet.files import new_folder, write_atomic
from joulefleet.printable import csv_text
from joulefleet.provenance import Origin, weakest
from power import DeviceProfile, load_profile
from power.profile import PhaseCost, save_profile

PHASES = ("probe", "epoch", "round", "download", "upload")
COLUMNS = (
    "device", "model", "dataset", "backend", "origin", "samples", "batch_size", "local_epochs", "phase",
    "duration_s", "duration_half_width_95_s", "duration_factor_95", "gross_j", "net_j", "marginal_j",
    "marginal_half_width_95_j", "marginal_factor_95", "n", "sessions", "session_sd_from",
    "duration_session_sd_s", "marginal_session_sd_j", "bytes",
)  # fmt: skip


def export_profiles(profiles: Sequence[DeviceProfile], target: Path) -> list[Path]:
    """Write profiles as files of their own: one ``.json``, a folder of them, or one ``.csv`` for all.

    A CSV is for reading; only JSON can be imported again.
    """
    if target.suffix == ".csv":
        write_atomic(target, _csv(profiles).encode())
        return [target]
    if target.suffix == ".json":
        if len(profiles) != 1:
            raise StorageError(
                f"{target}: one file holds one profile, not {len(profiles)}",
                hint="name a folder, or a .csv file",
            )
        save_profile(profiles[0], target)
        return [target]
    named = {f"{name}.json": profile for name, profile in _names(profiles).items()}
    # A new folder appears with all of them in it.
    with contextlib.nullcontext(target) if target.is_dir() else new_folder(target) as folder:
        for name, profile in named.items():
            save_profile(profile, folder / name)
    return [target / name for name in named]


def _names(profiles: Sequence[DeviceProfile]) -> dict[str, DeviceProfile]:
    """File names: the label, and the id where several have it. One that is there twice is written once."""
    stems = [file_stem(profile) for profile in profiles]
    named = {}
    for stem, profile in zip(stems, profiles, strict=True):
        several = stems.count(stem) > 1
        named[f"{stem}_{Stored(profile, None).id}" if several else stem] = profile
    return named


def import_profiles(paths: Sequence[Path], root: Path) -> tuple[Stored, ...]:
    """Take in foreign profiles as a run: whatever they claim, here they are ``imported`` or weaker.

    Raises:
        ConfigError: One is no profile; the offending field is named.
    """
    return store_as_run([_imported(path) for path in paths], root, "import")


def _imported(path: Path) -> DeviceProfile:
    profile = load_profile(path)
    origin = weakest([Origin.IMPORTED, profile.origin])
    content = f"content {profile.content_sha256[:16]}" if profile.content_sha256 else "never sealed"
    basis = f"imported from {path.name}, {content}"
    provenance = profile.provenance.weakened(origin, basis=basis)
    return profile.model_copy(update={"provenance": provenance})


def _csv(profiles: Sequence[DeviceProfile]) -> str:
    rows = []
    for profile in profiles:
        for phase in PHASES:
            cost: PhaseCost | None = getattr(profile, phase)
            if cost is not None:
                rows.append(_row(profile, phase, cost))
    return csv_text(COLUMNS, ([row[name] for name in COLUMNS] for row in rows))


def _row(profile: DeviceProfile, phase: str, cost: PhaseCost) -> dict[str, object]:
    marginal = cost.marginal_j
    return {
        "device": profile.device,
        "model": profile.model,
        "dataset": profile.dataset,
        "backend": profile.backend,
        "origin": profile.origin.value,
        "samples": profile.samples,
        "batch_size": profile.batch_size,
        "local_epochs": profile.local_epochs,
        "phase": phase,
        "duration_s": cost.duration_s.mean,
        "duration_half_width_95_s": cost.duration_s.half_width_95,
        "duration_factor_95": cost.duration_s.factor_95,
        "gross_j": cost.gross_j.mean,
        "net_j": cost.net_j.mean if cost.net_j else None,
        "marginal_j": marginal.mean if marginal else None,
        "marginal_half_width_95_j": marginal.half_width_95 if marginal else None,
        "marginal_factor_95": marginal.factor_95 if marginal else None,
        "n": cost.duration_s.n,
        "sessions": cost.duration_s.sessions,
        "session_sd_from": cost.duration_s.session_sd_from,
        "duration_session_sd_s": cost.duration_s.session_sd,
        "marginal_session_sd_j": marginal.session_sd if marginal else None,
        "bytes": getattr(cost, "bytes", None),
    }
