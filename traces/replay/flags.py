"""One moment of a trace in sixteen bits, so that a policy is a table look-up and a state a single gather.

::

    bit   0 1   2 3      4 5        6        7    8-11             12 13
          screen plugged  available  covered  -    network kind + 1  foreground app
          on known (each)                          0 = unknown       present, known

A word of 0 means that nothing is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from traces.model import FACTS, NetworkKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

ON_BIT = {name: 2 * i for i, name in enumerate(FACTS)} | {"app": 12}
COVERED_BIT = 6
NETWORK_BIT = 8
NETWORK_MASK = 0xF
FALSE, UNKNOWN, TRUE = 0, 1, 2
"""Truth values in Kleene's order: ``and`` is the minimum, ``or`` the maximum, ``not`` is ``2 - x``."""


def pack_fact(name: str, on: NDArray[np.bool_], known: NDArray[np.bool_]) -> NDArray[np.uint16]:
    """The two bits of a yes-or-no channel; what is on is known."""
    on_bits = on.astype(np.uint16) * np.uint16(0b11)
    return (on_bits | known.astype(np.uint16) << np.uint16(1)) << np.uint16(ON_BIT[name])


def pack_covered(covered: NDArray[np.bool_]) -> NDArray[np.uint16]:
    """The coverage bit."""
    return covered.astype(np.uint16) << np.uint16(COVERED_BIT)


def pack_network(kind: NDArray[np.int8]) -> NDArray[np.uint16]:
    """The network bits; -1 is unknown."""
    return (kind + np.int8(1)).astype(np.uint16) << np.uint16(NETWORK_BIT)


def fact(flags: NDArray[np.uint16], name: str) -> NDArray[np.int8]:
    """A channel as 1 (on), 0 (off) or -1 (unknown)."""
    bits = (flags >> np.uint16(ON_BIT[name]) & np.uint16(0b11)).astype(np.int8)
    # What is on is known, so (on, known) = 00, 01, 11 give -1, 0, 1; faster than a look-up.
    return (bits & np.int8(1)) + (bits >> np.int8(1)) - np.int8(1)


def network(flags: NDArray[np.uint16]) -> NDArray[np.int8]:
    """The `NetworkKind`, -1 where unknown."""
    return (flags >> np.uint16(NETWORK_BIT) & np.uint16(NETWORK_MASK)).astype(np.int8) - np.int8(1)


def covered(flags: NDArray[np.uint16]) -> NDArray[np.bool_]:
    """Whether the recorder ran."""
    return (flags >> np.uint16(COVERED_BIT) & np.uint16(1)).astype(bool)


_FACT_TRUTH = np.array([FALSE, TRUE, UNKNOWN], np.int8)  # of 0, 1 and -1


def truth(flags: NDArray[np.uint16], name: str) -> NDArray[np.int8]:
    """A channel as a truth value."""
    return _FACT_TRUTH.take(fact(flags, name))


def network_truth(
    flags: NDArray[np.uint16], yes: set[NetworkKind], undecided: frozenset[NetworkKind] = frozenset()
) -> NDArray[np.int8]:
    """Whether the network is one of ``yes``; unknown for ``undecided`` kinds and where nothing is known."""
    table = np.full(len(NetworkKind) + 1, FALSE, np.int8)
    table[0] = UNKNOWN
    for kind in NetworkKind:
        if kind in yes:
            table[kind + 1] = TRUE
        elif kind in undecided:
            table[kind + 1] = UNKNOWN
    return table.take(network(flags) + 1)
