"""A real Chromium, without a screen and without a network."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait

FLAGS = (
    "--headless",
    "--no-sandbox",  # Chromium refuses to run as root with it
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--window-size=1100,1400",
    # A page that needs the network must fail here, not on somebody's aeroplane.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


@contextlib.contextmanager
def browser(chromium: str, chromedriver: str) -> Iterator[webdriver.Chrome]:
    """A browser with a profile of its own."""
    with tempfile.TemporaryDirectory() as profile:
        options = Options()
        options.binary_location = chromium
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(chromedriver))
        try:
            yield driver
        finally:
            driver.quit()


def console_errors(driver: webdriver.Chrome) -> list[str]:
    """What the page complained about."""
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]


def requested_urls(driver: webdriver.Chrome) -> set[str]:
    """Every address the page asked for, itself included."""
    import json

    events: list[dict[str, Any]] = [
        json.loads(e["message"])["message"] for e in driver.get_log("performance")
    ]
    return {
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    }


def open_page(driver: webdriver.Chrome, path: Path) -> None:
    """Open a file."""
    driver.get(path.absolute().as_uri())


def drawn(driver: webdriver.Chrome) -> int:
    """How many charts the page has drawn."""
    count: int = driver.execute_script("return Number(document.documentElement.dataset.drawn)")
    return count


def wait_until_drawn(driver: webdriver.Chrome, charts: int) -> None:
    """Let a page draw what was unfolded: it learns of the toggle in a task of its own, after the click."""
    WebDriverWait(driver, 30).until(lambda _: drawn(driver) >= charts)
