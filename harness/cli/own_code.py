"""``--code FILE``: the user's own tasks, selectors, rewards and aggregations, for commands that run them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.frame import Callback

if TYPE_CHECKING:
    from emulator.own_code import GivenCode


def code_option(command: Callback) -> Callback:
    """Give a command the option, as ``code``."""
    option = click.option(
        "--code",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Run this Python file: your own task, selectors, rewards or aggregations; may be repeated.",
    )
    return option(command)


def given(code: tuple[Path, ...]) -> GivenCode:
    """Run the files; nothing is imported if there are none."""
    from emulator.own_code import GivenCode, use_code

    return use_code(*code) if code else GivenCode()
