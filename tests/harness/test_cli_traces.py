"""``joulefleet traces`` as a user meets it: real processes, real files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from harness.cli import run
from joulefleet.provenance import Origin, Provenance
from traces.model import AppSessions, BatteryPoints, Fact, InteractionTrace, Intervals
from traces.storage.trace_set import TraceSet, new_trace_set

T0 = 1_300_000_000 * 10**9
HOUR = 3600 * 10**9


def joulefleet(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def answer(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, dict]:
    """In this process, with --json: faster than a new one."""
    code = run([*map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)


def trace(user: str, **more: object) -> InteractionTrace:
    hours = T0 + np.arange(0, 48, 3) * HOUR
    sessions = AppSessions(hours, hours + HOUR // 3, np.zeros(16, np.int32), ("=cmd()",))
    return InteractionTrace(
        user, T0, T0 + 48 * HOUR,
        **{
            "screen": Fact(sessions.intervals),
            "plugged": Fact(Intervals([T0 + HOUR], [T0 + 9 * HOUR])),
            "apps": sessions,
            "battery": BatteryPoints(hours, np.linspace(1, 0, 16)),
            "time_zone": "Europe/Berlin",
            **more,
        },
    )  # fmt: skip


@pytest.fixture
def good(tmp_path: Path) -> Path:
    with new_trace_set(tmp_path / "good") as new:
        new.add(trace("ann"))
        new.add(trace("[/] bob"))  # would break a table if it were taken for markup
        new.describe(Provenance(origin=Origin.IMPORTED, basis="made for a test"))
    return tmp_path / "good"


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    overlapping = Fact(Intervals([T0 + 5, T0 + 8], [T0 + 9, T0 + 12]))
    with new_trace_set(tmp_path / "bad") as new:
        new.add(trace("ann"))
        new.add(trace("[/] bob", screen=overlapping))
        new.describe(Provenance(origin=Origin.IMPORTED, basis="made for a test"))
    return tmp_path / "bad"


CSV = """\
user,start,end,screen,plugged
ann,1300000000,1300000600,1,0
ann,1300000600,1300090000,0,1
bob,x,y,1,0
"""


def test_import_counts_bad_rows_and_shows_progress(tmp_path: Path) -> None:
    (tmp_path / "usage.csv").write_text(CSV)
    done = joulefleet(
        "traces", "import", "csv", tmp_path / "usage.csv", "--out", tmp_path / "set",
        "--time-zone", "Europe/Berlin", "--set", "licence=mine",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "1 users, imported" in done.stdout
    assert "unusable: 1" in done.stdout
    assert "usage.csv:4:" in done.stdout
    assert "100%" in done.stderr
    assert (tmp_path / "set" / "manifest.json").is_file()


def test_import_fails_clearly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "usage.csv"
    source.write_text(CSV)
    out = tmp_path / "set"
    code, body = answer(capsys, "traces", "import", "csv", source, "--out", out, "--max-bad-rows", "0")
    assert (code, body["error"]["type"]) == (6, "DataQualityError")
    assert "usage.csv:4" in body["error"]["message"]
    assert not out.exists()
    code, body = answer(capsys, "traces", "import", "livelap", source, "--out", out)
    assert (code, "did you mean 'livelab'?" in body["error"]["hint"]) == (3, True)
    code, body = answer(capsys, "traces", "import", "csv", tmp_path / "none.csv", "--out", out)
    assert code == 2
    code, body = answer(capsys, "traces", "import", "csv", source, "--out", out, "--map", "time")
    assert (code, "NAME=VALUE" in body["error"]["message"]) == (2, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["usage.csv"]


def test_formats_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    code, formats = answer(capsys, "traces", "formats")
    assert code == 0
    assert {"livelab", "fedscale", "flash", "aware", "extrasensory", "lsapp", "csv"} <= set(formats)


def test_a_reader_of_another_package_is_found_and_used(tmp_path: Path) -> None:
    (tmp_path / "acme_traces.py").write_text(
        "from traces.model import Fact, InteractionTrace, Intervals\n"
        "def read(source, options, report):\n"
        "    for line in source.read_text().splitlines():\n"
        "        report.rows += 1\n"
        "        yield InteractionTrace(line, 0, 9, screen=Fact(Intervals.one(2, 5)), relative_time=True)\n"
    )
    about = tmp_path / "acme_traces-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-traces\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[joulefleet.trace_readers]\nacme = acme_traces:read\n")
    (tmp_path / "users.acme").write_text("ann\nbob\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def joulefleet_with_acme(*arguments: str | Path) -> str:
        command = [sys.executable, "-m", "harness", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "acme-traces" in joulefleet_with_acme("traces", "formats")
    out = tmp_path / "set"
    joulefleet_with_acme("traces", "import", "acme", tmp_path / "users.acme", "--out", out)
    assert [found.user for found in TraceSet(out)] == ["ann", "bob"]


def test_every_listed_format_can_be_loaded() -> None:
    from traces.readers import READERS

    for name in READERS.entries():
        assert callable(READERS.load(name))


def test_validate_says_yes_or_no(good: Path, bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, body = answer(capsys, "traces", "validate", good)
    assert (code, body["users_with_errors"], body["findings"]) == (0, 0, [])
    code, body = answer(capsys, "traces", "validate", bad)
    assert (code, body["users_with_errors"]) == (6, 1)
    (finding,) = [row for row in body["findings"] if row["severity"] == "error"]
    assert (finding["code"], finding["channel"], finding["example"]) == ("overlap", "screen", "[/] bob")
    shown = joulefleet("traces", "validate", bad)
    assert shown.returncode == 6
    assert "[/] bob" in shown.stdout
    assert "1 with errors" in shown.stdout


def test_repair_lists_what_it_did(bad: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, body = answer(capsys, "traces", "validate", bad, "--repair", tmp_path / "mended")
    assert (code, body["left"]["users_with_errors"]) == (0, 0)
    assert body["repairs"] == [
        {"user": "[/] bob", "channel": "screen", "action": "overlaps removed", "count": 1}
    ]
    assert answer(capsys, "traces", "validate", tmp_path / "mended")[0] == 0
    assert answer(capsys, "traces", "show", tmp_path / "mended")[1]["repairs"] == body["repairs"]
    code, body = answer(capsys, "traces", "validate", bad, "--repair", tmp_path / "mended")
    assert (code, "exists already" in body["error"]["message"]) == (1, True)


def test_an_edited_table_is_noticed(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import pyarrow.parquet as pq

    table = pq.read_table(good / "battery.parquet")
    pq.write_table(table.slice(0), good / "battery.parquet", compression="none")
    code, body = answer(capsys, "traces", "validate", good)
    assert (code, body["changed_tables"]) == (6, ["battery"])


def test_stats_as_table_and_as_page(good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "stats.html"
    code, body = answer(capsys, "traces", "stats", good, "--html", page, "--policy", "charging and idle")
    assert code == 0
    assert (body["users"], body["sessions"]) == (2, 32)
    assert body["sessions_per_day"]["mean"] == pytest.approx(8.0)
    assert body["session_s"]["p50"] == pytest.approx(1200)
    assert body["charging"]["overall"] == pytest.approx(8 / 48)
    # T0 is 08:06:40 in Berlin: charged from 09:06:40 to 17:06:40 on the first of two days.
    assert body["charging"]["by_hour"][12] == pytest.approx(0.5)
    assert body["charging"]["by_hour"][3] == 0
    text = page.read_text()
    for part in ("Session length", "Screen on by hour", "Charging by hour", "Availability by hour"):
        assert part in text
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert run(["traces", "stats", str(good)]) == 0
    shown = capsys.readouterr().out
    assert "local time" in shown
    assert "16.7%" not in shown  # shares are by hour
    assert "50.0%" in shown
    assert answer(capsys, "traces", "stats", good, "--html", page)[0] == 1  # never overwritten
    assert answer(capsys, "traces", "stats", good, "--policy", "moon")[0] == 3


def test_stats_refuse_traces_with_errors(bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, body = answer(capsys, "traces", "stats", bad)
    assert (code, "--repair" in body["error"]["hint"]) == (6, True)


def test_show_flatten_and_export(good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, body = answer(capsys, "traces", "show", good, "--users", "1")
    assert (code, body["users"], len(body["first_users"])) == (0, 2, 1)
    assert body["first_users"][0]["channels"] == ["screen", "plugged", "apps", "battery"]
    shown = joulefleet("traces", "show", good)
    assert "[/] bob" in shown.stdout
    code, body = answer(capsys, "traces", "flatten", good, "--out", tmp_path / "flat")
    assert (code, body["users"], body["apps"]) == (0, 2, 1)
    from traces.replay.flat_store import open_flat

    assert open_flat(tmp_path / "flat").users == ("ann", "[/] bob")
    code, body = answer(capsys, "traces", "export", good, "--out", tmp_path / "csv")
    assert code == 0
    assert "'=cmd()" in (tmp_path / "csv" / "spans.csv").read_text()


def test_something_else_is_not_a_trace_set(tmp_path: Path) -> None:
    refused = joulefleet("traces", "stats", tmp_path)
    assert refused.returncode == 1
    assert "not a trace set" in refused.stderr
    assert "traces import" in refused.stderr
