"""What all tests share: real parts that must be there, reduced and full counts, the time budget."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.priority import in_real_time

REPOSITORY = Path(__file__).resolve().parent.parent
IN_CI = os.environ.get("CI") == "true"
FULL_COUNTS = os.environ.get("JOULEFLEET_CAMPAIGN") == "full"

pytest_plugins = ["tests.budget", "tests.campaign"]


def pytest_configure() -> None:
    """Ctrl-C ends what the tests start, also in a script's background, where the shell has it ignored."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests stay to the end: looking for garbage among them took a third of the collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share a fixture of their module go to one worker: a second one would build it again."""
    for item in items:
        if isinstance(item, pytest.Function) and not any(item.iter_markers("xdist_group")):
            definitions = [found[-1] for found in item._fixtureinfo.name2fixturedefs.values()]
            if any(definition.scope == "module" for definition in definitions):
                item.add_marker(pytest.mark.xdist_group(item.nodeid.split("::")[0]))


@pytest.fixture(scope="session", autouse=True)
def no_trace_log() -> None:
    """pytest listens to every logger that does not propagate.

    torch writes a record per traced tensor to this one as soon as somebody listens, which doubles the time
    of an export.
    """
    trace_log = logging.getLogger("torch.__trace")
    trace_log.propagate, trace_log.handlers = True, []


def missing(reason: str) -> None:
    """A real part is not there: a failure in CI, a skip that says why elsewhere."""
    if IN_CI:
        pytest.fail(f"{reason} (with CI=true a missing part is a failure)", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def require_program() -> Callable[[str, str], str]:
    """``require_program("sshd", "openssh-server")`` gives its path."""

    def require(program: str, package: str) -> str:
        path = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin:/usr/local/sbin")
        if path is None:
            missing(f"{program} is not installed (Debian package {package})")
        assert path is not None
        return path

    return require


@pytest.fixture(scope="session")
def peer_python() -> str:
    """The interpreter of the environment that holds other people's clients."""
    path = REPOSITORY / ".venv-peers" / "bin" / "python"
    if not path.exists():
        missing("no .venv-peers (`make test` creates it)")
    return str(path)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets."""
    folder = Path(os.environ.get("JOULEFLEET_DATA", ""))
    if not os.environ.get("JOULEFLEET_DATA") or not folder.is_dir():
        missing("JOULEFLEET_DATA is not the folder of real data sets, which this test needs")
    return folder


@pytest.fixture(scope="session")
def real_file(real_data: Path) -> Callable[[str], Path]:
    """``real_file("traces/x.csv.gz")`` gives the path of one of the real data sets."""

    def find(name: str) -> Path:
        if not (real_data / name).exists():
            missing(f"{name} is not among the real data sets")
        return real_data / name

    return find


@pytest.fixture
def campaign_count() -> Callable[[int, int], int]:
    """``campaign_count(20, 1000)``: the first in `make test`, the second in `make campaign`."""
    return lambda reduced, full: full if FULL_COUNTS else reduced


@pytest.fixture
def real_time() -> Iterator[None]:
    """An emulated instrument and its reader on a busy machine: what is late is the driver's doing alone."""
    with in_real_time():
        yield


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[], Path]]:
    """Mounts a file system of one megabyte when called."""
    place = tmp_path / "disk"

    def mount() -> Path:
        place.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)]
        if subprocess.run(command, capture_output=True).returncode:
            missing("a small file system cannot be mounted here (needs root)")
        return place

    yield mount
    if place.is_mount():
        subprocess.run(["umount", "--lazy", str(place)], check=True)  # also when a failed test holds a file


@pytest.fixture
def record_property(record_property: Callable[[str, object], None]) -> Callable[[str, object], None]:
    """pytest's own, with numpy's numbers made plain: they cannot travel from a worker to the controller."""
    return lambda name, value: record_property(name, _plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.item() if hasattr(value, "item") else value
