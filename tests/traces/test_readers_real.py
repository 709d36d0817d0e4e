"""Every real trace and network file at hand, through its reader, against an independent count with pandas."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.traces.importing import imported
from traces.intervals import total_ns, union
from traces.model import Intervals, NetworkKind
from traces.quality.checks import errors
from traces.quality.repairs import repair
from traces.synth import load_network_model


def length_s(intervals: Intervals | None) -> float:
    assert intervals is not None
    return total_ns(union(intervals)) / 1e9


def test_extrasensory(real_file: Callable[[str], Path]) -> None:
    path = real_file("traces/extrasensory_phone_state.csv.gz")
    traces, report = imported("extrasensory", path)
    frame = pd.read_csv(path)
    assert (report.rows, report.bad_rows) == (len(frame), 0)
    assert list(traces) == list(frame.user.unique())
    for user, rows in frame.groupby("user"):
        trace = traces[str(user)]
        hold = rows.timestamp.diff().shift(-1).clip(upper=90).fillna(90)
        plugged = rows.battery_plugged.notna() | rows.battery_state.isin(["charging", "full"])
        assert trace.battery is not None
        assert trace.plugged is not None
        assert trace.network is not None
        assert len(trace.battery) == rows.battery_level.notna().sum()
        np.testing.assert_allclose(trace.battery.level, rows.battery_level.dropna())
        assert length_s(trace.coverage) == hold.sum()
        assert length_s(trace.plugged.on) == hold[plugged].sum()
        on_wifi = trace.network.kind == NetworkKind.WIFI
        wifi = Intervals(trace.network.start_ns[on_wifi], trace.network.end_ns[on_wifi])
        assert length_s(wifi) == hold[rows.wifi_status == "reachable_via_wifi"].sum()
        assert not errors(trace)


def test_aware_screen_and_battery_of_a_month(real_file: Callable[[str], Path], tmp_path: Path) -> None:
    screen = real_file("traces/niimpy_AwareScreen_1month.csv.gz")
    battery = real_file("traces/niimpy_AwareBattery_1month.csv.gz")
    folder = tmp_path / "month"
    folder.mkdir()
    for path in (screen, battery):
        shutil.copy(path, folder)
    traces, report = imported("aware", folder, settings={"licence": "MIT (niimpy)"})
    events, levels = pd.read_csv(screen), pd.read_csv(battery)
    assert report.rows == len(events) + len(levels)
    trace = traces["month"]
    assert trace.screen is not None
    assert trace.plugged is not None
    assert trace.battery is not None
    np.testing.assert_array_equal(trace.battery.t_ns, (levels.time * 1e3).round().astype("int64") * 10**6)
    np.testing.assert_allclose(trace.battery.level * 100, levels.battery_level)
    switched = events[events.screen_status < 2].sort_values("time", kind="stable")
    begins = (switched.screen_status == 1) & (switched.screen_status.shift() != 1)
    # The phone was switched off or restarted four times, which may end a session that the screen's own log
    # does not end.
    assert abs(len(trace.screen.on) - begins.sum()) <= 4
    assert report.notes["locked events, not kept"] == (events.screen_status == 2).sum()
    assert {str(finding) for finding in errors(trace)} == {"battery: time runs backwards (1)"}
    assert not errors(repair(trace)[0])


@pytest.mark.parametrize("name", ["AwareBattery", "multiuser_AwareBattery", "multiuser_AwareScreen"])
def test_aware_users(real_file: Callable[[str], Path], name: str) -> None:
    path = real_file(f"traces/niimpy_{name}.csv")
    traces, report = imported("aware", path)
    frame = pd.read_csv(path)
    assert report.rows == len(frame)
    if "user" not in frame:
        assert list(traces) == [f"niimpy_{name}"]
        return
    phones = frame.groupby(["user", "device"])
    assert sorted(traces) == sorted(f"{user}/{device}" for user, device in phones.groups)
    for (user, device), rows in phones:
        trace = traces[f"{user}/{device}"]
        assert trace.end_ns - trace.start_ns == pytest.approx(
            (rows.time.max() - rows.time.min()) * 1e9, abs=1e3
        )


def test_studentlife(real_file: Callable[[str], Path]) -> None:
    path = real_file("traces/studentlife_running_tasks_3users.csv.gz")
    traces, report = imported("studentlife", path)
    frame = pd.read_csv(path)
    assert report.rows == len(frame)
    top = frame.drop_duplicates(["user", "timestamp"])
    assert report.notes["tasks below the one on top, not kept"] == len(frame) - len(top)
    for user, rows in top.groupby("user"):
        apps = traces[str(user)].apps
        assert apps is not None
        hold = rows.timestamp.diff().shift(-1).clip(upper=1205).fillna(1205)
        assert set(apps.names) == set(rows.top_package)
        for number, name in enumerate(apps.names):
            mine = apps.app == number
            total = length_s(Intervals(apps.start_ns[mine], apps.end_ns[mine]))
            assert total == hold[rows.top_package == name].sum()


def test_flash_availability(real_file: Callable[[str], Path]) -> None:
    path = real_file("traces/flash_availability_241x723.npz")
    traces, report = imported(
        "availability", path, time_zone="Asia/Shanghai", settings={"licence": "BSD-2-Clause"}
    )
    with np.load(path) as archive:
        matrix = archive["available"]
    assert (report.rows, len(traces)) == (matrix.size, matrix.shape[1])
    for column, trace in zip(matrix.T, traces.values(), strict=True):
        assert trace.available is not None
        assert length_s(trace.available.on) == 1800 * np.count_nonzero(column == 1)
        assert length_s(trace.available.known) == 1800 * np.count_nonzero(column != 255)
        assert trace.span_ns == 241 * 1800 * 10**9


def test_iphone_battery_and_display_through_the_generic_table(real_file: Callable[[str], Path]) -> None:
    battery = real_file("traces/iphone16promax_battery_38d_5min.csv.gz")
    columns = {"time": "timestamp", "level": "StateOfCharge", "plugged": "IsCharging"}
    settings = {"level_scale": "100", "licence": "CC BY 4.0", "user": "iphone"}
    traces, report = imported("csv", battery, column_map=columns, settings=settings)
    frame = pd.read_csv(battery)
    assert report.rows == len(frame)
    assert traces["iphone"].battery is not None
    np.testing.assert_allclose(traces["iphone"].battery.level * 100, frame.StateOfCharge)
    held = frame.timestamp.diff().shift(-1)[frame.IsCharging == 1].sum()
    assert length_s(traces["iphone"].plugged.on) == pytest.approx(held, abs=1e-3)  # type: ignore[union-attr]

    display = real_file("traces/iphone16promax_display_events.csv.gz")
    settings = {"screen_above": "0", "licence": "CC BY 4.0", "user": "iphone"}
    columns = {"time": "timestamp", "screen": "Brightness"}
    traces, report = imported("csv", display, column_map=columns, settings=settings)
    frame = pd.read_csv(display)
    assert report.rows == len(frame)
    held = frame.timestamp.diff().shift(-1)[frame.Brightness > 0].sum()
    assert length_s(traces["iphone"].screen.on) == pytest.approx(held, abs=1e-3)  # type: ignore[union-attr]


def test_ucc_5g(real_file: Callable[[str], Path]) -> None:
    path = real_file("network/ucc_5g_throughput.csv.gz")
    traces, report = imported("throughput", path, time_zone="Europe/Dublin")
    frame = pd.read_csv(path)
    assert (report.rows, len(traces)) == (len(frame), 83)
    for name, rows in frame.groupby("trace"):
        throughput = traces[str(name)].throughput
        assert throughput is not None
        np.testing.assert_allclose(throughput.down_bps, rows.dl_kbps * 1e3)
        np.testing.assert_allclose(throughput.up_bps, rows.ul_kbps * 1e3)
        local = pd.to_datetime(rows.timestamp, format="%Y.%m.%d_%H.%M.%S").dt.tz_localize("Europe/Dublin")
        expected = (local - pd.Timestamp("1970-01-01", tz="UTC")) // pd.Timedelta(seconds=1)
        np.testing.assert_array_equal(throughput.t_ns, expected * 10**9)
    assert report.notes["throughput readings out of time order, kept"] == 1


def test_pensieve(real_file: Callable[[str], Path]) -> None:
    path = real_file("network/pensieve_hsdpa_fcc_mbps.csv.gz")
    traces, report = imported("throughput", path)
    frame = pd.read_csv(path)
    assert (report.rows, len(traces)) == (len(frame), frame.trace.nunique())
    for name, rows in frame.groupby("trace"):
        trace = traces[str(name)]
        assert trace.throughput is not None
        seconds_known = np.diff(np.append(trace.throughput.t_ns, trace.end_ns)) / 1e9
        megabits = (seconds_known * trace.throughput.down_bps).sum() / 1e6
        assert megabits == pytest.approx((rows.t_s.diff() * rows.mbps).sum(), rel=1e-6)
        assert not errors(trace)
        assert trace.network is not None
        fixed = "_http" in str(name)  # the FCC's were recorded while pages of named sites were fetched
        assert trace.network.kind.tolist() == [NetworkKind.ETHERNET if fixed else NetworkKind.CELLULAR_3G]
        assert (trace.network.start_ns[0], trace.network.end_ns[0]) == (trace.start_ns, trace.end_ns)
    assert sum("_http" in name for name in traces) == 59


def test_the_shipped_networks_are_those_of_the_data(real_file: Callable[[str], Path]) -> None:
    """Means and spreads of logarithms, read off the table every 5 s without joulefleet."""
    frame = pd.read_csv(real_file("network/pensieve_hsdpa_fcc_mbps.csv.gz"))
    logs: dict[bool, list[np.ndarray]] = {True: [], False: []}
    for name, rows in frame.groupby("trace"):
        t_s, bps = rows.t_s.to_numpy(), 1e6 * rows.mbps.to_numpy()[1:]  # a rate ends at its time
        at_s = np.arange(t_s[0], t_s[-1], 5.0)
        rate = bps[np.searchsorted(t_s[:-1], at_s, side="right") - 1]
        logs["_http" in str(name)].append(np.log(rate[rate > 0]))
    for kind, fixed in zip(load_network_model().kinds, (True, False), strict=True):
        means = [log.mean() for log in logs[fixed]]
        assert kind.network == ("ethernet" if fixed else "3g")
        assert kind.evidence.users == len(means)
        assert kind.log_mean == pytest.approx(np.mean(means), abs=2e-3)
        assert kind.between_log_sd == pytest.approx(np.std(means, ddof=1), abs=2e-3)
        assert kind.within_log_sd == pytest.approx(
            np.sqrt(np.mean([log.var() for log in logs[fixed]])), abs=2e-3
        )


def test_the_shipped_networks_are_what_the_fit_gives(real_data: Path) -> None:
    from traces.synth.fit.bundled import network_model

    assert network_model(real_data).sha256() == load_network_model().sha256()


@pytest.mark.parametrize(
    ("name", "runs", "settings"),
    [
        ("MN-Transfer_combined", 99, {}),
        ("mi-combined", 11, {}),
        ("mn-combined_all", 1, {"runs": "mixed"}),
    ],
)
def test_sigcomm(real_file: Callable[[str], Path], name: str, runs: int, settings: dict[str, str]) -> None:
    path = real_file(f"network/sigcomm21_{name}.csv.gz")
    traces, report = imported("throughput", path, settings=settings)
    frame = pd.read_csv(path)
    assert (report.rows, len(traces)) == (len(frame), runs)
    rates = [trace.throughput for trace in traces.values() if trace.throughput is not None]
    down = np.concatenate([rate.down_bps for rate in rates])
    up = np.concatenate([rate.up_bps for rate in rates])
    if "direction" in frame:
        np.testing.assert_allclose(down, frame.throughput.where(frame.direction == "downlink") * 1e6)
        np.testing.assert_allclose(up, frame.throughput.where(frame.direction == "uplink") * 1e6)
    else:
        np.testing.assert_allclose(down, frame.downlink_Mbps * 1e6)
        np.testing.assert_allclose(up, frame.uplink_Mbps * 1e6)


def test_no_file_at_hand_is_forgotten(real_data: Path) -> None:
    here = Path(__file__).read_text()
    for path in [*(real_data / "traces").iterdir(), *(real_data / "network").iterdir()]:
        name = path.name.removeprefix("niimpy_").removeprefix("sigcomm21_").partition(".")[0]
        assert name in here, f"{path.name} is not imported by any test"
