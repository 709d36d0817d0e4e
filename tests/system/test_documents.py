"""What the repository's front pages say is there."""

import re
import tomllib

import click
import pytest

from harness.cli import READY, cli
from tests.conftest import REPOSITORY

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


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
    assert f"\nversion: {project['version']}\n" in citation
    assert f"\nlicense: {project['license']}\n" in citation
    (title,) = re.findall(r"^    title: (.*)$", citation, re.MULTILINE)
    assert title in " ".join(README.split())


def test_files_that_are_linked_are_there() -> None:
    pages = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *(REPOSITORY / "docs").rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page}: {target}"
