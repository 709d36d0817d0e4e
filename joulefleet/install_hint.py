"""How an optional dependency group is installed: one place for every hint that has to say it."""

from __future__ import annotations


def install_hint(extra: str = "") -> str:
    """The command that installs joulefleet, with one of its extras if it is named.

    From the clone: joulefleet is in no package index, and what has its bare name there would be a stranger's.
    """
    return f"in joulefleet's folder: pip install -c constraints.txt -e '.{f'[{extra}]' if extra else ''}'"
