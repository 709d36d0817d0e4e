"""The channels of a trace, made from the records of one user."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from traces.intervals import difference, runs_from_samples, union
from traces.model import AppSessions, BatteryPoints, Fact, Intervals, NetworkSpans, Throughput
from traces.readers.rows.spool import DTYPE, UNKNOWN, RecordKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from traces.readers.base import ImportReport

_FAR_NS = 2**62
_NO_RECORDS = np.empty(0, DTYPE)
_OBSERVED = (RecordKind.RECORDED_SPAN, RecordKind.APP_KNOWN_SPAN)
_SPANS = (
    *(RecordKind.SESSION, RecordKind.SCREEN_SPAN, RecordKind.PLUGGED_SPAN),
    *(RecordKind.AVAILABLE_SPAN, RecordKind.NETWORK_SPAN),
    *_OBSERVED,
)

_LABELS = {
    RecordKind.SESSION: "app sessions",
    RecordKind.UNENDED: "app sessions",
    RecordKind.APP: "foreground apps",
    RecordKind.SCREEN: "screen readings",
    RecordKind.PLUGGED: "charger readings",
    RecordKind.AVAILABLE: "availability readings",
    RecordKind.NETWORK: "network readings",
    RecordKind.SCREEN_SPAN: "screen spans",
    RecordKind.PLUGGED_SPAN: "charger spans",
    RecordKind.AVAILABLE_SPAN: "availability spans",
    RecordKind.NETWORK_SPAN: "network spans",
    RecordKind.RECORDED_SPAN: "spans of the recorder",
    RecordKind.APP_KNOWN_SPAN: "spans of known apps",
    RecordKind.LEVEL: "battery readings",
    RecordKind.RATE: "throughput readings",
}


@dataclass(frozen=True, slots=True)
class ChannelRules:
    """How the records of a format are to be taken.

    Attributes:
        hold_ns: How long a reading counts when no other follows; ``None`` for logs of changes.
        screen_from_sessions: The source says that a session ends when the screen goes off.
    """

    hold_ns: int | None = None
    screen_from_sessions: bool = False


class ChannelBuilder:
    """The records of one user, channel by channel."""

    def __init__(
        self,
        records: NDArray[Any],
        rules: ChannelRules,
        report: ImportReport,
        limits_ns: tuple[int, int] | None = None,
    ) -> None:
        self._records = records
        self._rules = rules
        self._report = report
        present = np.flatnonzero(np.bincount(records["kind"])).tolist()
        self._by_kind: dict[int, NDArray[Any]] = {kind: records[records["kind"] == kind] for kind in present}
        self.start_ns, self.end_ns = limits_ns or self._limits_ns()

    def _limits_ns(self) -> tuple[int, int]:
        hold_ns = self._rules.hold_ns or 0
        ends = [
            int(np.maximum(part["t_ns"], part["end_ns"]).max())
            if kind in _SPANS
            else int(part["t_ns"].max()) + hold_ns
            for kind, part in self._by_kind.items()
        ]
        return int(self._records["t_ns"].min(initial=_FAR_NS)), max(ends, default=-_FAR_NS)

    @cached_property
    def coverage(self) -> Intervals | None:
        """When the recorder ran; None if that is all the time, or if the records do not say."""
        listed = self._listed(RecordKind.RECORDED_SPAN)
        if self._rules.hold_ns is None and not self._has(RecordKind.STOPPED):
            all_the_time = listed.start_ns.tolist() == [self.start_ns] and listed.end_ns.tolist() == [
                self.end_ns
            ]
            return listed if self._has(RecordKind.RECORDED_SPAN) and not all_the_time else None
        kind = self._records["kind"]
        is_span, is_stop = np.isin(kind, _SPANS), kind == RecordKind.STOPPED
        spans = self._records[is_span & ~np.isin(kind, _OBSERVED) & (self._records["code"] != UNKNOWN)]
        # At one time a stop counts last, as in the readings: what a phone logs while it shuts down, on a
        # clock of whole seconds, does not say that it runs again.
        moments = np.concatenate([self._records[~is_span & ~is_stop], self._records[is_stop]])
        runs, running = self._runs(moments, moments["kind"] != RecordKind.STOPPED)
        return union(listed, _where(runs, running), Intervals(spans["t_ns"], spans["end_ns"]))

    def fact(self, reading: RecordKind, span: RecordKind) -> Fact | None:
        """A yes-or-no channel, from readings, from spans, or from both."""
        if not self._has(reading, span):
            return None
        spans = self._spans(span)
        runs, code = self._readings(reading)
        if not np.any(self._of(span)["code"] != UNKNOWN) and not np.any(code != UNKNOWN):
            return None
        all_spans = Intervals(spans["t_ns"], spans["end_ns"])
        on = (_where(runs, code == 1), _where(all_spans, spans["code"] == 1))
        # Spans that are all "on" list what happened; with some "off" among them they list what was observed.
        known: Intervals | None
        if self._has(reading) or np.any(spans["code"] == 0):
            known = union(_where(runs, code != UNKNOWN), _where(all_spans, spans["code"] != UNKNOWN))
        else:
            known = self._known_but(_where(all_spans, spans["code"] == UNKNOWN))
        return Fact(
            on=Intervals(
                np.concatenate([part.start_ns for part in on]), np.concatenate([part.end_ns for part in on])
            ),
            known=known,
        )

    def screen(self, sessions: AppSessions | None) -> Fact | None:
        """The screen, where the format says so from the sessions."""
        fact = self.fact(RecordKind.SCREEN, RecordKind.SCREEN_SPAN)
        if fact is None and sessions is not None and self._rules.screen_from_sessions:
            return Fact(on=union(sessions.intervals), known=sessions.known)
        return fact

    def sessions(self, apps: tuple[str, ...], categories: Mapping[int, str]) -> AppSessions | None:
        """Foreground sessions, recorded as such or made from readings of the foreground app."""
        if not self._has(RecordKind.SESSION, RecordKind.UNENDED, RecordKind.APP, RecordKind.APP_KNOWN_SPAN):
            return None
        spans = self._spans(RecordKind.SESSION)
        runs, code = self._readings(RecordKind.APP)
        seen = code >= 0
        app = np.concatenate([spans["code"], code[seen]])
        used, index = np.unique(app, return_inverse=True)
        not_measured = np.full(np.count_nonzero(seen), np.nan)
        return AppSessions(
            start_ns=np.concatenate([spans["t_ns"], runs.start_ns[seen]]),
            end_ns=np.concatenate([spans["end_ns"], runs.end_ns[seen]]),
            app=index.astype(np.int32),
            names=tuple(apps[number] for number in used),
            categories=_categories_of(used, categories),
            cpu=_measured(np.concatenate([spans["x"], not_measured])),
            memory=_measured(np.concatenate([spans["y"], not_measured])),
            known=self._app_known(_where(runs, code != UNKNOWN)),
        )

    def _app_known(self, observed: Intervals) -> Intervals | None:
        """When the foreground app is known: where it was read or said to be, else all but open ends."""
        unended = self._unended()
        if self._has(RecordKind.APP, RecordKind.APP_KNOWN_SPAN):
            return difference(union(observed, self._listed(RecordKind.APP_KNOWN_SPAN)), unended)
        return self._known_but(unended)

    def network(self) -> NetworkSpans | None:
        """Which network."""
        if not self._has(RecordKind.NETWORK, RecordKind.NETWORK_SPAN):
            return None
        spans = self._spans(RecordKind.NETWORK_SPAN)
        runs, code = self._readings(RecordKind.NETWORK)
        seen = code != UNKNOWN
        spans = spans[spans["code"] != UNKNOWN]
        if not len(spans) and not seen.any():
            return None
        return NetworkSpans(
            start_ns=np.concatenate([spans["t_ns"], runs.start_ns[seen]]),
            end_ns=np.concatenate([spans["end_ns"], runs.end_ns[seen]]),
            kind=np.concatenate([spans["code"], code[seen]]).astype(np.int8),
        )

    def battery(self) -> BatteryPoints | None:
        """Battery readings, as they came."""
        if not self._has(RecordKind.LEVEL):
            return None
        records = self._points(RecordKind.LEVEL)
        return BatteryPoints(records["t_ns"], records["x"])

    def throughput(self) -> Throughput | None:
        """Throughput readings, as they came."""
        if not self._has(RecordKind.RATE):
            return None
        records = self._points(RecordKind.RATE)
        return Throughput(records["t_ns"], records["x"], records["y"])

    def _of(self, kind: RecordKind) -> NDArray[Any]:
        return self._by_kind.get(kind, _NO_RECORDS)

    def _has(self, *kinds: RecordKind) -> bool:
        return any(kind in self._by_kind for kind in kinds)

    def _runs(self, records: NDArray[Any], value: NDArray[Any]) -> tuple[Intervals, NDArray[Any]]:
        order = np.argsort(records["t_ns"], kind="stable")
        return runs_from_samples(
            records["t_ns"][order], value[order], hold_ns=self._rules.hold_ns, end_ns=self.end_ns
        )

    def _readings(self, kind: RecordKind) -> tuple[Intervals, NDArray[np.int32]]:
        """Runs of the codes of one kind of reading; where the recorder stopped, they are unknown."""
        readings = self._of(kind)
        if not len(readings):
            return Intervals.none(), readings["code"]
        self._note(kind, "out of time order, sorted", readings["t_ns"][1:] < readings["t_ns"][:-1])
        stops = self._of(RecordKind.STOPPED)
        code = np.concatenate([readings["code"], np.full(len(stops), UNKNOWN, np.int32)])
        return self._runs(np.concatenate([readings, stops]), code)

    def _spans(self, kind: RecordKind) -> NDArray[Any]:
        found = self._of(kind)
        if not len(found):
            return found
        self._note(kind, "of zero length, left out", found["end_ns"] == found["t_ns"])
        spans: NDArray[Any] = found[found["end_ns"] != found["t_ns"]]
        self._note(kind, "that end before they begin, kept", spans["end_ns"] < spans["t_ns"])
        self._note(kind, "out of time order, kept", spans["t_ns"][1:] < spans["t_ns"][:-1])
        ordered = spans[np.argsort(spans["t_ns"], kind="stable")]
        reach = np.maximum.accumulate(ordered["end_ns"])
        self._note(kind, "that begin before an earlier one ends, kept", ordered["t_ns"][1:] < reach[:-1])
        return spans

    def _points(self, kind: RecordKind) -> NDArray[Any]:
        records = self._of(kind)
        step_ns = np.diff(records["t_ns"])
        self._note(kind, "out of time order, kept", step_ns < 0)
        self._note(kind, "twice at one time, kept", step_ns == 0)
        return records

    def _note(self, kind: RecordKind, what: str, which: NDArray[np.bool_]) -> None:
        self._report.note(f"{_LABELS[kind]} {what}", int(np.count_nonzero(which)))

    def _listed(self, kind: RecordKind) -> Intervals:
        spans = self._spans(kind)
        return union(_where(Intervals(spans["t_ns"], spans["end_ns"]), spans["code"] == 1))

    def _known_but(self, unknown: Intervals) -> Intervals | None:
        """Known whenever the recorder ran, which is None, but for some time."""
        if not len(unknown):
            return None
        whole = Intervals.one(self.start_ns, self.end_ns)
        return difference(whole if self.coverage is None else self.coverage, unknown)

    def _unended(self) -> Intervals:
        """From each session without an end to the next moment on record."""
        unended = self._of(RecordKind.UNENDED)["t_ns"]
        self._report.note("app sessions without an end, left out", len(unended))
        moments = np.sort(np.append(self._records["t_ns"], self.end_ns))
        following = moments[np.minimum(np.searchsorted(moments, unended, "right"), len(moments) - 1)]
        return union(Intervals(unended, following))


def _where(intervals: Intervals, chosen: NDArray[np.bool_]) -> Intervals:
    return Intervals(intervals.start_ns[chosen], intervals.end_ns[chosen])


def _categories_of(used: NDArray[Any], categories: Mapping[int, str]) -> tuple[str, ...]:
    names = tuple(categories.get(number, "") for number in used.tolist())
    return names if any(names) else ()


def _measured(values: NDArray[np.float64]) -> NDArray[np.float64] | None:
    return None if np.all(np.isnan(values)) else values
