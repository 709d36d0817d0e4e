"""The documentation site: built strictly, every page within reach, nothing loaded from elsewhere."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urldefrag

import pytest
from selenium.webdriver.support.wait import WebDriverWait

import joulefleet
from tests.conftest import REPOSITORY
from tests.harness.browser import browser, requested_urls

QUIET = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
"""Without it Material prints a page about its successor."""


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "-f", str(config), "-d", str(site)]
    return subprocess.run(command, env=QUIET, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    result = build(REPOSITORY / "mkdocs.yml", folder)
    assert result.returncode == 0, result.stderr
    return folder


class Links(HTMLParser):
    """What a page leads to, and what it loads."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.leads: set[str] = set()
        self.loads: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "a" and values.get("href"):
            self.leads.add(values["href"] or "")
        elif tag == "link" and values.get("rel") in {"stylesheet", "preload", "preconnect", "icon"}:
            self.loads.add(values["href"] or "")
        elif tag in {"script", "img", "iframe", "source"} and values.get("src"):
            self.loads.add(values["src"] or "")


def reached(site: Path) -> Iterator[Path]:
    """Pages that somebody who clicks gets to, from the first one on."""
    seen, waiting = set(), [site / "index.html"]
    while waiting:
        page = waiting.pop()
        if page in seen:
            continue
        seen.add(page)
        yield page
        for link in Links(page).leads:
            path = urldefrag(link).url
            target = (page.parent / path).resolve()
            if path and not re.match(r"\w+:", path) and target.suffix == ".html" and target.is_file():
                waiting.append(target)


def test_every_page_is_within_reach_and_works_without_a_network(site: Path) -> None:
    pages = set(reached(site))
    assert {page for page in site.rglob("*.html") if page.name != "404.html"} - pages == set()
    assert len(pages) > 80
    broken = {page for page in pages if "```" in page.read_text(encoding="utf-8")}
    assert broken == set(), "a block of code that is not seen as one"
    loads = {load for page in pages for load in Links(page).loads}
    assert {load for load in loads if re.match(r"(https?:)?//", load)} == set()
    assert (site / "search" / "search_index.js").is_file(), "search without a server"


def test_the_reference_is_made_from_the_code(site: Path) -> None:
    python = (site / "reference" / "python.html").read_text(encoding="utf-8")
    assert {name for name in joulefleet.__all__ if f'id="joulefleet.{name}"' not in python} == set()
    commands = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    assert "joulefleet meter record" in commands
    assert "Highest voltage that may ever be set" in commands
    keys = (site / "reference" / "configuration.html").read_text(encoding="utf-8")
    assert "<code>temperature_max_c</code>" in keys
    assert "Hottest sensor, watched by the device." in keys


SMALL = """
site_name: small
docs_dir: docs
use_directory_urls: false
strict: true
theme: {name: mkdocs}
plugins: []
hooks: [HOOK]
not_in_nav: files/*
validation: {links: {not_found: warn, anchors: warn}}
nav: [README.md]
"""


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[an example](../examples/one.toml)", None),
        ("[a page outside](../GUIDE.md#a-part)", None),
        ("[an example](../examples/two.toml)", "examples/two.toml"),
        ("[a page](missing.md)", "missing.md"),
        ("[a part](#nowhere)", "nowhere"),
        ("[a part of a page outside](../GUIDE.md#nowhere)", "nowhere"),
    ],
)
def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path, text: str, complaint: str | None) -> None:
    for folder in ("docs", "examples"):
        (tmp_path / folder).mkdir()
    (tmp_path / "docs/README.md").write_text(f"# Small\n\n{text}\n", encoding="utf-8")
    (tmp_path / "GUIDE.md").write_text("# Guide\n\n## A part\n\n[back](docs/README.md)\n", encoding="utf-8")
    (tmp_path / "examples/one.toml").write_text("a = 1\n", encoding="utf-8")
    hook = str(REPOSITORY / "docs/site/linked_files.py")
    (tmp_path / "mkdocs.yml").write_text(SMALL.replace("HOOK", hook), encoding="utf-8")
    result = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    if complaint is None:
        assert result.returncode == 0, result.stderr
        assert list((tmp_path / "site" / "files").rglob("*.html"))
    else:
        assert result.returncode != 0
        assert complaint in result.stderr


def test_search_finds_a_page_without_a_server(site: Path, require_program: Callable[[str, str], str]) -> None:
    with browser(
        require_program("chromium", "chromium"), require_program("chromedriver", "chromium-driver")
    ) as driver:
        driver.get((site / "index.html").as_uri())
        driver.execute_script("document.querySelector('label[for=__search]').click()")
        driver.find_element("css selector", "input[data-md-component=search-query]").send_keys(
            "marginal energy"
        )
        found = WebDriverWait(driver, 60).until(
            lambda page: page.find_elements("css selector", ".md-search-result__link")
        )
        assert any("0027-marginal-energy" in (link.get_attribute("href") or "") for link in found)
        assert {url for url in requested_urls(driver) if url.startswith("http")} == set()
