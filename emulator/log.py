"""The run log: ``rounds`` (one row per round) and ``clients`` (one row per participant and round)."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING

from emulator.outcome import RoundOutcome
from fedjoule.provenance import Origin
from fedjoule.runstore import Run

if TYPE_CHECKING:
    import pyarrow as pa


def _rounds_schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema(
        [
            ("round", pa.int32()),
            ("start_ns", pa.int64()),
            ("duration_ns", pa.int64()),
            ("clients", pa.int32()),
            ("energy_j", pa.float64()),
            ("accuracy", pa.float64()),
            ("reward", pa.float64()),
            ("cost_origin", pa.string()),
        ]
    )


def _clients_schema() -> pa.Schema:
    import pyarrow as pa

    costs = ("probe_s", "train_s", "comm_s", "probe_j", "wait_j", "train_j", "comm_j")
    return pa.schema(
        [
            ("round", pa.int32()),
            ("device", pa.int64()),
            ("fate", pa.string()),
            ("loss", pa.float64()),
            *((name, pa.float64()) for name in costs),
        ]
    )


class RunLog:
    """Writes outcomes to a run as they happen. Use as a context manager."""

    def __init__(self, run: Run, origin: Origin, *, folder: str = "") -> None:
        self._origin = origin
        self._stack = ExitStack()
        self._rounds = self._stack.enter_context(run.table("rounds", _rounds_schema(), folder=folder))
        self._clients = self._stack.enter_context(run.table("clients", _clients_schema(), folder=folder))

    def __enter__(self) -> RunLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def append(self, outcome: RoundOutcome) -> None:
        """Store one round; the clients go first, so that a round that is there is whole."""
        n = len(outcome.clients)
        cost = outcome.cost
        self._clients.append(
            {
                "round": [outcome.round] * n,
                "device": outcome.clients,
                "fate": [fate.value for fate in outcome.fates],
                "loss": outcome.losses,
                **{name: getattr(cost, name) for name in cost.__slots__},
            }
        )
        self._rounds.append(
            {
                "round": [outcome.round],
                "start_ns": [outcome.start_ns],
                "duration_ns": [outcome.duration_ns],
                "clients": [n],
                "energy_j": [outcome.energy_j],
                "accuracy": [outcome.accuracy],
                "reward": [outcome.reward],
                "cost_origin": [self._origin.value],
            }
        )
