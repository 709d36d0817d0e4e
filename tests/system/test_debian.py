"""The base install with Python 3.13 as Debian 13 has it, in a root made with mmdebstrap."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from joulefleet.shadowing import PACKAGES
from tests.conftest import FULL_COUNTS
from tests.system.test_packaging import copied_tree
from tests.system.test_release import built

__all__ = ["built", "copied_tree"]

DEBIAN = "python3,python3-venv,ca-certificates,procps"
TESTS = """tests/joulefleet tests/traces tests/power/test_energy.py tests/power/test_uncertainty.py
tests/power/test_recording.py tests/power/test_profile.py tests/power/test_lvpm_wire.py
tests/power/test_lvpm_driver.py tests/device_agents/test_protocol.py tests/harness/test_bench_plan.py
tests/harness/test_clock.py tests/harness/test_profile_build.py tests/harness/test_open_run.py
tests/harness/test_cli_frame.py tests/harness/test_cli_list.py
--ignore tests/joulefleet/test_extras.py --ignore tests/joulefleet/test_front_doors.py
--deselect tests/joulefleet/test_errors.py::test_every_error_has_a_documented_exit_code"""
"""The three left out read the source tree, or import what needs torch."""
INSIDE = f"""set -e
cd /root && python3 -m venv venv
venv/bin/pip install -q --require-hashes -r tree/locks/base.txt
venv/bin/pip install -q --no-deps joulefleet-*.whl
venv/bin/pip install -q -c tree/constraints.txt pytest pytest-timeout pytest-xdist hypothesis
for package in {" ".join(PACKAGES)}; do rm -r tree/$package/*; done  # the wheel is tested, not the tree
echo /root/tree > "$(echo venv/lib/python3*/site-packages)/tests.pth"
venv/bin/joulefleet doctor
cd tree && ../venv/bin/pytest -n 0 -q -p no:cacheprovider -o pythonpath= {TESTS.replace(chr(10), " ")}
"""
AROUND = """set -e
for name in proc sys dev dev/pts; do mount --bind "/$name" "$1/$name"; done
exec chroot "$1" bash -c "$2"
"""
"""Mounted for these processes only: whoever deletes the folder later does not delete what is behind it."""


@pytest.fixture
def root(tmp_path: Path, require_program: Callable[[str, str], str]) -> Path:
    folder = tmp_path / "root"
    command = [require_program("mmdebstrap", "mmdebstrap"), "--variant=minbase", f"--include={DEBIAN}"]
    subprocess.run([*command, "trixie", str(folder)], check=True, capture_output=True)
    for name in ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt"):
        shutil.copy(name, folder / name[1:])
    return folder


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not FULL_COUNTS or os.geteuid() != 0, reason="builds a Debian: `make campaign`, as root")
def test_the_base_install_and_its_tests_on_debian_13(
    built: Path, copied_tree: Path, root: Path, record_property: Callable[[str, object], None]
) -> None:
    shutil.copytree(copied_tree, root / "root/tree")
    shutil.copy(next(built.glob("*.whl")), root / "root")
    # The counts are those of `make test`: its limits of time do not hold for full ones.
    left_out = {"PIP_FIND_LINKS", "JOULEFLEET_CAMPAIGN", "JOULEFLEET_DATA"}
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", AROUND, "bash", str(root), INSIDE],
        env={**environment, "HOME": "/root", "LANG": "C.UTF-8", "CI": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    assert "python: 3.13" in done.stdout
    record_property("debian", (root / "etc/debian_version").read_text().strip())
    record_property("tests", done.stdout.splitlines()[-1])
