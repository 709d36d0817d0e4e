"""Exported tables say all that a trace says: what comes back answers every question as before."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings

from tests.traces.brute import battery_at, moment, traces
from tests.traces.importing import imported
from traces.model import AppSessions, Fact, InteractionTrace, Intervals, Throughput
from traces.storage.csv_export import export_csv


def round_trip(trace: InteractionTrace) -> InteractionTrace:
    with tempfile.TemporaryDirectory() as folder:
        export_csv([trace], Path(folder) / "csv")
        back, report = imported("csv", Path(folder) / "csv")
    assert not [note for note in report.notes if "order" in note]
    return back[trace.user]


def throughput(trace: InteractionTrace) -> list[tuple[int, float, float]]:
    told = trace.throughput or Throughput([], [], [])
    return list(zip(told.t_ns.tolist(), told.down_bps.tolist(), told.up_bps.tolist(), strict=True))


@settings(deadline=None)
@given(traces())
def test_a_way_through_csv_changes_no_answer(trace: InteractionTrace) -> None:
    back = round_trip(trace)
    assert (back.start_ns, back.end_ns) == (trace.start_ns, trace.end_ns)
    assert back.relative_time == trace.relative_time
    for t in range(trace.start_ns, trace.end_ns):
        assert moment(back, t) == moment(trace, t), t
        assert battery_at(back, t) == battery_at(trace, t), t
    assert throughput(back) == throughput(trace)


def test_from_where_on_the_throughput_is_unknown_comes_back() -> None:
    nan = float("nan")
    trace = InteractionTrace("ann", 0, 10, throughput=Throughput([0, 4, 6], [5.0, nan, nan], [nan, nan, 2.0]))
    assert repr(throughput(round_trip(trace))) == repr(throughput(trace))


def test_what_is_said_about_a_user_comes_back() -> None:
    trace = InteractionTrace(
        "ann",
        0,
        10,
        screen=Fact(Intervals.one(2, 5), known=Intervals.one(2, 5)),
        apps=AppSessions([3], [4], [0], ("mail",), categories=("office",)),
        time_zone="Europe/Berlin",
        device="Pixel 7",
    )
    back = round_trip(trace)
    assert (back.time_zone, back.device, back.relative_time) == ("Europe/Berlin", "Pixel 7", False)
    assert back.apps is not None
    assert (back.apps.names, back.apps.categories) == (("mail",), ("office",))
    assert moment(back, 1).screen is None, "what was not observed is not off"
