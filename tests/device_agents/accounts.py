"""A server that sees other accounts than this machine has: their files are replaced for it alone."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import missing

USER = "joulefleet-test"
PASSWORD = 'p4ss w0rd: of a "test" device'
_HASH = "$6$joulefleet$FB3r7PFRrMdbqMqCCX5/WkR/iN9rjfNOdDwebsGDOqqNXQzVtLeicOllZfPy34BrdRzhQciXfNTFWQnv1Ml4w0"
"""Of ``PASSWORD``, by ``openssl passwd -6 -salt joulefleet``."""

# The arguments are the two files and the command: no name or path is ever part of the script.
_WITH_FILES = 'mount --bind "$1" /etc/passwd && mount --bind "$2" /etc/shadow && shift 2 && exec "$@"'


@dataclass(frozen=True)
class Accounts:
    """Files of accounts that hold one more, with a known password, for what `command` starts."""

    folder: Path
    address: str = "127.0.0.1"

    def command(self, *argv: str) -> list[str]:
        """A command in a mount namespace of its own, which ends with it."""
        files = [str(self.folder / name) for name in ("passwd", "shadow")]
        return ["unshare", "--mount", "sh", "-c", _WITH_FILES, "sh", *files, *argv]


def accounts(folder: Path) -> Accounts:
    """One more account, with root's rights, since only root can do this; elsewhere a skip that says so."""
    folder.mkdir()
    try:
        known = [Path(f"/etc/{name}").read_text() for name in ("passwd", "shadow")]
    except OSError:
        missing("the machine's files of accounts cannot be read (needs root)")
    more = (f"{USER}:x:0:0::{folder}:/bin/sh\n", f"{USER}:{_HASH}:19000:0:99999:7:::\n")
    for name, text, line in zip(("passwd", "shadow"), known, more, strict=True):
        (folder / name).write_text(text + line)
        (folder / name).chmod(0o600 if name == "shadow" else 0o644)
    found = Accounts(folder)
    if subprocess.run(found.command("true"), capture_output=True).returncode:
        missing("mount namespaces cannot be made here (needs root)")
    return found
