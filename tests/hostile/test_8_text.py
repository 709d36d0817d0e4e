"""Class 8: text from outside on a terminal, in a log, a spreadsheet or a page is shown, never obeyed."""

import contextlib
import csv
import io
import json
import logging
import os
import pty
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from harness import cli
from harness.export.junit import junit
from harness.report.page import Page, Section, Table
from harness.results.stored_run import StoredRun
from joulefleet.errors import DeviceError
from joulefleet.runstore import RunStore
from power.recording import open_recording
from power.recording.csv_export import write_samples_csv
from tests.harness.stored_bench import stored_bench

TITLE = "\x1b]0;owned\x07"
CLIPBOARD = "\x1b]52;c;cm0gLXJmIH4=\x1b\\"
CLEAR = "\x1b[2J\x1b[H"
C1_CSI = "\x9b2J"
LINK = "\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\"
BIDI = "\u202egpj.exe\u2066"
UNSEEN = "a\u200bb\u2060c\ufeffd\u00ade\u3164f\ufe0fg\U000e0041h"
ATTACKS = [
    TITLE,
    CLIPBOARD,
    CLEAR,
    C1_CSI,
    LINK,
    BIDI,
    UNSEEN,
    "\r\x08\x7f\x00",
    "\u2028\u2029\x85",
    "\udc9b",
]
MARKUP = ["[/dev/ttyACM0]", "[link=http://evil.example]report[/link]", "[bold red]passed[/]", ":skull:"]
# Written down here on its own: what a terminal obeys, what turns or hides text, what forges a line.
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)


def joulefleet(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """The command in this process, with what it would send to a terminal."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors="surrogateescape") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.run([*arguments])
    out.flush(), err.flush()
    return subprocess.CompletedProcess(arguments, code, out.buffer.getvalue(), err.buffer.getvalue())  # type: ignore[attr-defined]


def clean(data: bytes | str) -> bool:
    text = data.decode("utf-8", "surrogateescape") if isinstance(data, bytes) else data
    return FORBIDDEN.search(text) is None


def foreign_run(root: Path, **facts: object) -> Path:
    with RunStore(root).create("honest", kind="bench") as run:
        pass
    record = json.loads((run.path / "run.json").read_text())
    (run.path / "run.json").write_text(json.dumps({**record, **facts}))
    return run.path


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_record_of_a_foreign_run_shows_as_text(tmp_path: Path, attack: str) -> None:
    run = foreign_run(
        tmp_path, kind=f"x{attack}y", status="failed", error=f"device said {attack}\nall is well"
    )
    for command in (["runs", "list", "--root", str(tmp_path)], ["runs", "show", str(run)]):
        shown = joulefleet(*command)
        assert clean(shown.stdout), shown.stdout
        assert clean(shown.stderr), shown.stderr
        assert b"\nall is well" not in shown.stdout
    refused = joulefleet("report", str(run))
    assert refused.returncode
    assert clean(refused.stderr), refused.stderr
    assert clean(joulefleet("report", str(run), "-v").stderr)


@pytest.mark.parametrize("attack", ATTACKS[:6])
def test_names_of_files_and_keys_show_as_text(tmp_path: Path, attack: str) -> None:
    named = tmp_path / f"plan{attack.replace('/', '_').replace(chr(0), '')}.toml"
    named.write_text(
        f'"k{attack.encode("unicode_escape").decode().replace(chr(92) + "x", chr(92) + "u00")}" = 1\n'
    )
    refused = joulefleet("bench", "run", str(named))
    assert refused.returncode == 3
    assert clean(refused.stderr), refused.stderr
    assert clean(joulefleet("runs", "show", f"x{attack}".replace("\0", ""), "--root", str(tmp_path)).stderr)


def on_a_terminal(script: str, environment: dict[str, str] | None = None) -> str:
    """What a pseudo-terminal is sent by a script that prints with joulefleet's own ways."""
    parent, child = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "200", **(environment or {})}
    process = subprocess.Popen([sys.executable, "-c", script], stdout=child, stderr=child, env=env)
    os.close(child)
    data = b""
    while True:
        try:
            chunk = os.read(parent, 65536)
        except OSError:
            break
        if not chunk:
            break
        data += chunk
    os.close(parent)
    assert process.wait(30) == 0, data.decode()
    return data.decode("utf-8", "replace")


LIVE = """
from harness.bench.job.live_status import DeviceNow
from harness.cli.bench import live
from rich.live import Live
import inspect, dataclasses
now = DeviceNow(device={attack!r}, job={attack!r}, stage={attack!r}, phase={attack!r}, stage_began_s=0.0)
shown = live.table([now], {attack!r}, 3)
try:
    from harness.cli.terminal import console
except ImportError:
    from rich.console import Console as console
one = console(stderr=True) if 'stderr' in inspect.signature(console).parameters else console()
one.print(shown)
"""
BAR = """
from harness.cli.progress import progress
with progress({attack!r}, 2) as advance:
    advance(1, {attack!r})
    advance(2, {attack!r})
"""


@pytest.mark.parametrize("script", [LIVE, BAR], ids=["table", "bar"])
@pytest.mark.parametrize("attack", [CLIPBOARD, LINK, BIDI, *MARKUP])
def test_the_live_table_and_bars_show_text(script: str, attack: str) -> None:
    shown = on_a_terminal(script.format(attack=attack))
    assert "\x1b]" not in shown  # rich's own colours and cursor moves are CSI, never OSC
    assert not re.search("[\x80-\x9f\u202a-\u202e\u2066-\u2069\u200b-\u200f]", shown)
    if attack in MARKUP:
        assert attack in shown.replace("\r\n", "")


def test_styles_that_are_ours_stay_and_the_same_bytes_from_outside_do_not() -> None:
    script = """
from harness.cli.terminal import block, echo, style
echo(f"{style('fine', fg='green')} \\x1b[32mforged\\x1b[0m")
echo(f"one\\ntwo {block(['three', 'four'])}")
"""
    shown = on_a_terminal(script)
    assert "\x1b[32mfine\x1b[0m" in shown
    assert "\x1b[32mforged" not in shown
    assert r"\x1b[32mforged\x1b[0m" in shown
    assert "one\\ntwo three\r\nfour" in shown


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_error_is_safe_in_every_hand(attack: str) -> None:
    """Notebooks, journals and other people's programs print it without passing our command line."""
    error = DeviceError(f"it said {attack}", hint=f"try {attack}")
    for text in (str(error), repr(error), error.message, error.hint, *error.__notes__):
        assert clean(text.replace("\\n", ""))


def test_the_log_of_a_run_has_one_line_a_record(tmp_path: Path) -> None:
    with RunStore(tmp_path).create("x", kind="bench") as run:
        log = logging.getLogger("device")
        log.warning("it said %s", f"{TITLE}\n2026-01-01 00:00:00,000 INFO bench: all is well")
        try:
            raise ValueError(f"{CLEAR}\n2026-01-01 00:00:00,000 INFO bench: all is well")
        except ValueError:
            log.exception("failed")
    text = (run.path / "run.log").read_text()
    assert clean(text)
    assert not [line for line in text.splitlines() if line.startswith("2026-01-01")]


FORMULAS = [
    '=HYPERLINK("http://evil.example")',
    "+1+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(1)",
    "\t=1",
    "\r=1",
    " =1",
    "＝1",
]


@pytest.mark.parametrize("attack", FORMULAS)
def test_no_csv_has_a_formula(tmp_path: Path, attack: str) -> None:
    from emulator.compare import render
    from harness.export import tables
    from traces.storage import csv_export

    writers = [tables, csv_export, render]
    assert all(not hasattr(module, "csv") for module in writers)  # none has a writer of its own
    from joulefleet.printable import csv_text

    text = csv_text(["name", attack], [[attack, -2.5], ["-2.5", None]])
    header, first, second = csv.reader(io.StringIO(text, newline=""))
    assert not header[1].lstrip().startswith(("=", "+", "-", "@", "＝"))
    assert not first[0].lstrip().startswith(("=", "+", "-", "@", "＝"))
    assert (first[1], second) == ("-2.5", ["-2.5", ""])  # numbers stay numbers


def test_exported_tables_and_test_results_of_a_hostile_bench(tmp_path: Path) -> None:
    run = stored_bench(tmp_path)
    attempts = list((run / "failed").glob("*/attempt.json"))
    assert attempts
    for path in attempts:
        record = json.loads(path.read_text())
        path.write_text(json.dumps({**record, "message": f"=1+1{CLIPBOARD}{BIDI}\nforged", "hint": TITLE}))
    journal = run / "journal.jsonl"
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    for line in lines:
        if "error" in line:
            line["error"] = f"=1+1{CLIPBOARD}{BIDI}"
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert joulefleet("export", str(run), "--format", "csv", "--out", str(tmp_path / "csv")).returncode == 0
    for file in (tmp_path / "csv").glob("*.csv"):
        text = file.read_text()
        assert clean(text), file
        assert not any(cell.startswith("=") for row in csv.reader(io.StringIO(text)) for cell in row), file
    data = ET.tostring(junit(StoredRun(run)))
    assert clean(ET.tostring(ET.fromstring(data), encoding="unicode"))


@pytest.mark.parametrize(
    "attack", ["<script>alert(1)</script>", BIDI, UNSEEN, "</script><img src=x onerror=alert(1)>"]
)
def test_a_page_shows_names_as_they_are(attack: str) -> None:
    html = Page(
        attack, attack, [Section(attack, attack, tables=[Table([attack], [[attack]])])], {attack: attack}
    ).html()
    assert "<script>alert" not in html
    assert "<img src=x" not in html
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200b\u2060\u3164\U000e0041]", html)


@pytest.mark.parametrize(
    "name",
    [r"\input /etc/passwd ", r"\write18 x", "<img src=x>", "[a](javascript:alert(1))", "a|b", "a\n## b"],
)
def test_tables_for_papers_and_pages_hold_names_not_commands(name: str) -> None:
    from emulator.compare import render

    tex = render._tex(name)
    assert r"\input" not in tex
    assert r"\write" not in tex
    assert "\n" not in tex
    table = render.piped(["method"], [[name]])
    assert len(table.splitlines()) == 3
    assert "<img" not in table
    assert "](" not in table


def test_threads_and_warnings_are_no_way_around() -> None:
    script = """
import sys, threading, warnings
from harness.cli.terminal import survive_any_terminal
survive_any_terminal()
def fail():
    raise ValueError("\\x1b]0;owned\\x07")
thread = threading.Thread(target=fail); thread.start(); thread.join()
warnings.warn("\\x1b]0;owned\\x07 \\u202e", stacklevel=1)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60)
    assert done.stderr.count(rb"\x1b]0;owned") >= 2
    assert clean(done.stderr)


def test_the_head_of_a_csv_of_samples_stays_a_comment(tmp_path: Path) -> None:
    bench = stored_bench(tmp_path)
    folder = next(path.parent for path in bench.glob("jobs/*/recording.json"))
    record = json.loads((folder / "recording.json").read_text())
    record["info"]["serial"] = "1\n=HYPERLINK(1),2,3\n\x1b]0;owned\x07"
    (folder / "recording.json").write_text(json.dumps(record))
    out = tmp_path / "x.csv"
    recording = open_recording(folder)
    write_samples_csv(recording, out, 0, 10**18)
    head = out.read_text().split('"time_s"')[0]
    assert clean(head)
    assert all(line.startswith("# ") for line in head.splitlines())


def test_nobody_prints_past_the_filter() -> None:
    """The linter holds the doors shut; this holds the linter to it."""
    import tomllib

    config = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    lint = config["tool"]["ruff"]["lint"]
    banned = lint["flake8-tidy-imports"]["banned-api"]
    assert {"click.echo", "rich.console.Console", "csv.writer", "logging.Formatter"} <= set(banned)
    free = [place for place, rules in lint["per-file-ignores"].items() if {"TID251", "T20"} & set(rules)]
    assert sorted(free) == [
        *("benchmarks/**", "examples/**", "harness/cli/terminal.py", "joulefleet/printable.py", "tests/**")
    ]
