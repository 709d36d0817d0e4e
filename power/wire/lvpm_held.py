"""The numbers of an LVPM's samples, and what is held back because its number may still change.

How many turns of a counter are missing shows in when reads arrive, see `power.wire.lvpm_elapsed`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from power.model import Severity
from power.wire.decoder import Decoded
from power.wire.lvpm_elapsed import (
    GIVEN_UP_NS,
    JUDGED_NS,
    SILENT_NS,
    TOLERANCE,
    TRACELESS_NS,
    UNSETTLED,
    WINDOW_NS,
    ElapsedCheck,
    whole_turns,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from power.model import FindingLog


EARLY = 15
"""Samples, 3 ms: by so much the floor of the delay may be wrong."""

LOST_MODULUS = 256
"""After so many samples a packet's count of lost ones is back at 0."""


@dataclass(frozen=True, slots=True)
class HeldPiece:
    """Samples of adjacent packets under one calibration."""

    first_index: int
    dropped_before: int
    current_a: NDArray[np.float64]
    voltage_v: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class HeldNote:
    """A finding at each of these samples, or from each to its ``last``."""

    code: str
    severity: Severity
    message: str
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    count: int


@dataclass(slots=True)
class Held:
    """Pieces and findings in the order of the stream.

    Attributes:
        losses: Where samples are known to be missing, and after how many the counter that shows it turns.
    """

    pieces: list[HeldPiece] = field(default_factory=list)
    notes: list[HeldNote] = field(default_factory=list)
    losses: list[tuple[int, int]] = field(default_factory=list)

    def lose(self, samples: int, place: int) -> bool:
        """Number everything from ``place`` on higher; whether a piece is there to be told of the loss."""
        told = False
        for i, piece in enumerate(self.pieces):
            if piece.first_index >= place:
                dropped = piece.dropped_before + (0 if told else samples)
                moved = replace(piece, first_index=piece.first_index + samples, dropped_before=dropped)
                self.pieces[i], told = moved, True
        for i, note in enumerate(self.notes):
            first, last = (at + samples * (at >= place) for at in (note.first, note.last))
            self.notes[i] = replace(note, first=first, last=last)
        return told

    def release(self, log: FindingLog) -> list[Decoded]:
        """Give everything away."""
        for note in self.notes:
            log.add_each(note.code, note.severity, note.message, note.first, note.last, count=note.count)
        pieces, self.pieces, self.notes, self.losses = self.pieces, [], [], []
        return _join(pieces)


def _join(pieces: list[HeldPiece]) -> list[Decoded]:
    """Pieces without a gap between them as one block."""
    if not pieces:
        return []
    ends = [0, *(piece.first_index + len(piece.current_a) for piece in pieces)]
    starts = [i for i, piece in enumerate(pieces) if i == 0 or piece.first_index != ends[i]]
    blocks = []
    for first, last in zip(starts, [*starts[1:], len(pieces)], strict=True):
        part = pieces[first:last]
        current_a = np.concatenate([piece.current_a for piece in part])
        index = part[0].first_index
        blocks.append(
            Decoded(
                first_index=index,
                dropped_before=part[0].dropped_before,
                ticks=np.arange(index, index + len(current_a), dtype=np.int64),
                current_a=current_a,
                voltage_v=np.concatenate([piece.voltage_v for piece in part]),
            )
        )
    return blocks


@dataclass(slots=True)
class _Watch:
    """Reads that are late, as long as it is not known whether samples are missing before them.

    Attributes:
        first_index: Of the first that may have a wrong number.
        last_index: Of the last that may lie before the loss.
        since_ns: Arrival of the first late read.
        lowest: Samples by which the least late read is behind.
        floors: The same of each half second.
    """

    first_index: int
    last_index: int
    since_ns: int
    lowest: float
    floors: dict[int, float] = field(default_factory=dict)

    def note(self, arrival_ns: int, behind: float) -> None:
        window = (arrival_ns - self.since_ns) // WINDOW_NS
        self.lowest = min(self.lowest, behind)
        self.floors[window] = min(self.floors.get(window, behind), behind)

    def is_steady(self, missing: int) -> bool:
        """Whether reads come as evenly as before, only that so many samples are missing.

        Those of a link that is late vary. The first half second may be late as well.
        """
        floors = list(self.floors.values())[1:]
        near = sum(abs(floor - missing) <= EARLY for floor in floors)
        return 2 * near > len(floors) and self.lowest >= missing - EARLY


class SampleCount:
    """The number of the next sample, lost ones included, and what may still be wrong with those before.

    Attributes:
        next_index: Of the next sample.
        lost: Samples lost since the last piece.
        held: What is decoded and not given away.
        silent: Whether whole turns of a counter may be missing since the last sample that is sure.
    """

    def __init__(self, rate_hz: float) -> None:
        self.next_index = 0
        self.lost = 0
        self.held = Held()
        self.silent = False
        self._elapsed = ElapsedCheck(rate_hz)
        self._sure_index = 0  # samples before it have their final number
        self._watch: _Watch | None = None
        self._arrival_ns = 0
        self._sequence_turn = 0
        self._lost_lately = False  # whether samples were lost since the last read that was on time
        self._in_doubt = False  # whether a loss was given up
        self._link_is_late = False  # whether reads were seen to stay late where nothing was lost

    def lose(self, samples: int, turn: int = 0) -> None:
        """Samples are missing here; a counter that shows it is back at 0 after ``turn`` of them."""
        self.lost += samples
        self.next_index += samples
        if samples and turn:
            self.held.losses.append((self.next_index, turn))
            self.note_damage()

    def note_silence(self, until_ns: int) -> None:
        """Nothing has arrived since the last bytes."""
        self.silent |= until_ns - self._arrival_ns >= SILENT_NS

    def note_damage(self) -> None:
        """Bytes are missing, so whole turns may be."""
        self.silent = self._lost_lately = True

    def note_arrival(self, arrival_ns: int) -> None:
        """Bytes had arrived by then."""
        self._arrival_ns = arrival_ns

    def take(self, log: FindingLog, *, over: bool = False) -> list[Decoded]:
        """What has its final number by now; everything if it is ``over``."""
        if over and self._watch is not None:
            self._settle(self._watch, over=True)
        return [] if self._watch is not None else self.held.release(log)

    def allows(self, samples: int, arrived: int, arrival_ns: int) -> bool:
        """Whether there was time to lose so many samples here, if ``arrived`` more have come by then.

        A read can be late, never early. Half of them is left for one that is late.
        """
        if not self._elapsed.known or not samples:
            return True
        behind = self._elapsed.behind(self.next_index + samples + arrived, arrival_ns)
        return behind >= -max(EARLY, samples / 2)

    def check(self, arrival_ns: int, sequence_turn: int) -> None:
        """Whether the samples counted so far are as many as there should be by now.

        Args:
            arrival_ns: When the last of them had arrived.
            sequence_turn: Samples after which the packets' sequence number is back at its beginning.
        """
        self._arrival_ns, self._sequence_turn = arrival_ns, sequence_turn
        behind = self._elapsed.behind(self.next_index, arrival_ns)
        if self._watch is None:
            if behind < -self._late and self._elapsed.known:
                message = "samples came sooner than their number allows for"
                at = np.array([self.next_index])
                self.held.notes.append(HeldNote("surplus", Severity.WARNING, message, at, at, round(-behind)))
                self._elapsed.move(self.next_index, arrival_ns)
            # Lateness alone is no loss: a turn of a counter takes a while in which nothing arrives.
            if behind <= self._late or not self.silent:
                self._be_sure(arrival_ns)
            else:
                self._watch = _Watch(self._sure_index, self.next_index - 1, arrival_ns, behind)
            return
        self._watch.note(arrival_ns, behind)
        if behind <= self._late or arrival_ns - self._watch.since_ns >= JUDGED_NS:
            self._settle(self._watch)

    def _be_sure(self, arrival_ns: int) -> None:
        self._elapsed.accept(self.next_index, arrival_ns)
        if self._in_doubt:
            self.held.notes.append(_unplaced(self._sure_index, self.next_index - 1, 0))
        self._sure_index, self.silent, self._lost_lately = self.next_index, False, False

    def _settle(self, watch: _Watch, *, over: bool = False) -> None:
        """Count what is missing, where it is missing; or go on watching, unless it is ``over``."""
        patience_ns = self._arrival_ns - watch.since_ns
        if not self.held.losses and watch.lowest < self._one_turn:
            # No read is early: a whole turn would show in every one of them. It is the link that is late.
            self._link_is_late |= over or patience_ns >= TRACELESS_NS
        place, missing, certain = self._hidden(watch)
        certain = certain and (
            not missing or patience_ns >= (JUDGED_NS if self.held.losses else TRACELESS_NS)
        )
        if not certain and patience_ns < GIVEN_UP_NS and not over:
            return
        self._watch = None
        if not certain and not self._lost_lately:
            self._stay_late(watch)
            return
        if not certain and not self.held.losses:
            missing = 0  # that reads are late is likelier than a whole turn without a trace
        placed = place is not None and certain
        if missing and not self.held.lose(missing, watch.first_index if place is None else place):
            self.lost += missing
        self.next_index += missing
        if (missing or not certain) and not placed:
            places = [place + missing for place, _ in self.held.losses]
            last = max([watch.last_index + missing, *places]) if certain else self.next_index - 1
            self.held.notes.append(_unplaced(watch.first_index, last, max(1, missing)))
        if not certain:
            self._in_doubt = True
            self._elapsed.move(self.next_index, self._arrival_ns)
            self._sure_index = self.next_index
        elif self._elapsed.behind(self.next_index, self._arrival_ns) <= self._late:
            self._be_sure(self._arrival_ns)
        elif not missing:
            self._sure_index, self.silent = self.next_index, False

    def _stay_late(self, watch: _Watch) -> None:
        """Reads are late, and nothing shows a loss: likelier than whole turns of a counter, 1 loss in 256."""
        late_s = watch.lowest / self._elapsed.rate_hz
        message = f"reads were late by {late_s:.2g} s or more, and no counter shows a loss"
        span = np.array([watch.first_index]), np.array([self.next_index - 1])
        self.held.notes.append(HeldNote("late_data", Severity.INFO, message, *span, 1))
        self._elapsed.move(self.next_index, self._arrival_ns)
        self._sure_index, self.silent = self.next_index, False

    def _hidden(self, watch: _Watch) -> tuple[int | None, int, bool]:
        """Where samples are missing, as far as it is known, how many, and whether that number is certain."""
        losses = self.held.losses
        turns = sorted({turn for _, turn in losses}, reverse=True)
        # Without a trace it is a whole turn of either counter: the one that fits better.
        options = [whole_turns(watch.lowest, turn) for turn in turns or (LOST_MODULUS, self._sequence_turn)]
        missing, certain = min(options, key=lambda option: abs(watch.lowest - option[0]))
        if not losses and watch.lowest < self._one_turn and self._link_is_late:
            missing, certain = 0, True
        elif missing and not self._lost_lately:
            certain = watch.is_steady(missing)
        return (losses[0][0] if len(losses) == 1 else None), missing, certain

    @property
    def _late(self) -> float:
        """Samples by which a read must be behind to hide a turn of either counter."""
        return UNSETTLED * min(LOST_MODULUS, self._sequence_turn)

    @property
    def _one_turn(self) -> float:
        """Samples by which every read is behind if a turn of either counter is missing."""
        return (1 - TOLERANCE) * min(LOST_MODULUS, self._sequence_turn)


def _unplaced(first_index: int, last_index: int, missing: int) -> HeldNote:
    """A stretch in which samples may have a wrong number."""
    message = (
        "samples were lost where no counter shows it: in this stretch they may have a wrong time,"
        " behind it one that is 3 ms off"
    )
    span = np.array([first_index]), np.array([last_index])
    return HeldNote("unplaced_gap", Severity.ERROR, message, *span, missing)
