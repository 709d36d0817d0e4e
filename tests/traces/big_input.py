"""Input of any size through a pipe, and what importing it takes; each end is a process of its own.

Each as ``python -m tests.traces.big_input``: ``write FORMAT MEGABYTES | read FORMAT BUFFERED_ROWS``.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

from tests.traces import livelab_dump
from traces.readers import READERS, ImportReport, ReaderOptions
from traces.readers.rows import spool

ROWS_PER_USER = 2000
OTHER_TABLE = (
    "INSERT INTO wifi VALUES "
    + ",".join(f"({i},'A00','it\\'s ; an \"AP\"',{i})" for i in range(3000))
    + ";\n"
)


def livelab() -> Iterator[str]:
    """Ever more users, and ten times as much of another table."""
    for block in count():
        runs = livelab_dump.runs(ROWS_PER_USER, users=4, seed=block)
        renamed = (run._replace(user=f"B{block}-{run.user}") for run in runs)
        text = "".join(livelab_dump.dump(renamed))
        yield text
        yield OTHER_TABLE * (10 * len(text) // len(OTHER_TABLE))


def flash() -> Iterator[str]:
    """Ever more phones, with one of 50 logs each."""
    logs = [json.dumps(_flash_log(random.Random(seed))) for seed in range(50)]
    for number in count():
        begin = "," if number else "{"
        yield f'{begin}"{number}": {{"guid": "g{number}", "model": "MI 8", "messages": {logs[number % 50]}}}'


def _flash_log(rng: random.Random) -> str:
    moment = datetime(2020, 1, 29, tzinfo=UTC)
    lines = []
    for _ in range(ROWS_PER_USER):
        moment += timedelta(seconds=rng.randrange(1, 200))
        state = rng.choice(("screen_on", "screen_off", "wifi", "4G", "battery_charged_on", "47.5%"))
        lines.append(f"{moment:%Y-%m-%d %H:%M:%S}\t{state}\n")
    return "".join(lines)


def table() -> Iterator[str]:
    """Ever more users of the generic CSV, interleaved eight by eight."""
    yield "user,time,screen,level\n"
    for block in count():
        yield "".join(
            f"b{block}u{row % 8},{1_580_000_000 + row * 7},{row // 8 % 2},0.{row % 100:02d}\n"
            for row in range(8 * ROWS_PER_USER)
        )


WRITERS = {"livelab": livelab, "flash": flash, "csv": table}
END = {"livelab": "", "flash": "}", "csv": ""}


def write(name: str, megabytes: float) -> None:
    written = 0
    for text in WRITERS[name]():
        sys.stdout.write(text)
        written += len(text)
        if written >= megabytes * 1e6:
            break
    sys.stdout.write(END[name])


def read(source: Path, name: str, buffered_rows: int) -> dict[str, float]:
    spool.MAX_BUFFERED_ROWS = buffered_rows
    report = ImportReport(max_bad_rows=0)
    options = ReaderOptions(time_zone="Asia/Shanghai")
    traces = sum(1 for _ in READERS.load(name)(source, options, report))
    return {
        "traces": traces,
        "rows": report.rows,
        "megabytes": report.bytes_read / 1e6,
        "peak_rss_mb": peak_rss_mb(),
    }


def peak_rss_mb() -> float:
    """Peak memory of this process. ``ru_maxrss`` would count what its parent held when it forked, too."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2], float(sys.argv[3]))
    else:
        print(json.dumps(read(Path("/dev/stdin"), sys.argv[2], int(sys.argv[3]))))
