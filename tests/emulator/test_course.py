"""The course of a run over its days, against a loop over its tables."""

from __future__ import annotations

import numpy as np
import pytest

import emulator
from emulator.round.outcome import Fate
from emulator.runs.replay.course import Course, course_of
from emulator.runs.result import Result
from emulator.scenario.load import load_scenario
from emulator.scenario.model import TrainerSection
from harness.report.emulations.charts import course_charts


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Three days, in which phones are used: rounds of ten minutes, so that some leave."""
    made = load_scenario("night")
    protocol = made.protocol.model_copy(update={"rounds": 24, "every_s": 3 * 3600.0, "deadline_s": 3600.0})
    fleet = made.fleet.model_copy(update={"traces": made.fleet.traces.model_copy(update={"policy": "wifi"})})
    task = made.task.model_copy(update={"samples_per_device": 60_000})
    made = made.model_copy(
        update={
            "protocol": protocol,
            "fleet": fleet,
            "task": task,
            "trainer": TrainerSection(kind="surrogate"),
        }
    )
    return emulator.run(made, out=tmp_path_factory.mktemp("runs"))


def test_every_round_is_what_its_rows_say(night: Result) -> None:
    course = course_of(night)
    rows, clients = night.rounds.to_dict("records"), night.clients.to_dict("records")
    hour, minute = map(int, night.record.scenario.fleet.traces.start.split(":"))
    for place, row in enumerate(rows):
        mine = [one for one in clients if one["round"] == row["round"]]
        began_h = (row["start_ns"] + row["idle_ns"]) / 3.6e12 + hour + minute / 60
        assert course.hours[place] == pytest.approx(began_h)
        assert course.eligible[place] == row["eligible"]
        loaded = sum(one["loaded_s"] > 0 for one in mine)
        assert course.under_load[place] == pytest.approx(100 * loaded / len(mine))
        for fate, counts in course.dropped.items():
            assert counts[place] == sum(one["fate"] == fate.value and one["chosen"] for one in mine)
        assert course.batteries["battery_median"][place] == 100 * row["battery_median"]
    assert course.under_load.any()
    assert course.dropped[Fate.LEFT].any()
    assert (course.batteries["battery_low"] < course.batteries["battery_median"]).all()


def test_charts_show_what_happened_and_nights(night: Result) -> None:
    charts = {chart.title: chart for chart in course_charts(course_of(night))}
    assert set(charts) == {
        "Devices that might train",
        "Participants beside an app",
        "Drop-outs by reason",
        "Batteries of the fleet",
    }
    (left,) = (one for one in charts["Drop-outs by reason"].series if one.label == "left")
    assert left.values.sum() == night.rounds["n_left"].sum()
    for chart in charts.values():
        assert [round(band.end - band.start) for band in chart.bands][1:-1] == [8] * (len(chart.bands) - 2)


def test_nights_are_cut_at_the_ends_of_the_run() -> None:
    def nights(*hours: float) -> list[tuple[float, float]]:
        nothing = np.zeros(len(hours))
        return Course(np.array(hours), nothing, nothing, {}, {}).nights

    assert nights(3.0, 12.0, 50.0) == [(3.0, 6.0), (22.0, 30.0), (46.0, 50.0)]
    assert nights(8.0, 21.0) == []
    assert nights() == []


def test_what_never_happened_has_no_chart() -> None:
    hours, nothing = np.arange(5.0), np.zeros(5)
    unknown = np.full(5, np.nan)
    calm = Course(
        hours,
        nothing + 7,
        unknown,
        dict.fromkeys((Fate.LEFT, Fate.BATTERY), nothing),
        {"battery_low": unknown},
    )
    assert [chart.title for chart in course_charts(calm)] == ["Devices that might train"]
