"""The payload as one file: a zip that Python runs, the same bytes for the same source."""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

SHIPPED = ("device_agents/__init__.py", "device_agents/payload", "device_agents/workloads")
MIN_PYTHON = (3, 9)
"""What `device_agents.payload` and `device_agents.workloads` are written for."""

# The first thing that a device's Python reads, so it has to be understood by every Python there ever was.
ENTRY = f"""\
import sys

if sys.version_info < {MIN_PYTHON}:
    message = "Python %d.%d.%d is too old" % tuple(sys.version_info[:3])
    print('{{"type":"error","code":"python_too_old","message":"%s","job_id":"","seq":0}}' % message)
    sys.exit(1)

from device_agents.payload.agent import main

main()
"""

# Zip files carry time stamps; a fixed one makes the hash a function of the content alone.
_STAMP = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Bundle:
    """A payload.

    Attributes:
        data: The zip.
        sha256: Its hash, which is also its name on the device.
    """

    data: bytes
    sha256: str

    @property
    def name(self) -> str:
        """File name on the device; several versions lie side by side."""
        return f"agent-{self.sha256[:16]}.pyz"


@cache
def build_bundle() -> Bundle:
    """Pack what runs on the device: the payload and the workloads, sources only."""
    with as_file(files("device_agents")) as package:
        root = package.parent
        sources = {path.relative_to(root).as_posix(): path.read_bytes() for path in _sources(root)}
    sources["__main__.py"] = ENTRY.encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(sources):
            entry = zipfile.ZipInfo(name, _STAMP)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, sources[name])
    data = buffer.getvalue()
    return Bundle(data, hashlib.sha256(data).hexdigest())


def _sources(root: Path) -> list[Path]:
    found: list[Path] = []
    for place in SHIPPED:
        path = root / place
        found += [path] if path.is_file() else sorted(path.rglob("*.py"))
    return found
