"""How an optional dependency group is installed: one place for every hint that has to say it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path


def install_hint(extra: str = "") -> str:
    """The command that installs joulefleet, with one of its extras if it is named.

    From the clone, or else by the names of what the extra consists of: joulefleet is in no package index, and
    what has its bare name there would be a stranger's.
    """
    if not (Path(__file__).parents[1] / "constraints.txt").exists():
        try:
            needs = [need.split(";") for need in requires("joulefleet") or ()]
        except PackageNotFoundError:
            needs = []
        marked = f'extra == "{extra}"' if extra else ""
        packages = [f"'{need[0].strip()}'" for need in needs if "".join(need[1:]).strip() == marked]
        if packages:
            return f"pip install {' '.join(packages)}"
    return f"in joulefleet's folder: pip install -c constraints.txt -e '.{f'[{extra}]' if extra else ''}'"
