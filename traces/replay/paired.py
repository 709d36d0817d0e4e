"""Networks beside usage: throughput that was recorded elsewhere, drawn for each user by a seed.

A user is given one recording of Wi-Fi, one of a mobile network, and one of any. Which of them counts at a
time is what the user's own trace says of the network then. Recordings are short, so each is looped without a
pause, from a place that is drawn too. Times of day do not matter.

* On Wi-Fi or a cable it is the first: a phone on Wi-Fi shares a fixed line, and recordings are of the line.
* On a mobile network it is the second; also where a source says no more than "not Wi-Fi".
* Where the trace does not tell the network, it is the third.
* Offline nothing moves. Where the recorder of the usage did not run, the throughput is unknown too.

A recording is of the one kind that its own network channel tells; where that tells none, or both, it is drawn
as any only. All draws are hashes of (seed, user's name, kind): neither the order of users nor of recordings
matters, and nobody has to draw before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from joulefleet.errors import ConfigError
from joulefleet.seeds import stream_entropy
from traces.model import NetworkKind
from traces.replay import flags as packed
from traces.replay.flat import FlatTraces

Ints = NDArray[np.int64]
Rates = tuple[NDArray[np.float64], NDArray[np.float64]]


class LinkKind(IntEnum):
    """Whose recordings count."""

    WIFI = 0
    MOBILE = 1
    ANY = 2
    """The usage does not tell."""
    NOTHING = 3
    """Offline: nothing moves, whatever was recorded."""


DRAWN = (LinkKind.WIFI, LinkKind.MOBILE, LinkKind.ANY)
SAID = {
    LinkKind.WIFI: "Wi-Fi or a fixed line",
    LinkKind.MOBILE: "a mobile network",
    LinkKind.ANY: "any network",
}
_LINK = np.full(len(NetworkKind) + 1, LinkKind.MOBILE, np.int8)
_LINK[0] = LinkKind.ANY
_LINK[NetworkKind.OFFLINE + 1] = LinkKind.NOTHING
_LINK[[NetworkKind.WIFI + 1, NetworkKind.ETHERNET + 1]] = LinkKind.WIFI


def link_kinds(flags: NDArray[np.uint16]) -> NDArray[np.int8]:
    """The `LinkKind` of moments (`traces.replay.flags`)."""
    return _LINK.take(packed.network(flags) + 1)


def kinds_of_users(flat: FlatTraces) -> NDArray[np.bool_]:
    """Which `LinkKind` each user is on at any time; one row per user, one column per kind."""
    steps = np.flatnonzero(packed.covered(flat.flags))
    found = np.zeros((len(flat), len(LinkKind)), bool)
    found[flat.state.user_of_step()[steps], link_kinds(flat.flags[steps])] = True
    return found


@dataclass(frozen=True, slots=True, eq=False)
class PairedNetwork:
    """What the network gives each user of a set, from recordings of others.

    Attributes:
        network: The recordings.
        recording: Which of them each user is given; one row per kind in `DRAWN`, -1 for none.
        phase_ns: From which place of it on, likewise.
    """

    network: FlatTraces
    recording: NDArray[np.int32]
    phase_ns: Ints

    def at(self, user: NDArray[np.int32], x_ns: Ints, flags: NDArray[np.uint16]) -> Rates:
        """Rates down and up, bits per second, NaN where unknown.

        Args:
            user: Index of each user.
            x_ns: Time since the start of the user's recording.
            flags: What the user's trace says of that moment.
        """
        link = link_kinds(flags)
        row = np.minimum(link, LinkKind.ANY)
        recording = self.recording[row, user]
        known = packed.covered(flags) & (recording >= 0) & (link != LinkKind.NOTHING)
        of = np.maximum(recording, 0)
        place_ns = (x_ns + self.phase_ns[row, user]) % self.network.span_ns.take(of)
        step = self.network.throughput.at(of, place_ns)
        otherwise = np.where(packed.covered(flags) & (link == LinkKind.NOTHING), 0.0, np.nan)
        down, up = self.network.down_bps.take(step), self.network.up_bps.take(step)
        return np.where(known, down, otherwise), np.where(known, up, otherwise)

    def changes(self, user: int, kind: LinkKind, begin_ns: int, end_ns: int) -> Iterator[tuple[Ints, Rates]]:
        """Where in ``[begin_ns, end_ns)`` of a user's recording rates change, and to what; loop after loop.

        The first one is at ``begin_ns``.
        """
        number, phase_ns = int(self.recording[kind, user]), int(self.phase_ns[kind, user])
        steps = self.network.throughput
        first, last = int(steps.offset[number]), int(steps.offset[number + 1]) - 1  # the last is the end
        t_ns, span_ns = np.asarray(steps.t_ns[first:last]), int(self.network.span_ns[number])
        loop_ns = (begin_ns + phase_ns) // span_ns * span_ns - phase_ns
        while loop_ns < end_ns:
            at_ns = t_ns + loop_ns
            inside = (at_ns < end_ns) & (np.append(at_ns[1:], loop_ns + span_ns) > begin_ns)
            step = first + np.flatnonzero(inside)
            yield (
                np.maximum(at_ns[inside], begin_ns),
                (self.network.down_bps.take(step), self.network.up_bps.take(step)),
            )
            loop_ns += span_ns


@dataclass(frozen=True, slots=True, eq=False)
class NetworkPools:
    """Recordings of throughput, by what they were recorded on.

    Attributes:
        network: All of them.
        of_kind: Numbers of those in which any throughput was read, by name; for each kind in `DRAWN`.
    """

    network: FlatTraces
    of_kind: Mapping[LinkKind, Ints]

    @classmethod
    def of(cls, network: FlatTraces) -> NetworkPools:
        """Sort recordings by what their own network channel tells."""
        read = ~(np.isnan(network.down_bps) & np.isnan(network.up_bps))
        told = np.bincount(network.throughput.user_of_step()[read], minlength=len(network)) > 0
        kinds = kinds_of_users(network)
        wifi, mobile = kinds[:, LinkKind.WIFI], kinds[:, LinkKind.MOBILE]
        are = {LinkKind.WIFI: wifi & ~mobile, LinkKind.MOBILE: mobile & ~wifi, LinkKind.ANY: told}
        by_name = np.array(sorted(range(len(network)), key=network.users.__getitem__), np.int64)
        return cls(network, {kind: by_name[(which & told)[by_name]] for kind, which in are.items()})

    def require(self, kind: LinkKind, users: Sequence[str], of: int) -> None:
        """Refuse to draw from nothing.

        Raises:
            ConfigError: Some of so many users need the kind, and there is no recording of it.
        """
        if not users or len(self.of_kind[kind]):
            return
        counts = ", ".join(f"{len(self.of_kind[one]):,} of {SAID[one]}" for one in DRAWN)
        raise ConfigError(
            f"the throughput set has no recording of {SAID[kind]}, and {len(users):,} of {of:,} users need "
            f"one, e.g. {users[0]!r}",
            hint=f"it has {counts}; import a set with both kinds: the files of a folder become one set",
        )


def pair(usage: FlatTraces, pools: NetworkPools, seed: int) -> PairedNetwork:
    """Draw recordings for every user of a set.

    Raises:
        ConfigError: A user is on a kind of network of which there is no recording; or the usage has
            throughput of its own, which was recorded together and would be lost.
    """
    if not (np.isnan(usage.down_bps).all() and np.isnan(usage.up_bps).all()):
        raise ConfigError(
            "the usage traces have throughput of their own, which recordings of others would replace",
            hint='replay what was recorded together: network = "trace" in [fleet]',
        )
    needed = kinds_of_users(usage)
    recording = np.full((len(DRAWN), len(usage)), -1, np.int32)
    phase_ns = np.zeros((len(DRAWN), len(usage)), np.int64)
    for kind in DRAWN:
        numbers, pool = np.flatnonzero(needed[:, kind]).tolist(), pools.of_kind[kind]
        pools.require(kind, [usage.users[number] for number in numbers], len(usage))
        for number in numbers:
            drawn = stream_entropy(seed, "network recording", usage.users[number], kind.name)
            chosen = recording[kind, number] = pool[drawn % len(pool)]
            phase_ns[kind, number] = (drawn >> 40) % int(pools.network.span_ns[chosen])
    return PairedNetwork(pools.network, recording, phase_ns)
