"""A real guest that goes wrong."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.kernel.guest import Guest
from tests.kernel.image import GuestError, Image
from tests.kernel.test_image import is_gone

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(2700)]


def test_a_kernel_that_panics_is_reported_with_its_console(image: Image, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for name in ("vmlinuz", "disk"):
        (broken / name).symlink_to(image.debian / name)
    (broken / "initramfs").write_bytes(b"no archive")
    with pytest.raises(GuestError, match=r"ended while it booted.*Kernel panic"):
        Guest(Image(broken, image.python, 0.0), tmp_path)


def test_a_disk_that_holds_nothing_is_reported(image: Image, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    shutil.copytree(image.debian, empty, ignore=shutil.ignore_patterns("disk"))
    with (empty / "disk").open("wb") as disk:
        disk.truncate(1 << 20)
    with pytest.raises(GuestError, match="ended while it booted"):
        Guest(Image(empty, image.python, 0.0), tmp_path)


def test_a_killed_test_run_takes_its_guest_along(image: Image, tmp_path: Path) -> None:
    code = (
        "import time; from pathlib import Path; from tests.kernel.guest import Guest;"
        "from tests.kernel.image import Image;"
        f"guest = Guest(Image(Path('{image.debian}'), Path('{image.python}'), 0.0), Path('{tmp_path}'));"
        f"Path('{tmp_path}/pid').write_text(str(guest.pid)); time.sleep(600)"
    )
    runner = subprocess.Popen([sys.executable, "-c", code], cwd=REPOSITORY)
    deadline = time.monotonic() + 200
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < deadline
        assert runner.poll() is None
        time.sleep(0.2)
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    assert is_gone(int((tmp_path / "pid").read_text()))


def test_a_guest_that_dies_under_a_command_is_reported(image: Image, tmp_path: Path) -> None:
    with Guest(image, tmp_path) as guest:
        with pytest.raises(GuestError, match="in the guest, false ended with 1"):
            guest.run("false")
        slow = guest.run("sleep", "60", timeout_s=1, check=False)
        assert slow.code == -signal.SIGKILL
        with pytest.raises(GuestError, match="has ended"):
            guest.run("sh", "-c", "echo o > /proc/sysrq-trigger; sleep 60")
        pid = guest.pid
    assert is_gone(pid)
