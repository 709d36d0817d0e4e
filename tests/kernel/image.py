"""The guest's disks, built once and kept in a cache outside the tree.

Two parts, each named after the hash of its recipe: ``debian-HASH`` (kernel, initramfs, root file system with
Debian's packages and the INA drivers) and ``python-HASH`` (the packages that joulefleet needs). A part is
built under another name and renamed when it is whole, so an interrupted build leaves the cache as it was and
goes on with what was finished. A part whose bytes have changed since is built again.

``JOULEFLEET_GUEST_CACHE`` names another folder than ``$XDG_CACHE_HOME/joulefleet/guest``.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
RECIPE = Path(__file__).parent / "recipe"
VARIABLE = "JOULEFLEET_GUEST_CACHE"

SUITE = "bookworm"
GUEST_PYTHON = "3.11"  # of this suite; the wheels are for it, whatever runs the tests
PACKAGES = (
    "python3,kmod,udev,usbip,libusb-1.0-0,iproute2,i2c-tools,busybox-static,cpio,"
    "linux-image-amd64,linux-headers-amd64,linux-source-6.1,gcc,make,xz-utils"
)
EXTRAS = ("monsoon",)

PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "setpriv": "util-linux",
}
"""What this machine must have, and the Debian package that has it."""

DEBIAN_S, PYTHON_S, DISK_S = 1800, 900, 300
UNUSED_S = 30 * 24 * 3600
"""A part that nobody used for so long goes away when another is built."""

MANIFEST = "manifest.json"


class GuestError(Exception):
    """The guest cannot be built or does not work; the message says what, where and what to try."""


@dataclass(frozen=True, slots=True)
class Image:
    """A whole guest.

    Attributes:
        debian: Folder with ``vmlinuz``, ``initramfs`` and ``disk``.
        python: Folder with ``disk``.
        built_s: How long the build took; 0 if everything was there.
    """

    debian: Path
    python: Path
    built_s: float


def missing_programs() -> list[str]:
    """The Debian packages that are to be installed first."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    return [package for program, package in PROGRAMS.items() if shutil.which(program, path=path) is None]


def cache_folder() -> Path:
    """Where images are kept."""
    named = os.environ.get(VARIABLE, "")
    if named:
        return Path(named).absolute()
    home = os.environ.get("XDG_CACHE_HOME", "") or Path.home() / ".cache"
    return Path(home) / "joulefleet" / "guest"


def python_requirements() -> list[str]:
    """What the product itself declares: its dependencies and the extra for USB."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = [line for extra in EXTRAS for line in project["optional-dependencies"][extra]]
    return [*project["dependencies"], *extras]


def require_image(folder: Path | None = None) -> Image:
    """The image, from the cache or built now.

    Raises:
        GuestError: Something is missing, or a step of the build fails.
    """
    if missing := missing_programs():
        raise GuestError(f"a guest needs {', '.join(missing)}: apt-get install {' '.join(missing)}")
    folder = folder or cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with _alone(folder):
        built = [
            _part(folder, f"debian-{_hash(*_recipe())}", _build_debian),
            _part(folder, f"python-{_hash(*_python_recipe())}", _build_python),
        ]
    seconds = time.monotonic() - began if any(new for _, new in built) else 0.0
    return Image(built[0][0], built[1][0], seconds)


def _recipe() -> list[str]:
    files = [(RECIPE / name).read_text() for name in ("customize", "init", "start")]
    return [SUITE, PACKAGES, *files]


def _python_recipe() -> list[str]:
    return [GUEST_PYTHON, *python_requirements(), (REPOSITORY / "constraints.txt").read_text()]


def _hash(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One builder at a time; what an interrupted one left behind goes away."""
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another build in {folder}", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        for left in folder.glob("*.partial"):
            _remove(left)
        yield


def _part(folder: Path, name: str, build: Callable[[Path], None]) -> tuple[Path, bool]:
    """A part, and whether it was built now."""
    whole = folder / name
    if is_whole(whole):
        os.utime(whole)
        return whole, False
    if whole.exists():
        print(f"{whole} is damaged: building it again", file=sys.stderr)
        _remove(whole)
    for old in folder.glob(f"{name.partition('-')[0]}-*"):
        if old.is_dir() and time.time() - old.stat().st_mtime > UNUSED_S:
            _remove(old)
    partial = folder / f"{name}.partial"
    partial.mkdir()
    print(f"building {whole} (its log: {partial}.log)", file=sys.stderr)
    build(partial)
    sums = {file.name: _sum(file) for file in sorted(partial.iterdir())}
    (partial / MANIFEST).write_text(json.dumps(sums, indent=1))
    partial.rename(whole)
    (folder / f"{name}.partial.log").unlink(missing_ok=True)
    return whole, True


def is_whole(part: Path) -> bool:
    """Whether every file of a part is as it was built."""
    try:
        sums = json.loads((part / MANIFEST).read_text())
        return bool(sums) and all(_sum(part / name) == known for name, known in sums.items())
    except (OSError, ValueError, AttributeError):
        return False


def _sum(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _build_debian(folder: Path) -> None:
    tar, root = folder / "root.tar", folder / "root"
    (folder / "tmp").mkdir()
    hooks = [f"copy-in {RECIPE} /tmp", 'chroot "$1" sh /tmp/recipe/customize /tmp/recipe']
    run_tool(
        [
            *("mmdebstrap", "--architectures=amd64", "--variant=minbase", "--format=tar"),
            '--aptopt=APT::Install-Recommends "false"',
            f"--include={PACKAGES}",
            *(f"--customize-hook={hook}" for hook in hooks),
            *(SUITE, str(tar)),  # from mmdebstrap's own default mirror
        ],
        DEBIAN_S,
        folder,
        hint="is a Debian mirror reachable from here?",
    )
    root.mkdir()
    # Whoever runs this owns the files, also in the guest, where it does not matter; devices come from udev.
    run_tool(
        ["tar", "-xf", str(tar), "-C", str(root), "--no-same-owner", "--exclude=./dev/*"], DISK_S, folder
    )
    tar.unlink()
    shutil.copy(root / "boot/vmlinuz", folder / "vmlinuz")
    shutil.copy(root / "boot/small.img", folder / "initramfs")
    _make_disk(root, folder)


def _build_python(folder: Path) -> None:
    root = folder / "root"
    platforms = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
    run_tool(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--target", str(root), "--python-version", GUEST_PYTHON, "--implementation", "cp"),
            *("--only-binary=:all:", *(f"--platform={platform}" for platform in platforms)),
            *("-c", str(REPOSITORY / "constraints.txt"), *python_requirements()),
        ],
        PYTHON_S,
        folder,
        hint="is the Python package index reachable from here?",
    )
    _make_disk(root, folder)


def _make_disk(root: Path, folder: Path) -> None:
    """A file system with what is in ``root``, which goes away."""
    size = sum(file.lstat().st_size + 4096 for file in root.rglob("*"))
    kilobytes = size * 5 // 4 // 1024 + 65536
    options = ["-q", "-F", "-t", "ext4", "-O", "^has_journal", "-E", "root_owner=0:0"]
    run_tool(["mke2fs", *options, "-d", str(root), str(folder / "disk"), f"{kilobytes}k"], DISK_S, folder)
    shutil.rmtree(root)
    shutil.rmtree(folder / "tmp", ignore_errors=True)


def run_tool(command: list[str], timeout_s: float, folder: Path, *, hint: str = "") -> None:
    """A step of the build, with its output in a log; ends with this process, whatever happens."""
    environment = {**os.environ, "TMPDIR": str(folder / "tmp") if (folder / "tmp").exists() else "/tmp"}
    environment["PATH"] = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    log = folder.with_name(f"{folder.name}.log")
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*dies_with_parent("TERM"), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            process_group=0,
        )
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise GuestError(f"{command[0]} took more than {timeout_s:g} s; its log: {log}") from error
        finally:
            _end(process)
    if code:
        last = " | ".join(log.read_text(errors="replace").splitlines()[-4:])
        raise GuestError(f"{command[0]} ended with {code}: {last} ({hint or 'see the log'}: {log})")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a step and all it started; mmdebstrap cleans up if it is asked politely."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)


def dies_with_parent(how: str) -> list[str]:
    """Words in front of a command: it gets a signal when this process ends, however that happens."""
    return ["setpriv", f"--pdeathsig={how}", "--"]


def _remove(path: Path) -> None:
    """Remove a folder, unless something is still mounted there."""
    mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    if here := [place for place in mounted if Path(place).is_relative_to(path)]:
        raise GuestError(
            f"{here[0]} is still mounted, left by an interrupted build: unmount it, then try again"
        )
    shutil.rmtree(path) if path.is_dir() else path.unlink()


if __name__ == "__main__":
    print(require_image())
