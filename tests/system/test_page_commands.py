"""Every command that a page shows is one: its name, options, their values, the number of arguments."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import click
import pytest

from harness.cli import cli
from tests.conftest import REPOSITORY

HISTORY = ("CHANGELOG.md", "decisions", "archive")
"""What these say was typed then."""
PAGES = [
    page for page in [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]
    if not set(HISTORY) & set(page.relative_to(REPOSITORY).parts)
]  # fmt: skip
FENCE = r"^ *```(?P<kind>\w*)[^\n]*\n(?P<text>.*?)^ *```"


def typed(page: str) -> Iterator[tuple[str, bool]]:
    """Commands of a page, and whether they are to be typed as they are; others only name something."""
    meter = "".join(re.findall(r'^METER="(.*)"$', page, re.MULTILINE)[:1])
    for block in re.finditer(FENCE, page, re.MULTILINE | re.DOTALL):
        for line in block["text"].replace("\\\n", " ").splitlines():
            if block["kind"] in {"sh", "bash", "console", ""} and line.removeprefix("$ ").startswith(
                "joulefleet "
            ):
                yield line.removeprefix("$ ").replace("$METER", meter), True
    prose = re.sub(FENCE, "", page, flags=re.MULTILINE | re.DOTALL)
    for words in re.findall(r"`(joulefleet [^`]+)`", prose):
        yield " ".join(words.split()), False


def parse(line: str, whole: bool) -> None:
    """Raise what click would, without looking at files."""
    words = shlex.split(re.sub(r"[][]|\.\.\.", "", line), comments=True)
    words = list(takewhile(lambda word: word not in {">", "|", "&"}, words))
    context = click.Context(cli, info_name=words.pop(0))
    while isinstance(context.command, click.Group) and words and not words[0].startswith("-"):
        name = words.pop(0)
        if name.endswith(","):
            return  # a list of them, which another test reads
        below = context.command.get_command(context, name)
        if below is None:
            raise click.UsageError(f"{context.command_path} has no {name}")
        context = click.Context(below, parent=context, info_name=name)
    if isinstance(context.command, click.Group) and not whole:
        return
    values, rest, _ = context.command.make_parser(context).parse_args(words)
    if rest:
        raise click.UsageError(f"{context.command_path} takes no {rest}")
    for parameter in context.command.params:
        check(context, parameter, values.get(parameter.name or ""), whole)


def check(context: click.Context, parameter: click.Parameter, value: object, whole: bool) -> None:
    """Raise for a value that is none of the choices or no number, and for one that is missing."""
    given = [one for one in (value if isinstance(value, list | tuple) else [value]) if isinstance(one, str)]
    if whole and parameter.required and not given:
        raise click.MissingParameter(ctx=context, param=parameter)
    if isinstance(parameter.type, click.Choice | click.types.IntParamType):
        for one in [part for text in given for part in text.split("|")]:
            parameter.type.convert(one, parameter, context)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_commands_are_spelt_as_they_are(page: Path) -> None:
    wrong = []
    for line, whole in typed(page.read_text(encoding="utf-8")):
        try:
            parse(line, whole)
        except click.BadOptionUsage as error:
            wrong += [f"{line}: {error.format_message()}"] if whole else []
        except click.UsageError as error:
            wrong.append(f"{line}: {error.format_message()}")
    assert wrong == []


def options(command: click.Command, context: click.Context) -> Iterator[str]:
    """Of a command and all below it."""
    yield "--help"
    for parameter in command.params:
        yield from [*parameter.opts, *parameter.secondary_opts]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from options(below, click.Context(below, parent=context))


OTHERS = {"--publish": "tests.mutation", "--termux-home": "proot-distro"}
"""Options of other programs."""


def test_an_option_that_is_named_alone_is_one() -> None:
    known = {*options(cli, click.Context(cli)), *OTHERS}
    for page in PAGES:
        prose = re.sub(FENCE, "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        assert set(re.findall(r"`(--[\w-]+)[^`]*`", prose)) - known == set(), page
