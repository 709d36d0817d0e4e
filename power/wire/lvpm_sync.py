"""Where LVPM sample packets begin: runs of good frames, and the way back after corruption."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from power.wire.lvpm_frames import (
    DATA,
    FLAGS_RESERVED,
    REFERENCE_CALIBRATION,
    SEQUENCE_MODULUS,
    STATUS_STRUCT,
    STATUS_TYPE,
    samples_in,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

RUN_FRAMES = 1024
"""Frames judged at once: enough to make numpy's overhead vanish, little enough to waste after an error."""

SEARCH_BYTES = 1024
"""Places searched at once after an error; two packets, the usual cost of one, are a tenth of it."""

_LONGEST_FRAME = 256
_SHORTEST_LENGTH = 14  # one sample
_STATUS_LENGTH = STATUS_STRUCT.size + 1

_REJECTED, _UNKNOWN, _VALID = 0, 1, 2


def equal_frames(data: Bytes, start: int) -> Bytes:
    """The whole frames from ``start`` on that have the same LEN, one per row; none if incomplete."""
    size = int(data[start]) + 1
    count = min((len(data) - start) // size, RUN_FRAMES)
    rows = data[start : start + count * size].reshape(count, size)
    other = np.flatnonzero(rows[:, 0] != data[start])
    return rows[: other[0]] if len(other) else rows


def count_good(rows: Bytes) -> int:
    """How many rows from the first on have the right checksum; a frame of LEN 0 has none to be wrong."""
    if rows.shape[1] == 1:
        return len(rows)
    bad = np.flatnonzero(np.add.reduce(rows[:, :-1], axis=1, dtype=np.uint8) != rows[:, -1])
    return int(bad[0]) if len(bad) else len(rows)


def count_following(rows: Bytes, sequence: int | None, *, believed: bool) -> int:
    """How many rows from the first on neither skip a number nor tell of losses; of other packets all.

    Args:
        rows: Frames of one length with right checksums.
        sequence: Of the sample packet before them, if there was one.
        believed: Whether the first may.
    """
    samples = samples_in(rows.shape[1] - 1)
    if not samples or not len(rows):
        return len(rows)
    ours = ((rows[:, 1] & FLAGS_RESERVED) == 0) & (rows[:, 2] <= REFERENCE_CALIBRATION)
    ours &= (rows[:, 2] == DATA) | (samples % 2 == 0)
    at = np.flatnonzero(ours)
    if not len(at):
        return len(rows)
    number = rows[at, 1].astype(np.int16)
    before = np.concatenate([number[:1] - 1 if sequence is None else [sequence], number[:-1]])
    tells = ((number - before - 1) % SEQUENCE_MODULUS != 0) | (rows[at, 4] != 0)
    if believed and at[0] == 0:
        tells[0] = False
    found = at[tells]
    return int(found[0]) if len(found) else len(rows)


def find_chain(data: Bytes, start: int) -> tuple[int, bool]:
    """The first place from ``start`` on where two sample packets with successive numbers follow.

    A status packet may take the place of the second: it ends a stream. Two checksums, two plausible headers
    and the sequence together match random bytes about once in 10^13 places; one frame alone would match once
    in a million, too often for a day of samples.

    Returns:
        The position, and True; or the first position that needs more bytes to be judged, and False.
    """
    for first in range(start, len(data), SEARCH_BYTES):
        window = data[first : first + SEARCH_BYTES + 2 * _LONGEST_FRAME]
        states = _chain_states(window, np.arange(min(SEARCH_BYTES, len(window))))
        candidates = np.flatnonzero(states != _REJECTED)
        if len(candidates):
            return first + int(candidates[0]), bool(states[candidates[0]] == _VALID)
    return len(data), False


def _chain_states(window: Bytes, places: NDArray[np.int64]) -> Bytes:
    total = np.concatenate(([0], np.cumsum(window, dtype=np.int64)))
    states = _frame_states(window, places, total)
    first = places[states == _VALID]
    second = first + window[first] + 1
    following = _frame_states(window, second, total)
    numbered = second + 1 < len(window)
    number = window[np.where(numbered, second + 1, 0)].astype(np.int16)
    successive = (number - window[first + 1] - 1) % SEQUENCE_MODULUS == 0
    following[numbered & ~successive] = _REJECTED
    following = np.maximum(following, _status_states(window, second, total))
    states[states == _VALID] = following
    return states


def _frame_states(window: Bytes, places: NDArray[np.int64], total: NDArray[np.int64]) -> Bytes:
    """Whether a sample packet starts at each place, as far as the bytes at hand can tell.

    Args:
        window: The bytes.
        places: Where to look; may lie beyond the end.
        total: Sum of all bytes before each place.
    """
    n = len(window)
    # A header byte that has not arrived yet reads as 0, which rules out nothing but a length.
    length, flags, kind = (
        np.where(places + i < n, window[np.minimum(places + i, n - 1)], 0) for i in range(3)
    )
    implausible = (places < n) & ((length % 8 != 6) | (length < _SHORTEST_LENGTH))
    implausible |= ((flags & FLAGS_RESERVED) != 0) | (kind > REFERENCE_CALIBRATION)
    implausible |= (kind != DATA) & (length % 16 != 6)  # a calibration has pairs of rows
    return _sum_states(window, places, length, implausible, total)


def _status_states(window: Bytes, places: NDArray[np.int64], total: NDArray[np.int64]) -> Bytes:
    """The same of status packets."""
    n = len(window)
    length, kind = (np.where(places + i < n, window[np.minimum(places + i, n - 1)], 0) for i in range(2))
    implausible = (places < n) & (length != _STATUS_LENGTH) | (places + 1 < n) & (kind != STATUS_TYPE)
    return _sum_states(window, places, length, implausible, total)


def _sum_states(
    window: Bytes,
    places: NDArray[np.int64],
    length: NDArray[Any],
    implausible: NDArray[np.bool_],
    total: NDArray[np.int64],
) -> Bytes:
    whole = places + length < len(window)
    end = np.where(whole, places + length, 0)
    found = (total[end] - total[np.where(whole, places, 0)]) & 0xFF
    states = np.where(found == window[end], _VALID, _REJECTED).astype(np.uint8)
    states[~whole] = _UNKNOWN
    states[implausible] = _REJECTED
    return states
