"""Profiles on disk: made from the captures of a run, found again, and believed as far as they can be checked.

Profiles lie in the ``profiles`` folder of runs. A file's name ends in the beginning of its content's hash, so
building the same profile again changes nothing, and another one never overwrites it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from joulefleet.errors import ConfigError, DataQualityError, JoulefleetError
from joulefleet.provenance import SourceRef
from joulefleet.runstore import RunStore
from power import DeviceProfile, load_profile
from power.profile import save_profile
from power.reference import reference_fleet

if TYPE_CHECKING:
    from harness.evidence.capture import Capture

PROFILES = "profiles"
FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Stored:
    """A profile and where it was found; ``path`` is None for the reference fleet."""

    profile: DeviceProfile
    path: Path | None

    @property
    def place(self) -> str:
        """For people."""
        return "reference fleet" if self.path is None else str(self.path)


def captures_in(folder: Path) -> list[Capture]:
    """Every finished capture below a folder, failed attempts aside.

    Raises:
        DataQualityError: There is none, or one is no longer what was recorded.
    """
    from harness.evidence.capture import CAPTURE_FILE, open_capture, verify_capture

    files = sorted(
        path for path in folder.rglob(CAPTURE_FILE) if FAILED not in path.relative_to(folder).parts
    )
    captures = [open_capture(path.parent) for path in files]
    if not captures:
        raise DataQualityError(
            f"{folder}: no finished capture in it", hint="`joulefleet runs list` shows what is stored"
        )
    for capture in captures:
        changed = verify_capture(capture)
        if changed:
            raise DataQualityError(
                f"{capture.folder}: {', '.join(changed)} changed since the capture was made",
                hint="restore the files, or measure again",
            )
    return captures


@dataclass(frozen=True, slots=True)
class Built:
    """What became of a run's captures: profiles, and why a cell has none."""

    profiles: tuple[Stored, ...] = ()
    problems: tuple[str, ...] = ()


def build_run_profiles(run: Path | str) -> Built:
    """Build the profiles of a run and store them in it. A cell without usable epochs is skipped.

    Example:
        >>> built = build_profiles("runs/RUN")
        >>> [stored.profile.label for stored in built.profiles], built.problems

    Raises:
        DataQualityError: The run has no capture, or one was changed.
    """
    # Here, not at the top: listing profiles integrates nothing, and scipy alone takes longer than a list may.
    from harness.profiles.build import build_profile
    from harness.profiles.cells import by_cell

    run = Path(run)
    folder = run / PROFILES
    profiles, problems = [], []
    for key, captures in by_cell(captures_in(run)).items():
        try:
            profile = build_profile(captures)
        except DataQualityError as error:
            problems.append(f"{key.device}, {key.workload} with {key.backend}: {error.message}")
            continue
        folder.mkdir(exist_ok=True)
        profiles.append(store(profile, folder))
    return Built(tuple(profiles), tuple(problems))


def store(profile: DeviceProfile, folder: Path) -> Stored:
    """Store a profile under a name of its own; storing it twice is storing it once."""
    sealed = profile.sealed()
    path = folder / f"{file_stem(sealed)}_{str(sealed.content_sha256)[:8]}.json"
    if not path.exists():
        save_profile(sealed, path)
    return Stored(sealed, path)


def file_stem(profile: DeviceProfile) -> str:
    """The label as a file name."""
    return re.sub(r"[^A-Za-z0-9.+-]+", "_", profile.label.replace("/", "_")).strip("_")


def verifier(run: Path) -> Callable[[SourceRef], bool]:
    """Tells whether a capture in a run is whole and has the hash that is named; looks at most once."""

    @cache
    def whole() -> dict[str, str]:
        return dict(_whole_captures(run))

    return lambda source: whole().get(source.id) == source.sha256


def _whole_captures(run: Path) -> Iterable[tuple[str, str]]:
    from harness.evidence.capture import CAPTURE_FILE, open_capture, verify_capture

    for file in run.rglob(CAPTURE_FILE):
        try:
            capture = open_capture(file.parent)
            if not verify_capture(capture):
                yield capture.record.capture_id, capture.record.sha256()
        except (JoulefleetError, OSError):
            continue  # a capture that cannot be read proves nothing


def read(path: Path) -> Stored:
    """Read a profile's file, claiming no more than the captures around it prove."""
    folder = path.resolve().parent
    run = folder.parent if folder.name == PROFILES else folder
    return Stored(load_profile(path, verify=verifier(run)), path)


def run_profiles(run: Path) -> list[Stored]:
    """The profiles of a run."""
    verify, files = verifier(run), sorted((run / PROFILES).glob("*.json"))
    return [Stored(load_profile(path, verify=verify), path) for path in files]


def profiles_at(places: Iterable[Path]) -> list[DeviceProfile]:
    """The profiles in some files and runs.

    Raises:
        ConfigError: A folder holds none.
    """
    found = []
    for place in places:
        stored = [read(place)] if place.is_file() else run_profiles(place)
        if not stored:
            raise ConfigError(
                f"{place}: no profiles in it", hint=f"`joulefleet profile build {place.name}` makes them"
            )
        found += [one.profile for one in stored]
    return found


def stored_profiles(root: Path) -> list[Stored]:
    """All profiles in the runs below a folder."""
    if not root.is_dir():
        return []
    return [stored for summary in RunStore(root).list() for stored in run_profiles(summary.path)]


def find_profile(name: str, root: Path) -> Stored:
    """A profile by its file, or by its label or a part of it; runs come before the reference fleet.

    Raises:
        ConfigError: None or several match.
    """
    path = Path(name)
    if path.suffix == ".json" and path.exists():
        return read(path)
    for candidates in (stored_profiles(root), [Stored(profile, None) for profile in reference_fleet()]):
        exact = [found for found in candidates if found.profile.label == name]
        matches = exact or [found for found in candidates if name.lower() in found.profile.label.lower()]
        if len(matches) == 1:
            return matches[0]
        if matches:
            same = len({found.profile.label for found in matches}) == 1
            listed = ", ".join(found.place if same else found.profile.label for found in matches[:5])
            more = f" and {len(matches) - 5} more" if len(matches) > 5 else ""
            raise ConfigError(
                f"{name!r} fits {len(matches)} profiles: {listed}{more}",
                hint="name more of the label, or the file (`joulefleet profile list`)",
            )
    near = difflib.get_close_matches(name, [profile.label for profile in reference_fleet()], n=1, cutoff=0.3)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ConfigError(
        f"no profile {name!r} in {root} or the reference fleet",
        hint=f"{hint}`joulefleet profile list` lists all",
    )
