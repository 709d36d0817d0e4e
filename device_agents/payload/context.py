"""What the parts of the agent share: where it runs, and how it hears and speaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from device_agents.payload.recording.clocks import boot_id, snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from device_agents.payload.interrupter import Interrupter
    from device_agents.payload.link.output import AgentOutput
    from device_agents.payload.link.streams import Reader, Sender
    from device_agents.payload.state_folder import StateFolder


@dataclass(frozen=True)
class AgentContext:
    """This device, as the agent sees it.

    Attributes:
        root: Parent of /proc and /sys; another folder in tests.
        state: The agent's own folder.
        output: The real standard output and error.
        sender: To the host.
        reader: From the host.
        interrupter: Ends work from outside.
    """

    root: Path
    state: StateFolder
    output: AgentOutput
    sender: Sender
    reader: Reader
    interrupter: Interrupter

    def now(self) -> dict[str, Any]:
        """This boot and all clocks."""
        return {"boot_id": boot_id(self.root), "clock": snapshot()}
