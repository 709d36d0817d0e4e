"""The cache of guest images and the guest's start when something is wrong; tools are stand-ins, QEMU too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.kernel import image
from tests.kernel.guest import Guest
from tests.kernel.image import GuestError, Image, cache_folder, missing_programs, run_tool

MMDEBSTRAP = """for word; do case $word in *.tar) tar=$word;; esac; done
mkdir -p "$TMPDIR/r/boot"; echo kernel > "$TMPDIR/r/boot/vmlinuz"; echo ram > "$TMPDIR/r/boot/small.img"
tar -C "$TMPDIR/r" -cf "$tar" ."""
MKE2FS = 'for word; do case $word in */disk) echo disk > "$word";; esac; done'


CONSOLE = "for word; do case $word in file:*.log) log=${word#file:};; esac; done;"
"""The file that QEMU is to write its guest's console to."""


def program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins in front of the real programs; each notes that it ran."""
    folder = tmp_path / "tools"
    log = tmp_path / "ran"
    program(folder, "mmdebstrap", f"echo mmdebstrap >> {log}\n{MMDEBSTRAP}")
    program(folder, "mke2fs", f"echo mke2fs >> {log}\n{MKE2FS}")
    program(folder, "qemu-system-x86_64", "exit 1")
    program(
        folder,
        "pip",
        f'echo pip >> {log}\nwhile [ "$1" != --target ]; do shift; done; mkdir -p "$2"; touch "$2/x"',
    )
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(image.sys, "executable", str(folder / "pip"))
    return folder


def ran(tools: Path) -> list[str]:
    log = tools.parent / "ran"
    return log.read_text().split() if log.exists() else []


def test_the_cache_is_outside_the_tree_and_can_be_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JOULEFLEET_GUEST_CACHE", str(tmp_path / "named"))
    assert cache_folder() == tmp_path / "named"
    monkeypatch.delenv("JOULEFLEET_GUEST_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "joulefleet" / "guest"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert not cache_folder().is_relative_to(REPOSITORY)


def test_missing_programs_are_named_with_their_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(image.shutil, "which", lambda program, path: None)
    assert missing_programs() == ["qemu-system-x86", "mmdebstrap", "e2fsprogs", "util-linux"]
    with pytest.raises(GuestError, match="apt-get install qemu-system-x86 mmdebstrap"):
        image.require_image(tmp_path)


def test_a_second_call_builds_nothing(tools: Path, tmp_path: Path) -> None:
    first = image.require_image(tmp_path / "cache")
    assert ran(tools) == ["mmdebstrap", "mke2fs", "pip", "mke2fs"]
    assert (first.debian / "vmlinuz").read_text() == "kernel\n"
    assert sorted(file.name for file in first.debian.iterdir()) == [
        "disk",
        "initramfs",
        "manifest.json",
        "vmlinuz",
    ]
    assert first.built_s > 0
    second = image.require_image(tmp_path / "cache")
    assert (second.debian, second.python, second.built_s) == (first.debian, first.python, 0.0)
    assert ran(tools) == ["mmdebstrap", "mke2fs", "pip", "mke2fs"]
    assert sorted(file.name for file in (tmp_path / "cache").iterdir()) == [
        first.debian.name,
        "lock",
        first.python.name,
    ]


@pytest.mark.parametrize("damage", ["truncate", "remove", "manifest"])
def test_a_damaged_part_is_built_again_and_only_that(tools: Path, tmp_path: Path, damage: str) -> None:
    first = image.require_image(tmp_path / "cache")
    if damage == "truncate":
        (first.python / "disk").write_text("dis")
    elif damage == "remove":
        (first.python / "disk").unlink()
    else:
        (first.python / "manifest.json").write_text('{"disk"')
    again = image.require_image(tmp_path / "cache")
    assert (again.python / "disk").read_text() == "disk\n"
    assert ran(tools)[4:] == ["pip", "mke2fs"]


def test_a_failed_step_says_why_and_keeps_what_was_finished(tools: Path, tmp_path: Path) -> None:
    good = (tools / "pip").read_text()
    program(tools, "pip", "echo no such index >&2; exit 3")
    with pytest.raises(GuestError, match=r"ended with 3: no such index .*package index reachable"):
        image.require_image(tmp_path / "cache")
    (tools / "pip").write_text(good)
    image.require_image(tmp_path / "cache")
    assert ran(tools) == ["mmdebstrap", "mke2fs", "pip", "mke2fs"]
    assert list((tmp_path / "cache").glob("*.partial*")) == []


def test_a_changed_recipe_is_another_part(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = image.require_image(tmp_path / "cache")
    monkeypatch.setattr(image, "PACKAGES", image.PACKAGES + ",vim")
    other = image.require_image(tmp_path / "cache")
    assert other.debian != first.debian
    assert other.python == first.python
    assert first.debian.is_dir()


def test_a_part_that_nobody_uses_goes_away(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = image.require_image(tmp_path / "cache")
    old = time.time() - 31 * 24 * 3600
    os.utime(first.debian, (old, old))
    monkeypatch.setattr(image, "PACKAGES", image.PACKAGES + ",vim")
    image.require_image(tmp_path / "cache")
    assert not first.debian.exists()


def test_a_step_that_hangs_is_ended(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    with pytest.raises(GuestError, match=r"took more than 0\.3 s"):
        run_tool(["sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 60"], 0.3, tmp_path / "part")
    assert is_gone(int((tmp_path / "pid").read_text()))


def is_gone(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if not Path(f"/proc/{pid}").exists() or "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text():
            return True
        time.sleep(0.02)
    return False


def test_a_killed_build_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    code = (
        "from pathlib import Path; from tests.kernel.image import run_tool;"
        f"run_tool(['sh', '-c', 'echo $$ > {tmp_path}/pid; exec sleep 60'], 60, Path('{tmp_path}/part'))"
    )
    builder = subprocess.Popen([sys.executable, "-c", code], cwd=REPOSITORY)
    deadline = time.monotonic() + 20
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    builder.send_signal(signal.SIGKILL)
    builder.wait()
    assert is_gone(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'no such machine' >&2; exit 1", "ended while it booted; .*no such machine"),
        ("exec sleep 60", r"did not come up in \d+ s; .*\(nothing\)"),
        (
            f"{CONSOLE} for n in 1 2 3 4 5 6 7 8; do echo line $n >> $log; sleep 0.4; done; exec sleep 60",
            r"did not come up in \d+ s; .*line 8",
        ),
    ],
)
def test_a_guest_that_does_not_boot_says_so_and_is_gone(
    tools: Path, tmp_path: Path, script: str, message: str
) -> None:
    program(tools, "qemu-system-x86_64", f"echo $$ > {tmp_path}/pid\n{script}")
    with pytest.raises(GuestError, match=message):
        Guest(Image(tmp_path, tmp_path, 0.0), tmp_path, silent_s=2.0)
    assert is_gone(int((tmp_path / "pid").read_text()))
