"""Flower's nodes as clients 0 to N-1: registration, and asking them something."""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from joulefleet.errors import ConfigError, DeviceProtocolError, DeviceUnreachable
from joulefleet_flower import wire

_log = logging.getLogger(__name__)

Answers = dict[int, RecordDict]
"""By client; who failed or did not answer in time is missing."""


class Clients:
    """The clients of a run.

    Args:
        grid: Flower's line to its nodes.
        nodes: Node ids; client 0 first.
        config: Goes with every message.
        timeout_s: So long an answer is waited for.
    """

    def __init__(self, grid: Grid, nodes: Sequence[int], config: ConfigRecord, timeout_s: float) -> None:
        self._grid, self._nodes, self._config, self._timeout_s = grid, list(nodes), config, timeout_s
        self._client_of = {node: client for client, node in enumerate(self._nodes)}

    def message(
        self, kind: str, client: int, settings: Mapping[str, Any], arrays: ArrayRecord | None = None
    ) -> Message:
        """A message to one client."""
        content = RecordDict({wire.CONFIG: ConfigRecord({**self._config, **settings})})
        if arrays is not None:
            content[wire.ARRAYS] = arrays
        return Message(content=content, message_type=kind, dst_node_id=self._nodes[client])

    def ask(
        self,
        kind: str,
        clients: Iterable[int],
        settings: Mapping[str, Any] | None = None,
        arrays: ArrayRecord | None = None,
    ) -> Answers:
        """Ask some clients the same thing and wait for their answers."""
        messages = [self.message(kind, int(client), settings or {}, arrays) for client in clients]
        return self.answers(self._grid.send_and_receive(messages, timeout=self._timeout_s))

    def answers(self, replies: Iterable[Message]) -> Answers:
        """Replies by client; failures are logged."""
        found = {}
        for reply in replies:
            client = self.client_of(reply)
            if reply.has_error():
                _log.warning("client %d failed: %s", client, reply.error.reason)
            else:
                found[client] = reply.content
        return dict(sorted(found.items()))

    def client_of(self, reply: Message) -> int:
        """Who sent a reply."""
        return self._client_of[reply.metadata.src_node_id]


@dataclass(frozen=True, slots=True, eq=False)
class Registered:
    """What the clients said of themselves.

    Attributes:
        clients: They.
        sizes: How many samples each trains on.
        label_shares: Share of each class on each; None where they do not tell.
        lacking: Members of `joulefleet_flower.client.LocalClient` that some of them do not have.
    """

    clients: Clients
    sizes: NDArray[np.int64]
    label_shares: NDArray[np.float64] | None
    lacking: frozenset[str]


def register(grid: Grid, count: int, config: ConfigRecord, timeout_s: float) -> Registered:
    """Wait until all nodes are there, and ask each who it is.

    Raises:
        ConfigError: There are more than the scenario has devices.
        DeviceUnreachable: They do not come or do not answer in time.
    """
    nodes = _nodes(grid, count, timeout_s)
    answers = Clients(grid, nodes, config, timeout_s).ask(wire.REGISTER, range(count))
    if len(answers) < count:
        raise DeviceUnreachable(
            f"{count - len(answers)} of {count} clients did not register",
            hint="is their ClientApp made by `joulefleet_flower.client.selectable`? Its log says what failed",
        )
    told = [answer[wire.METRICS] for answer in answers.values()]
    # Node ids are drawn anew in every simulation; a client that knows its number keeps it.
    known = [one[wire.CLIENT] for one in told if wire.CLIENT in one]
    numbers = known or list(range(count))
    if sorted(numbers) != list(range(count)):
        raise DeviceProtocolError(
            f"the clients' own numbers are not 0 to {count - 1}",
            hint="all clients give a number, or none of them does",
        )
    order = np.argsort(numbers)
    sizes = np.array([number(told[place], place, wire.SAMPLES) for place in order], np.int64)
    counts = [told[place].get(wire.LABEL_COUNTS, []) for place in order]
    shares = None
    if all(counts):
        exact = np.array(counts, np.float64)
        shares = exact / np.maximum(exact.sum(1, keepdims=True), 1)
    has = {"losses": wire.HAS_LOSSES, "accuracy": wire.HAS_ACCURACY}
    lacking = frozenset(name for name, key in has.items() if not all(one.get(key, 1) for one in told))
    clients = Clients(grid, [nodes[place] for place in order], config, timeout_s)
    return Registered(clients, sizes, shares, lacking)


def _nodes(grid: Grid, count: int, timeout_s: float) -> list[int]:
    deadline_s = time.monotonic() + timeout_s
    while len(nodes := sorted(grid.get_node_ids())) < count:
        if time.monotonic() > deadline_s:
            raise DeviceUnreachable(
                f"{len(nodes)} of {count} nodes are connected",
                hint="start the others, or lower fleet.devices",
            )
        time.sleep(0.1)
    if len(nodes) > count:
        raise ConfigError(
            f"{len(nodes)} nodes are connected, the scenario has {count} devices", hint="raise fleet.devices"
        )
    return nodes


def number(metrics: Mapping[str, Any], client: int, name: str) -> float:
    """One number of a client's answer.

    Raises:
        DeviceProtocolError: It is not there.
    """
    try:
        return float(metrics[name])
    except (KeyError, TypeError, ValueError):
        raise DeviceProtocolError(
            f"client {client} answered without the number {name!r}",
            hint="joulefleet_flower/wire.py lists what each answer holds",
        ) from None
