"""``devices.parquet``: who the devices of a run were, to be joined with its participants by ``device``.

It is written when the run has come to its end, from what decides the run and who took part, so that it is the
same however often the run was interrupted. Rows go to disk a part at a time: a million devices take a few
dozen megabytes of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emulator.fleet.conditions import Conditions, Ids, Replayed
from emulator.fleet.state import FleetState
from joulefleet.files import new_file
from joulefleet.runstore.table import PARQUET_SUFFIX, iter_batches, table_path
from traces.replay import FlatTraces, LinkKind, kinds_of_users

if TYPE_CHECKING:
    import pyarrow as pa

DEVICES = "devices"
MOST = 1_000_000
"""Devices of a fleet that are all listed. Of a larger one those are that took part in a round: a list of
everybody would take longer than the run."""
ROWS = 65_536
"""Rows that are made at once, and a row group."""
TEXTS = ("phone", "profile", "user", "network", "labels")

Held = Callable[[Ids], NDArray[np.bool_]]
"""Which classes some devices have samples of: (devices, classes)."""


def devices_schema() -> pa.Schema:
    """One row per device; null is what nobody knows, or what there is not."""
    import pyarrow as pa

    return pa.schema(
        [
            ("device", pa.int64()),
            ("phone", pa.string()),
            ("profile", pa.string()),
            ("slowness", pa.float64()),
            ("data_size", pa.int64()),
            ("classes", pa.int16()),
            ("labels", pa.string()),
            ("user", pa.string()),
            ("network", pa.string()),
        ]
    )


@dataclass(frozen=True, slots=True, eq=False)
class Devices:
    """The devices of one emulation.

    Attributes:
        fleet: Profiles, speeds and data.
        conditions: Whom they replay.
        phones: The device that each profile is about.
        held: Which classes they have; ``None`` where there are none.
        drawn: Whether a device's samples are drawn when it first takes part: of the others nobody knows them.
    """

    fleet: FleetState
    conditions: Conditions
    phones: Sequence[str]
    held: Held | None = None
    drawn: bool = False

    def write(self, folder: Path) -> None:
        """Write the table beside those of an emulation whose participants are on disk."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = folder / (DEVICES + PARQUET_SUFFIX)
        took_part = _participants(folder)
        listed = np.arange(len(self.fleet)) if len(self.fleet) <= MOST else took_part
        names = {
            "phone": _Names(self.phones),
            "profile": _Names(self.fleet.costs.names),
            **_user_names(self.conditions),
        }
        with (
            new_file(path, replace=True) as file,
            pq.ParquetWriter(file, devices_schema(), compression="zstd", use_dictionary=TEXTS) as writer,
        ):
            for begin in range(0, len(listed), ROWS):
                columns = self._columns(listed[begin : begin + ROWS], took_part, names)
                writer.write_table(pa.table(columns, schema=devices_schema()))

    def _columns(self, ids: Ids, took_part: Ids, names: dict[str, _Names]) -> dict[str, Any]:
        profile = self.fleet.profile[ids]
        replayed = self.conditions if isinstance(self.conditions, Replayed) else None
        user = np.zeros(len(ids), np.int32) if replayed is None else replayed.traces.users(ids)
        classes, labels = self._classes(ids, np.isin(ids, took_part))
        return {
            "device": ids,
            "phone": names["phone"].of(profile),
            "profile": names["profile"].of(profile),
            "slowness": self.fleet.slowness[ids],
            "data_size": self.fleet.data_size[ids],
            "classes": classes,
            "labels": labels,
            "user": names["user"].of(user),
            "network": names["network"].of(user),
        }

    def _classes(self, ids: Ids, took_part: NDArray[np.bool_]) -> tuple[pa.Array, pa.Array]:
        """How many classes each has, and which."""
        import pyarrow as pa

        known = took_part if self.drawn else np.ones(len(ids), bool)
        if self.held is None or not known.any():
            return pa.nulls(len(ids), pa.int16()), pa.nulls(len(ids), pa.string())
        some = self.held(ids[known])
        held = np.zeros((len(ids), some.shape[1]), bool)
        held[known] = some
        # Few sets of classes occur, so each is written out once.
        sets, which = np.unique(np.packbits(held, axis=1), axis=0, return_inverse=True)
        members = np.unpackbits(sets, axis=1, count=held.shape[1])
        texts = [" ".join(map(str, np.flatnonzero(row))) for row in members]
        return pa.array(held.sum(1, dtype=np.int16), mask=~known), _Names(texts).of(which.ravel(), ~known)


class _Names:
    """Words by number, as a column of texts."""

    def __init__(self, words: Sequence[str | None]) -> None:
        self._words = list(words)

    def of(self, numbers: NDArray[np.integer], unknown: NDArray[np.bool_] | None = None) -> pa.Array:
        import pyarrow as pa

        codes = pa.array(numbers.astype(np.int32), mask=unknown)
        return pa.DictionaryArray.from_arrays(codes, pa.array(self._words, pa.string())).dictionary_decode()


def _user_names(conditions: Conditions) -> dict[str, _Names]:
    if not isinstance(conditions, Replayed):
        return {"user": _Names([None]), "network": _Names([None])}
    flat = conditions.traces.flat
    return {"user": _Names(flat.users), "network": _Names(network_kinds(flat))}


def network_kinds(flat: FlatTraces) -> list[str | None]:
    """On which kinds of network each user is at any time; ``None`` where that was not recorded."""
    kinds = (LinkKind.WIFI, LinkKind.MOBILE)
    return [", ".join(kind.name.lower() for kind in kinds if on[kind]) or None for on in kinds_of_users(flat)]


def _participants(folder: Path) -> Ids:
    """Every device of the table of participants, ascending."""
    parts = [
        np.unique(batch.column("device").to_numpy()) for batch in iter_batches(table_path(folder, "clients"))
    ]
    return np.unique(np.concatenate([np.empty(0, np.int64), *parts]))
