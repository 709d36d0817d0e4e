"""Makes the pictures of the lab: runs that are looked at while they go on.

    .venv/bin/python docs/screenshots/lab.py [--out FOLDER]

`make.py` calls `lab_pictures`. Nothing is needed but this machine; it takes two minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from make import DESK, HERE, METHODS, PHONE, PLAN, TIMING, View, chromium, joulefleet, picture, say
from selenium import webdriver
from selenium.webdriver.support.wait import WebDriverWait

from harness.demo.local_bench import QUICK, local_bench
from power.recording import RECORDING_FILE

PATIENCE_S = 600


@contextlib.contextmanager
def started(*words: str | Path, cwd: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """A command that goes on meanwhile."""
    command = [sys.executable, "-m", "harness", *map(str, words)]
    with subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - ours
        try:
            yield process
        finally:
            process.terminate()


def shown(driver: webdriver.Chrome, script: str) -> None:
    """Wait until a script says that there is something to see."""
    WebDriverWait(driver, PATIENCE_S, 0.2).until(lambda page: page.execute_script(f"return {script}"))


def live(
    driver: webdriver.Chrome, address: str, place: int, root: Path, script: str, out: Path, name: str
) -> Path:
    """A run that has just begun, once the page shows what is wanted, on a desk and on a phone."""
    WebDriverWait(root, PATIENCE_S, 0.2).until(lambda folder: list(folder.glob("2*")))
    run = max(root.glob("2*"))
    driver.get(f"{address}#/{place}/{run.name}")
    for view in (DESK, PHONE):
        taken(driver, view, out / f"{name}-{view.name}.png", script)
    return run


def taken(driver: webdriver.Chrome, view: View, out: Path, script: str) -> None:
    """A picture of what is shown, drawn for its width."""
    metrics = {"width": view.width, "height": view.height, "deviceScaleFactor": 1, "mobile": view.width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    driver.refresh()
    shown(driver, script)
    picture(driver, None, view, out)


def bench_runs(folder: Path, root: Path) -> Iterator[subprocess.Popen[str]]:
    """A bench run that goes on while this is iterated."""
    config, state = folder / "config", folder / "state"
    config.mkdir()
    state.mkdir()
    with local_bench(config, state, QUICK, seed=1):
        (config / "plan.toml").write_text(PLAN + TIMING, encoding="utf-8")
        words = ("--inventory", config / "devices.toml", "--root", root)
        with started("bench", "run", config / "plan.toml", *words) as process:
            yield process


def lab_pictures(driver: webdriver.Chrome, out: Path) -> None:
    """Live pages of a bench run and of an emulation, a recording, and the list of runs."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        runs, emulations = folder / "runs", folder / "emulations"
        lab = stack.enter_context(
            started("lab", "--no-open", "--root", "runs", "--root", "emulations", cwd=folder)
        )
        address = next(iter(lab.stdout or ())).strip()
        for going in bench_runs(folder, runs):
            run = live(
                driver, address, 0, runs, "document.documentElement.dataset.drawn > 4", out, "lab-live"
            )
            going.wait(PATIENCE_S)
        joulefleet("runs", "note", run, "the first board, fan on #baseline")
        words = ("quick", "--selector", METHODS, "--seeds", "0-1", "--root", emulations)
        with started("emulate", *words) as going:
            some = "document.querySelector('progress')?.value > 0.4"
            live(driver, address, 1, emulations, some, out, "lab-emulation")
            going.wait(PATIENCE_S)
        finished = min(run.glob(f"jobs/*/{RECORDING_FILE}")).parent.relative_to(run)
        driver.get(f"{address}#/0/{run.name}/{finished}")
        taken(driver, DESK, out / "lab-recording-1280.png", "document.documentElement.dataset.took")
        driver.get(f"{address}#")
        taken(driver, DESK, out / "lab-runs-1280.png", "document.querySelectorAll('tbody tr').length == 2")


def main() -> None:
    """The pictures alone."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=HERE, help="where the pictures go")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    began_s = time.monotonic()
    with chromium() as driver:
        lab_pictures(driver, given.out)
    say(f"{time.monotonic() - began_s:.0f} s")


if __name__ == "__main__":
    main()
