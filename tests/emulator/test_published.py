"""Pages of results show what the published data beside them say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from emulator.experiments import load_published
from emulator.experiments.render import as_markdown

RESULTS = Path(__file__).parents[2] / "docs" / "results"
MOST_BYTES = 20 * 2**20
FENCE = re.compile(r"<!-- from data/(?P<name>[a-z0-9-]+) -->\n(?P<tables>.*?)\n<!-- end -->", re.DOTALL)


def pages() -> list[tuple[Path, str, str]]:
    texts = {page: page.read_text() for page in sorted(RESULTS.glob("*.md"))}
    return [(page, *hit.groups()) for page, text in texts.items() for hit in FENCE.finditer(text)]


def test_every_data_set_is_on_a_page_and_small() -> None:
    folders = {path.name for path in (RESULTS / "data").iterdir() if path.is_dir()}
    assert folders == {name for _, name, _ in pages()}
    assert sum(path.stat().st_size for path in (RESULTS / "data").rglob("*") if path.is_file()) < MOST_BYTES


@pytest.mark.parametrize(
    ("page", "name", "tables"), pages(), ids=lambda value: getattr(value, "name", "")[:40]
)
def test_pages_show_what_their_data_say(page: Path, name: str, tables: str) -> None:
    assert as_markdown(load_published(RESULTS / "data" / name)).strip() == tables.strip()
