"""What the repository's front pages say is there."""

import re
import tomllib
from pathlib import Path

import click
import pytest

import joulefleet
from harness.cli import READY, cli
from tests.conftest import REPOSITORY

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
FRONT = [REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES = [*FRONT, *(REPOSITORY / "docs").rglob("*.md")]
FOLDERS = "joulefleet|power|traces|device_agents|emulator|harness|tests|examples|benchmarks|docs"
RESULTS = [page for page in PAGES if page.parent.name == "results" and page.name != "README.md"]


@pytest.mark.parametrize("name", READY)
def test_the_table_of_commands_has_every_command(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    rows = [row for row in README.splitlines() if row.startswith("| `") and f"`joulefleet {name}" in row]
    assert rows
    parts = command.list_commands(click.Context(command)) if isinstance(command, click.Group) else []
    said = set(re.findall(r"\w+", " ".join(row.split("|")[1] for row in rows)))
    assert set(parts) <= said


def test_what_is_to_be_cited_is_this_version() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    citation = (REPOSITORY / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {joulefleet.__version__}\n" in citation
    assert f"\nlicense: {project['license']}\n" in citation
    (title,) = re.findall(r"^    title: (.*)$", citation, re.MULTILINE)
    assert title in " ".join(README.split())


def test_files_that_are_linked_are_there() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page}: {target}"


def test_headings_that_are_linked_are_there() -> None:
    for page in PAGES:
        for target, heading in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert heading in _anchors(page.parent / target if target else page), f"{page}: #{heading}"


def test_no_page_has_marks_of_an_unfinished_merge() -> None:
    """In Python files the linter sees them; pages have had some."""
    for page in [*PAGES, REPOSITORY / "CHANGELOG.md"]:
        marks = re.findall(r"^(?:<{7}|={7}|>{7})(?: .*)?$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert not marks, f"{page}: {marks}"


def test_paths_that_are_named_are_there() -> None:
    for page in PAGES:
        for path in re.findall(rf"`((?:{FOLDERS})/[\w./-]*)`", page.read_text(encoding="utf-8")):
            assert (REPOSITORY / path).exists(), f"{page}: {path}"


def _anchors(page: Path) -> set[str]:
    """The addresses that a forge gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_decision_is_listed_once() -> None:
    folder = REPOSITORY / "docs" / "decisions"
    listed = re.findall(r"^- \[\d{4}\]\(([^)]+)\)", (folder / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(page.name for page in folder.glob("0*.md"))


def test_a_replaced_decision_says_so_and_so_does_its_successor() -> None:
    folder = REPOSITORY / "docs" / "decisions"
    begins = {page.name[:4]: page.read_text("utf-8").split("\n**")[0] for page in folder.glob("0*.md")}
    listed = re.findall(r"^- \[(\d{4})\].* \((?:in part )?(?:replaced|extended) by (.*)\)$",
                        (folder / "README.md").read_text("utf-8"), re.MULTILINE)  # fmt: skip
    said = {(old, new) for old, text in begins.items() for new in re.findall(r" by .*?\[ADR-(\d{4})", text)}
    for old, successors in listed:
        for new in successors.split(", "):
            assert f"ADR-{new}" in begins[old]
            assert f"ADR-{old}" in begins[new]
            said.discard((old, new))
    assert listed
    assert said == set(), "not in the list"


@pytest.mark.parametrize("page", RESULTS, ids=lambda page: page.stem)
def test_a_page_of_results_begins_with_what_was_found(page: Path) -> None:
    title, rest = page.read_text(encoding="utf-8").split("\n", 1)
    found = [line for line in rest.split("\n## ")[0].splitlines() if line.strip()]
    assert title.startswith("# ")
    assert 0 < len(found) <= 10
    assert not any(line.startswith(("|", "```", "    ")) for line in found)
