"""Makes the pictures of the documents: every kind of run once, for real, then its page in Chromium.

    make screenshots                              # runs (some minutes) and pictures
    .venv/bin/python docs/screenshots/make.py --runs FOLDER --all

Runs that are in the folder already are kept. Nothing is needed but this machine: processes play the devices,
emulated Monsoons read them.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import io
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from harness.demo.local_bench import QUICK, local_bench

HERE = Path(__file__).resolve().parent
COLOURS = 256
RESUMED = 3
TIMING = """
[timing]
idle_s = 0.5
settle_s = 0.1
load_only_s = 0.5
[sync]
order = 4
bit_ns = 20_000_000
[retry]
attempts = 5
wait_s = 0.5
"""
PLAN = """\
name = "lenet5"
models = ["mnist-lenet5"]
backends = ["torch", "onnxruntime"]
samples = 320
local_epochs = 5
threads = 1
[[loads]]
name = "none"
cpu_share = 0
[[loads]]
name = "app"
cores = 1
cpu_share = 1.0
[repetitions]
count = 3
"""
AGAIN = """\
name = "again"
models = ["mnist-lenet5"]
backends = ["onnxruntime"]
samples = 320
local_epochs = 5
threads = 1
[[loads]]
name = "none"
cpu_share = 0
[repetitions]
count = 3
"""
"""The same devices later, for what a device needed in every run."""

PROBING = """\
name = "early-exit"
task = "mnist-lenet5"
backend = "onnxruntime"
candidates = [2]
chosen = [1]
local_epochs = 5
samples = 320
repetitions = 4
threads = 1
seed = 1
"""
SCENARIO = """\
name = "two-boards"
[task]
name = "digits-mlp"
learning_rate = 0.1
[protocol]
rounds = 6
candidates = 2
k = 1
local_epochs = 2
[selector]
name = "fedrank"
"""
METHODS = "fedavg,fedprox,oort,tifl,afl,autofl,fedrank"


@dataclass(frozen=True)
class View:
    """How a page is looked at."""

    width: int
    height: int
    dark: bool = False

    @property
    def name(self) -> str:
        """For a file."""
        return f"{self.width}{'-dark' * self.dark}"


DESK, PHONE = View(1280, 1100), View(420, 900)
NIGHT = View(1280, 1100, dark=True)
ALL = (DESK, PHONE, NIGHT, View(420, 900, dark=True))
PAGES = {
    "bench": "bench/*_lenet5_*/report.html",
    "probing": "probing/*/report.html",
    "federation": "federation/*/report.html",
    "emulation": "emulation/*/report.html",
    "experiment": "experiment/*/report.html",
    "demo": "demo/*_demo_*/report.html",  # not those of the runs that it made
    "history": "history.html",
    "traces": "traces.html",
}
"""Kind of page to where it is below the runs; of several the newest."""

PICTURES: dict[str, tuple[View, ...]] = dict.fromkeys(PAGES, (DESK,))
PICTURES["emulation"] = (DESK, PHONE, NIGHT)
"""What the documents show: each page once, one of them also on a phone and at night."""


def say(text: str) -> None:
    """A line for whoever waits."""
    sys.stderr.write(f"{text}\n")


def joulefleet(*words: str | Path, check: bool = True) -> bool:
    """Run the command as a user would; whether it succeeded."""
    say(" ".join(map(str, ("joulefleet", *words))))
    done = subprocess.run([sys.executable, "-m", "harness", *map(str, words)], check=check)  # noqa: S603 - our own words
    return done.returncode == 0


def measured(root: Path, *words: str | Path) -> None:
    """A run on the bench; what a busy machine made fail is done again, as a user would."""
    if joulefleet(*words, "--root", root, check=False):
        return
    for _ in range(RESUMED):
        if joulefleet(*words, "--resume", max(root.iterdir()), check=False):
            return
    sys.exit(f"{root}: the run did not finish, not even when resumed; is this machine too busy?")


def make_runs(folder: Path) -> None:
    """One run of every kind; those that are there are kept."""
    bench = [kind for kind in ("bench", "probing", "federation", "history") if not _page(folder, kind)]
    if bench:
        _on_the_bench(folder, bench)
    if "history" in bench:
        page = folder / PAGES["history"]
        joulefleet("profile", "history", "board-a", "--root", folder / "bench", "--out", page)
    if not _page(folder, "emulation"):
        joulefleet(
            "emulate", "quick", "--selector", METHODS, "--seeds", "0-2", "--root", folder / "emulation"
        )
        joulefleet("report", max((folder / "emulation").iterdir()))
    if not _page(folder, "experiment"):
        joulefleet("experiment", "run", "probing", "--preset", "smoke", "--root", folder / "experiment")
    if not _page(folder, "demo"):
        joulefleet("demo", "--root", folder / "demo")
    if not _page(folder, "traces"):
        people = folder / "people"
        joulefleet("traces", "synth", "--users", "60", "--days", "7", "--out", people)
        joulefleet("traces", "stats", people, "--html", folder / PAGES["traces"])


def _on_the_bench(folder: Path, kinds: list[str]) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as made:
        config, state = Path(made, "config"), Path(made, "state")
        config.mkdir()
        state.mkdir()
        with local_bench(config, state, QUICK, seed=1):
            inventory = ("--inventory", config / "devices.toml")
            texts = {
                "lenet5.toml": PLAN + TIMING,
                "again.toml": AGAIN + TIMING.replace("load_only_s = 0.5\n", ""),
                "probing.toml": PROBING + TIMING.replace("load_only_s = 0.5\n", ""),
                "scenario.toml": SCENARIO,
                "federate.toml": TIMING,
            }
            for name, text in texts.items():
                (config / name).write_text(text, encoding="utf-8")
            commands = {
                "bench": ("bench", "run", config / "lenet5.toml"),
                "history": ("bench", "run", config / "again.toml"),
                "probing": ("probing", "validate", config / "probing.toml"),
                "federation": (
                    *("bench", "federate", config / "scenario.toml"),
                    *("--settings", config / "federate.toml"),
                ),
            }
            for kind in kinds:
                root = folder / ("bench" if kind == "history" else kind)
                measured(root, *commands[kind], *inventory)


def _page(folder: Path, kind: str) -> Path | None:
    """The newest page of a kind."""
    return next(iter(sorted(folder.glob(PAGES[kind]), reverse=True)), None)


@contextlib.contextmanager
def chromium() -> Iterator[webdriver.Chrome]:
    """A browser without screen, network and memory."""
    with tempfile.TemporaryDirectory() as profile:
        options = Options()
        for flag in (
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
            *("--disable-component-update", "--disable-sync", "--hide-scrollbars"),
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            f"--user-data-dir={profile}",
        ):
            options.add_argument(flag)
        # Named, so that nothing is looked for on the network.
        driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        try:
            yield driver
        finally:
            driver.quit()


def picture(
    driver: webdriver.Chrome, page: Path | None, view: View, out: Path, *, whole: bool = False
) -> None:
    """The top of a page (or of what is open), or all of it, as a PNG of few colours."""
    scheme = {"name": "prefers-color-scheme", "value": "dark" if view.dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    metrics = {"width": view.width, "height": view.height, "deviceScaleFactor": 1, "mobile": view.width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    if page is not None:
        driver.get(page.resolve().as_uri())
    time.sleep(0.5)
    tall = driver.execute_script("return document.documentElement.scrollHeight") if whole else view.height
    clip = {"x": 0, "y": 0, "width": view.width, "height": tall, "scale": 1}
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    image = Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB")
    # The widest range of colours, then their means: small dots keep theirs, and so does the ground.
    few = image.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, kmeans=3, dither=Image.Dither.NONE)
    few.save(out, optimize=True)
    say(f"{out}: {out.stat().st_size / 1000:.0f} kB")


def main() -> None:
    """Runs, then pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--runs", type=Path, help="where the runs go, or are already; else a folder that is removed"
    )
    parser.add_argument("--out", type=Path, default=HERE, help="where the pictures go")
    parser.add_argument(
        "--all", action="store_true", help="whole pages in every width and scheme, to look at them"
    )
    parser.add_argument(
        "--pages-only", action="store_true", help="without the lab, which has runs of its own"
    )
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        runs = given.runs or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        runs.mkdir(parents=True, exist_ok=True)
        given.out.mkdir(parents=True, exist_ok=True)
        make_runs(runs)
        driver = stack.enter_context(chromium())
        for kind, views in PICTURES.items():
            page = _page(runs, kind)
            if page is None:
                sys.exit(f"{runs}: no page of a run of {kind}")
            for view in ALL if given.all else views:
                picture(driver, page, view, given.out / f"{kind}-{view.name}.png", whole=given.all)
        if not (given.all or given.pages_only):
            from lab import lab_pictures  # it takes its parts from here

            lab_pictures(driver, given.out)


if __name__ == "__main__":
    main()
