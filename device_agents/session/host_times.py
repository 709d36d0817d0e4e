"""When the host said and heard what during a job, on its own clock: what claims of devices are held to."""

from __future__ import annotations

from typing import Literal

from joulefleet.config import ClosedModel


class Exchange(ClosedModel):
    """The device asked or reported something, and the host answered.

    Attributes:
        what: ``probe``, ``result``, or the name of a blob that the device asked for.
        heard_ns: Host time when its message was here: what the device did before it was over by then.
        sent_ns: Host time when the answer began to leave: what needed the answer came after it.
        answer: Of a probe, the decision.
    """

    what: str
    heard_ns: int
    sent_ns: int
    answer: Literal["", "continue", "stop"] = ""


class HostTimes(ClosedModel):
    """A job as the host lived through it, host-monotonic nanoseconds.

    Attributes:
        sent_ns: When the job began to leave.
        exchanges: In the order of time.
        done_ns: When the end was heard.
    """

    sent_ns: int
    exchanges: tuple[Exchange, ...]
    done_ns: int

    @property
    def stopped(self) -> bool:
        """Whether the device was told to stop after the probe."""
        return any(exchange.answer == "stop" for exchange in self.exchanges)
