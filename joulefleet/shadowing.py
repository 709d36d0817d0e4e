"""Import-origin guard: our folder names are generic, and another installed package may shadow them.

PyPI has projects called ``traces``, ``power``, ``harness`` and ``emulator`` (ADR-0001). The check finds
where each name would be imported from without importing it.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("joulefleet", "harness", "emulator", "device_agents", "power", "traces")


def shadowed_packages(names: tuple[str, ...] = PACKAGES) -> dict[str, str]:
    """Packages that would come from elsewhere than this one, with the place they would come from."""
    home = Path(__file__).resolve().parent.parent
    found: dict[str, str] = {}
    for name in names:
        place = _origin(name)
        if place is None or place.resolve().parent != home / name:
            found[name] = str(place) if place else "nowhere: not installed"
    return found


def _origin(name: str) -> Path | None:
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin else None
