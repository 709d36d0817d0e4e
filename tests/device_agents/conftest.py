"""A real OpenSSH server for the tests of this package."""

import os
import shutil
from collections.abc import Iterator

import pytest

from tests.conftest import missing
from tests.device_agents.ssh_server import SshServer, ssh_server


@pytest.fixture(scope="session")
def sshd() -> str:
    path = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if path is None:
        missing("sshd is not installed (Debian package openssh-server)")
    return str(path)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, sshd: str) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("sshd"), sshd) as running:
        yield running
