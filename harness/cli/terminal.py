"""The way to the terminal: everything that is printed passes here, and no text from outside does so raw.

`echo` shows text as text. Colours, line breaks and tables that are ours are made by `style` and `block`, with
a mark that nobody outside of this process knows; whatever else looks like them is shown, not obeyed.
Elsewhere ``click.echo``, ``print`` and rich's consoles are banned (pyproject.toml).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import threading
import traceback
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from joulefleet.printable import printable

if TYPE_CHECKING:
    from rich.console import Console

_OURS = secrets.token_hex(8)
_ESCAPE, _BREAK = f"\x1b{_OURS}", f"\n{_OURS}"


def style(text: str, **how: Any) -> str:
    """Text in a colour, for `echo`; ``how`` as for ``click.style``."""
    return click.style(printable(text), **how).replace("\x1b", _ESCAPE)


def block(lines: Iterable[str]) -> str:
    """Lines as one text, for `echo`."""
    return _BREAK.join(lines)


def echo(text: str, *, err: bool = False, document: bool = False) -> None:
    """Print a line.

    Args:
        text: The line. A line break in it is shown as such, unless `block` made it.
        err: To standard error. A message there has nowhere to go when the reader has gone; the work goes on.
        document: Whether the text is a file of several lines whose makers have looked after its names.
    """
    keep = "\n\t" if document else "\t"
    ours = (
        "\x1b".join(printable(part, keep=keep) for part in line.split(_ESCAPE)) for line in text.split(_BREAK)
    )
    with contextlib.suppress(OSError) if err else contextlib.nullcontext():
        click.echo(
            "\n".join(ours), file=sys.stderr if err else sys.stdout
        )  # click's own would turn ASCII to UTF-8


def console() -> Console:
    """Rich on standard error, for tables and bars that move: cells are text, never markup."""
    from rich import console as rich_console
    from rich.text import Text

    class TextConsole(rich_console.Console):
        def render_str(self, text: str, **how: Any) -> Text:
            how.update(markup=False, emoji=False, highlight=False)
            return super().render_str(printable(text, keep="\n"), **how)

    return TextConsole(stderr=True)


def survive_any_terminal() -> None:
    """Print what an encoding cannot hold as escapes, and let a reader that has gone lose nothing.

    An ASCII terminal (``PYTHONIOENCODING=ascii``) cannot show "°C"; a result is not lost over that.
    """
    threading.excepthook = _thread_failed
    plain = warnings.formatwarning
    warnings.formatwarning = lambda *args, **named: printable(plain(*args, **named), keep="\n")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # It was closed before the start. The next file that is opened would have its number, and what a
            # library prints would go there. What cannot be written to fails as a closed one should.
            os.dup2(os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY), number)
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w"))
        elif hasattr(stream := getattr(sys, name), "reconfigure") and name != "stdin":
            stream.reconfigure(errors="backslashreplace")


def _thread_failed(failure: threading.ExceptHookArgs) -> None:
    """A traceback of a thread, which Python would print as it is."""
    trace = traceback.format_exception(failure.exc_type, failure.exc_value, failure.exc_traceback)
    echo("".join(trace).rstrip("\n"), err=True, document=True)


def is_from_printing(error: BaseException) -> bool:
    """Whether standard output did not take what was printed: a full disk, or a reader that has gone.

    All that is printed passes click's function, help texts too.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return isinstance(error, OSError) and bool(frames) and frames[-1].f_code is click.echo.__code__


def forget_output() -> None:
    """After that: Python would complain once more when it flushes at the end."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
