"""FLASH: state logs of Android phones (Yang et al., WWW 2021), and the availability it derives from them.

``state_traces.json`` holds ``{"0": {"guid", "model", "messages"}}``; the messages are lines of
``YYYY-mm-dd HH:MM:SS``, a tab and a state: ``battery_charged_on/off``, ``screen_on/off/lock/unlock``,
``wifi``, ``2G`` to ``5G``, ``Unknown`` (network), ``NN.N%`` (battery) or ``phone_on/off``. A phone that is
off says nothing, so from ``phone_off`` on each state is unknown until a message gives it again; ``phone_on``
says no more than that the recorder runs. ``cached_timers.json`` holds
``{guid: {"isSuccess", "trace_start", "trace_end", "ready_time": [[begin, end], ...]}}`` in seconds since
2020-01-02 00:00 on the same wall clock; a phone is "ready" when it is locked, charging and on Wi-Fi.

Both are wall-clock times without a zone, so the zone must be given. A JSON file of any size is read phone by
phone; memory is bounded by the longest log of one phone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from joulefleet.errors import DataQualityError
from traces.model import InteractionTrace, NetworkKind
from traces.readers.base import ImportReport, ReaderOptions
from traces.readers.files.json_members import JsonMember, object_members
from traces.readers.files.sources import files_of, text_chunks, text_or_nothing
from traces.readers.rows.assemble import SourceFacts, assemble, source_facts
from traces.readers.rows.spool import UNKNOWN, RecordKind, UserRecords
from traces.readers.rows.timestamps import NS_PER_S, SHOWN_TWICE, WallClock
from traces.readers.rows.value_codec import within

SOURCE = "FLASH (Yang et al., WWW 2021)"
LICENCE = "BSD-2-Clause"
REFERENCE = datetime(2020, 1, 2)  # noqa: DTZ001 - the user gives the zone
"""Begin of the times in ``cached_timers.json`` (``refer_time`` of FLASH's Timer)."""

_STATES = {
    "battery_charged_on": (RecordKind.PLUGGED, 1),
    "battery_charged_off": (RecordKind.PLUGGED, 0),
    "screen_on": (RecordKind.SCREEN, 1),
    "screen_off": (RecordKind.SCREEN, 0),
    "wifi": (RecordKind.NETWORK, int(NetworkKind.WIFI)),
    "2g": (RecordKind.NETWORK, int(NetworkKind.CELLULAR_2G)),
    "3g": (RecordKind.NETWORK, int(NetworkKind.CELLULAR_3G)),
    "4g": (RecordKind.NETWORK, int(NetworkKind.CELLULAR_4G)),
    "5g": (RecordKind.NETWORK, int(NetworkKind.CELLULAR_5G)),
    "unknown": (RecordKind.NETWORK, UNKNOWN),
}
_WITHOUT_CHANNEL = {"screen_lock", "screen_unlock", "battery_low", "battery_okay", "phone_on"}
_POWERED_OFF = "phone_off"


class _StateRecord(NamedTuple):
    """A state as the record it becomes, and what the import must say about it."""

    kind: RecordKind
    code: int = 0
    level: float = math.nan
    note: str = ""


def read(source: Path, options: ReaderOptions, report: ImportReport) -> Iterator[InteractionTrace]:
    """Yield one trace per phone."""
    options.check()
    clock = WallClock(options.zone("FLASH's times are wall-clock times"))
    phones = _Phones(clock, source_facts(options, report, SOURCE, LICENCE), report)
    for path in files_of(source, ".json"):
        for member in object_members(text_chunks(path, options, report), path.name):
            try:
                trace = phones.trace(path, member)
            except ValueError as error:
                report.bad(path, member.line, str(error))
                continue
            if trace is not None:
                yield trace
    report.note(SHOWN_TWICE, clock.ambiguous)
    if not report.rows:
        raise DataQualityError(f"{source.name}: there is no usable phone")


class _Phones:
    """Turns the members of FLASH's files into traces, each phone once."""

    def __init__(self, clock: WallClock, where_from: SourceFacts, report: ImportReport) -> None:
        self._clock = clock
        self._origin = where_from
        self._report = report
        self._seen: set[str] = set()

    def trace(self, path: Path, member: JsonMember) -> InteractionTrace | None:
        """The trace of one member; None if it holds nothing.

        Raises:
            ValueError: The member cannot be used; says why.
        """
        phone = member.value
        if not isinstance(phone, dict):
            raise ValueError("is not a phone")  # noqa: TRY004 - every unusable row is a ValueError
        guid = phone.get("guid", member.key)
        if not text_or_nothing(guid):
            raise ValueError("the guid is not text")
        if guid in self._seen:
            raise ValueError(f"user {guid[:40]!r} is there twice, the first one counts")
        if "messages" in phone:
            trace = self._from_log(path, member.line, guid, phone)
        elif "ready_time" in phone:
            trace = self._from_timer(guid, phone)
        else:
            raise ValueError("has neither 'messages' nor 'ready_time'")
        self._seen.add(guid)
        return trace

    def _from_log(self, path: Path, line: int, guid: str, phone: dict[str, Any]) -> InteractionTrace | None:
        messages = phone["messages"]
        if not isinstance(messages, str):
            raise ValueError("'messages' is not text")  # noqa: TRY004
        observed = UserRecords()
        for number, padded in enumerate(messages.split("\n"), 1):
            if message := padded.strip("\0 \r\t"):
                self._report.rows += 1
                try:
                    self._add(observed, message)
                except ValueError as error:
                    self._report.bad(path, line, f"phone {guid[:40]}, message {number}: {error}")
        device = text_or_nothing(phone.get("model"))
        return assemble(guid, observed, self._origin, self._report, device=device)

    def _add(self, observed: UserRecords, message: str) -> None:
        stamp, tab, state = message.partition("\t")
        t_ns = self._clock.ns(stamp.strip())
        if not tab:
            raise ValueError("no state after the time")
        record = _state_record(state)
        observed.add(record.kind, t_ns, code=record.code, x=record.level)
        if record.note:
            self._report.note(record.note)

    def _from_timer(self, guid: str, phone: dict[str, Any]) -> InteractionTrace | None:
        self._report.rows += 1
        if not phone.get("isSuccess", True) or phone.get("trace_start") is None:
            self._report.note("phones for which FLASH found no timer, left out")
            return None
        first_ns = self._timer_ns("trace_start", phone["trace_start"])
        last_ns = self._timer_ns("trace_end", phone.get("trace_end"))
        observed = UserRecords()
        ready = phone["ready_time"]
        if not isinstance(ready, list):
            raise ValueError("'ready_time' is not a list")  # noqa: TRY004
        for span in ready:
            if not isinstance(span, list) or len(span) != 2:
                raise ValueError("'ready_time' is not a list of pairs")
            start_ns, end_ns = (self._timer_ns("ready_time", value) for value in span)
            observed.add(RecordKind.AVAILABLE_SPAN, start_ns, end_ns=end_ns, code=1)
        if not ready:
            observed.add(RecordKind.AVAILABLE, first_ns, code=0)
        return assemble(guid, observed, self._origin, self._report, limits_ns=(first_ns, last_ns))

    def _timer_ns(self, name: str, value: object) -> int:
        # FLASH subtracts stamps without a zone, so its seconds know nothing of summer time.
        return self._clock.ns_after(REFERENCE, _seconds_ns(name, value))


@lru_cache(maxsize=4096)  # a log says the same few things over and over
def _state_record(text: str) -> _StateRecord:
    """What a state says.

    Raises:
        ValueError: It is none of FLASH's.
    """
    state = text.strip().lower()
    known = _STATES.get(state)
    if known is not None:
        return _StateRecord(known[0], code=known[1])
    if state.endswith("%"):
        return _StateRecord(RecordKind.LEVEL, level=within("battery", state[:-1], 100.0) / 100.0)
    if state == _POWERED_OFF:
        return _StateRecord(RecordKind.STOPPED, note=f"{state} events, unknown until the next message")
    if state in _WITHOUT_CHANNEL:
        return _StateRecord(RecordKind.SEEN, note=f"{state} events, not kept")
    raise ValueError(f"state {state[:40]!r} is not known")


def _seconds_ns(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e9:
        raise ValueError(f"{name} {value!r} is not a number of seconds")
    return round(value * NS_PER_S)
