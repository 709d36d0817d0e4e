"""Profiles on disk: made from the captures of a run, found again, and believed as far as they can be checked.

Profiles lie in the ``profiles`` folder of runs. A file's name ends in the beginning of its content's hash, so
building the same profile again changes nothing, and another one never overwrites it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from joulefleet.errors import ConfigError, DataQualityError, JoulefleetError
from joulefleet.provenance import SourceRef
from joulefleet.runstore import RunStore
from joulefleet.runstore.folder import check_folder
from power import DeviceProfile, load_profile
from power.profile import StatedSpread, save_profile
from power.reference import listed_fleet, reference_fleet

if TYPE_CHECKING:
    from harness.evidence.capture import Capture
    from power.calibrate import MeterCalibration

PROFILES = "profiles"
FAILED = "failed"
EARLIER = "earlier"
"""Folder within `PROFILES` for those that a later one, of more captures of the run, has replaced."""

RUN_ID = re.compile(r"[0-9a-f]{8}")
RUN_TIME = "%Y%m%dT%H%M%SZ"
"""How the name of a run begins."""
ID_LENGTH = 8


@dataclass(frozen=True, slots=True)
class Stored:
    """A profile and where it was found; ``path`` is None for the reference fleet."""

    profile: DeviceProfile
    path: Path | None

    @property
    def id(self) -> str:
        """What tells it from every other profile, also of the same device and task."""
        return str(self.profile.content_sha256 or self.profile.sealed().content_sha256)[:ID_LENGTH]

    @property
    def run(self) -> str:
        """Name of the run that it lies in; empty if it is in none."""
        if self.path is None or self.path.parent.name != PROFILES:
            return ""
        return self.path.resolve().parent.parent.name

    @property
    def created_utc(self) -> datetime | None:
        """When that run began; None if that is not known."""
        try:
            return datetime.strptime(self.run.partition("_")[0], RUN_TIME).replace(tzinfo=UTC)
        except ValueError:
            return None

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

    check_folder(folder)
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


def build_run_profiles(
    run: Path | str,
    *more: Path | str,
    stated_spread: StatedSpread | None = None,
    calibration: MeterCalibration | None = None,
    device: str = "",
    without: Container[tuple[str, str, str]] = (),
) -> Built:
    """Build the profiles of a run and store them in it. A cell without usable epochs is skipped.

    With more runs each profile rests on the captures of all of them. Such profiles, and those with a spread
    that no plan states, go to a run of their own beside the first: a run's own profiles follow from itself.

    Examples:
        >>> built = build_profiles("runs/RUN")
        >>> [stored.profile.label for stored in built.profiles], built.problems

    Args:
        run: The run.
        more: Further runs, of the same or other devices.
        stated_spread: Spread between sessions, where fewer than three were measured.
        calibration: Of the meter, instead of what its recordings say; captures of other meters stay.
        device: Whose meter was calibrated; needed where the calibration fits those of several devices.
        without: Device, workload and backend of cells that are skipped too: not all of them was measured.

    Raises:
        ConfigError: The calibration fits no capture, or those of several devices.
        DataQualityError: A run has no capture, one was changed, or one is there twice.
    """
    # Here, not at the top: listing profiles integrates nothing, and scipy alone takes longer than a list may.
    from harness.profiles.build import build_profile
    from harness.profiles.cells import by_cell

    runs = list(dict.fromkeys(Path(one).resolve() for one in (run, *more)))
    captures = [capture for one in runs for capture in captures_in(one)]
    _require_once(captures)
    profiles, problems = [], []
    if calibration is not None:
        captures = recalibrated(captures, calibration, device)
    for key, found in by_cell(captures).items():
        if (key.device, key.workload, key.backend) in without:
            continue
        try:
            profiles.append(build_profile(found, stated_spread=stated_spread))
        except DataQualityError as error:
            problems.append(f"{key.device}, {key.workload} with {key.backend}: {error.message}")
    if not profiles:
        return Built(problems=tuple(problems))
    if len(runs) == 1 and stated_spread is None:
        folder = Path(run) / PROFILES
        folder.mkdir(exist_ok=True)
        stored = tuple(store(profile, folder) for profile in profiles)
        _put_earlier_aside(folder, profiles)
        return Built(stored, tuple(problems))
    return Built(store_as_run(profiles, Path(run).parent, PROFILES), tuple(problems))


def _put_earlier_aside(folder: Path, profiles: Iterable[DeviceProfile]) -> None:
    """Move profiles that rest on a part of the same captures: whoever takes the folder would count them too.

    They are there if somebody looked at a run between two of its sessions.
    """
    for path in sorted(folder.glob("*.json")):
        try:
            old = load_profile(path)
        except JoulefleetError:
            continue  # not ours to judge
        sources = set(old.provenance.sources)
        if any(old.label == p.label and sources < set(p.provenance.sources) for p in profiles):
            (folder / EARLIER).mkdir(exist_ok=True)
            path.rename(folder / EARLIER / path.name)


def _require_once(captures: Iterable[Capture]) -> None:
    """Refuse captures that are there twice, as in a run and its copy: they would count as repetitions."""
    seen: dict[str, Path] = {}
    for capture in captures:
        record = capture.record
        # A copy under a name of its own still has the recording of the first.
        for what in (f"capture {record.capture_id}", f"recording {record.recording_sha256[:16]}"):
            if what in seen:
                raise DataQualityError(
                    f"{what} is in {seen[what]} and in {capture.folder}",
                    hint="a run and its copy are one run: name one of them",
                )
            seen[what] = capture.folder


def recalibrated(captures: Sequence[Capture], calibration: MeterCalibration, device: str) -> list[Capture]:
    """Captures with the calibration on those that it fits.

    Raises:
        ConfigError: It fits none, or those of several devices.
    """
    found, names, misfit = [], set(), None
    for capture in captures:
        name, recording = capture.record.device.name, capture.recording
        if device in ("", name):
            try:
                recording = recording.recalibrated(calibration)
                names.add(name)
            except ConfigError as error:
                misfit = error
        found.append(replace(capture, recording=recording))
    if not names:
        raise misfit or ConfigError(f"no capture of a device {device!r}", hint="check the name")
    if len(names) > 1:
        raise ConfigError(
            f"the calibration fits the meters of {', '.join(sorted(names))}", hint="say whose with --device"
        )
    return found


def store(profile: DeviceProfile, folder: Path) -> Stored:
    """Store a profile under a name of its own; storing it twice is storing it once."""
    sealed = profile.sealed()
    path = folder / f"{file_stem(sealed)}_{str(sealed.content_sha256)[:ID_LENGTH]}.json"
    if not path.exists():
        save_profile(sealed, path)
    return Stored(sealed, path)


def store_as_run(profiles: Iterable[DeviceProfile], root: Path, name: str) -> tuple[Stored, ...]:
    """Store profiles in a run of their own, which appears with all of them in it."""
    with RunStore(root).create_whole(name, kind=PROFILES) as (path, hidden):
        folder = hidden / PROFILES
        folder.mkdir()
        stored = [store(profile, folder) for profile in profiles]
    return tuple(replace(one, path=path / PROFILES / one.path.name) for one in stored if one.path)


def file_stem(profile: DeviceProfile) -> str:
    """The label as a file name."""
    return re.sub(r"[^A-Za-z0-9.+-]+", "_", profile.label.replace("/", "_")).strip("_")


def verifier(run: Path) -> Callable[[SourceRef], bool]:
    """Tells whether a capture in a run, or in one beside it, is whole and has the hash that is named.

    A profile may rest on several runs. Each is looked at once, and only if a source is of that run.
    """

    @cache
    def whole(place: Path) -> dict[str, str]:
        return dict(_whole_captures(place))

    def verify(source: SourceRef) -> bool:
        if whole(run).get(source.id) == source.sha256:
            return True
        run_id = source.id.partition("/")[0]
        beside = run.parent.glob(f"*_{run_id}") if RUN_ID.fullmatch(run_id) else ()
        return any(whole(place).get(source.id) == source.sha256 for place in beside)

    return verify


def _whole_captures(run: Path) -> Iterable[tuple[str, str]]:
    from harness.evidence.capture import CAPTURE_FILE, open_capture, verify_capture

    for file in run.rglob(CAPTURE_FILE):
        try:
            check_folder(file.parent)
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
    files = sorted((run / PROFILES).glob("*.json"))
    if files:  # else it may be any folder, which is not ours to judge
        check_folder(run)
    verify = verifier(run)
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


def _published(fleet: Callable[[], Sequence[DeviceProfile]]) -> list[Stored]:
    return [Stored(profile, None) for profile in fleet()]


def find_profile(name: str, root: Path) -> Stored:
    """A profile by its file, its id, its label or a part of it; runs come before the published fleets.

    Raises:
        ConfigError: None or several match.
    """
    path = Path(name)
    if path.suffix == ".json" and path.exists():
        return read(path)
    groups = (
        partial(stored_profiles, root),
        partial(_published, reference_fleet),
        partial(_published, listed_fleet),
    )
    for candidates in (group() for group in groups):
        exact = [found for found in candidates if name in (found.profile.label, found.id)]
        matches = exact or [found for found in candidates if name.lower() in found.profile.label.lower()]
        if len(matches) == 1:
            return matches[0]
        if matches:
            same = len({found.profile.label for found in matches}) == 1
            listed = ", ".join(
                f"{found.id} ({found.run or found.place})" if same else found.profile.label
                for found in matches[:5]
            )
            more = f" and {len(matches) - 5} more" if len(matches) > 5 else ""
            raise ConfigError(
                f"{name!r} fits {len(matches)} profiles: {listed}{more}",
                hint="name more of the label, or the id (`joulefleet profile list`)",
            )
    near = difflib.get_close_matches(name, [profile.label for profile in reference_fleet()], cutoff=0.3)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ConfigError(
        f"no profile {name!r} in {root} or the reference fleet",
        hint=f"{hint}`joulefleet profile list` lists all",
    )
