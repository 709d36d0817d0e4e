"""The emulator: a fleet on a virtual clock, federated training for real, costs charged to every device.

``emulator.run("quick")`` runs a scenario and gives its tables as DataFrames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emulator.runs.emulation import run

__all__ = ["run"]


def __getattr__(name: str) -> Any:
    """`run` is imported when it is first used: it brings most of the package with it."""
    if name == "run":
        from emulator.runs.emulation import run

        return run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
