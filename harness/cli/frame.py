"""What every command shares: lazy loading, ``--json``, ``-v``, one way to print and one way to fail.

A command is a function that returns an `Output`::

    @runs.command("list", cls=Command)
    def list_runs() -> Output:
        return Output({...}, ["a line", ...])

``--json`` prints the data; otherwise the lines talk to the person. Errors are raised, never printed.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import traceback
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from harness.cli.terminal import block, echo, forget_output, is_from_printing
from joulefleet.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, JoulefleetError
from joulefleet.printable import PrintableFormatter, printable

LARGEST_SHARE = 10.0
"""Of what is said in percent: 1000 % is a typing error."""

Callback = TypeVar("Callback", bound=Callable[..., Any])


class Document(str):
    """A text of several lines, whose maker has looked after the names in it; printed as it is."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Output:
    """What a command has to say.

    Attributes:
        data: For ``--json``: plain data, or a function that makes it.
        text: For people: a line, several, or a `Document`; the data if None.
        exit_code: Of the process; a code other than 0 for "worked, and the answer is no".
        warnings: For people, beside a text that is meant for a file and has no place for them.
    """

    data: Any
    text: str | list[str] | None = None
    exit_code: int = 0
    warnings: Sequence[str] = ()


class Command(click.Command):
    """A command with ``--json`` and ``-v`` that prints the `Output` its function returns."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Read by `run` and `report_error` from the context and the arguments, not by the function.
        self.params += [
            _flag(["--json", "as_json"], "Print JSON."),
            _flag(["-v", "--verbose"], "Show tracebacks and log messages."),
        ]

    def invoke(self, ctx: click.Context) -> int:
        """Run the function and print what it returns."""
        _start_logging(verbose=bool(ctx.meta.get("verbose")))
        # The user's own code may print; what is on standard output is the command's, and may be JSON.
        runs_code = any(param.name == "code" for param in self.params)
        with contextlib.redirect_stdout(sys.stderr) if runs_code else contextlib.nullcontext():
            output: Output = super().invoke(ctx)
        if ctx.meta.get("as_json"):
            data = output.data() if callable(output.data) else output.data
            echo(json.dumps(data, indent=2, default=str, allow_nan=False), document=True)
        elif output.text is None:
            echo(json.dumps(output.data, indent=2, default=str), document=True)
        else:
            for line in [output.text] if isinstance(output.text, str) else output.text:
                echo(line, document=isinstance(line, Document))
            for warning in output.warnings:
                echo(f"warning: {warning}", err=True)
        return output.exit_code


def _start_logging(*, verbose: bool) -> None:
    """Warnings to standard error, with ``-v`` more; Python's own way would print them as they come."""
    import logging

    handler = logging.StreamHandler()
    handler.setFormatter(
        PrintableFormatter("%(levelname)s %(name)s: %(message)s" if verbose else "%(message)s")
    )
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])


def root_option(
    text: str = "Folder that holds the runs.", folder: Path = Path("runs")
) -> Callable[[Callback], Callback]:
    """``--root``: where runs are, or where a new one goes."""
    kind = click.Path(path_type=Path, file_okay=False)
    return click.option("--root", type=kind, default=folder, show_default=True, help=text)


def run_argument(command: Callback) -> Callback:
    """RUN and ``--root``: the command is given the run's folder as ``run``."""

    @root_option()
    @click.argument("run")
    @functools.wraps(command)
    def with_run(root: Path, run: str, **rest: Any) -> Any:
        from joulefleet.runstore import find_run

        return command(run=find_run(root, run), **rest)

    return cast("Callback", with_run)


def inventory_option(text: str = "File that lists the devices.") -> Callable[[Callback], Callback]:
    """``--inventory``: the devices."""
    kind = click.Path(path_type=Path, dir_okay=False)
    default = Path("devices.toml")
    return click.option("--inventory", type=kind, default=default, show_default=True, help=text)


def share(text: str) -> float:
    """``5%`` or ``0.05``, as a type of options."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither 5% nor 0.05") from None
    if value >= 1 and not text.endswith("%"):  # a gate of 500 % lets everything through
        raise click.BadParameter(f"{text!r} would be {value:.0%}: write {text}% if you mean that little")
    if not 0 <= value < LARGEST_SHARE:
        raise click.BadParameter(f"{text!r} is no share from 0 to {LARGEST_SHARE:.0%}")
    return value


def _flag(names: list[str], text: str) -> click.Option:
    return click.Option(names, is_flag=True, expose_value=False, help=text, callback=_keep)


def _keep(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    ctx.meta[str(param.name)] = value
    return value


class Group(click.Group):
    """A group of `Command`s."""

    command_class = Command


class LazyGroup(click.Group):
    """The top level: knows each command's name and summary, imports it only when it is called.

    Args:
        ready: Name to ``(module:attribute, summary)``.
    """

    def __init__(self, *, ready: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.ready = ready

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every name."""
        return sorted(self.ready)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command that is called."""
        if cmd_name not in self.ready:
            return None
        module, _, attribute = self.ready[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's, with a suggestion for a misspelt name."""
        import difflib

        name = args[0]
        if name not in self.list_commands(ctx) and not name.startswith("-"):
            near = difflib.get_close_matches(name, self.list_commands(ctx), n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"no command {name!r}.{hint} `joulefleet --help` lists them.", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Names and summaries, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in sorted(self.ready.items())])


def columns(headers: Sequence[str], rows: Iterable[Sequence[str]], right: Container[str] = ()) -> str:
    """A table as text. No console makes it: one takes 50 ms to load, and cuts what is wider than a screen.

    Args:
        headers: Of the columns.
        rows: Their cells.
        right: Headers of columns that are aligned to the right.
    """
    table = [headers, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    sides = [">" if header in right else "<" for header in headers]
    form = "  ".join(f"{{:{side}{width}}}" for side, width in zip(sides, widths, strict=True))
    return block(form.format(*row).rstrip() for row in table)


def report_error(error: BaseException, arguments: list[str]) -> int:
    """Say what went wrong in one sentence and what to try; return the exit code."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    lost = isinstance(error, BrokenPipeError) or is_from_printing(error)
    if lost:
        forget_output()
    verbose = any(a in ("-v", "--verbose") for a in arguments)
    kind, message, hint, code = _unprinted(error) if lost else _describe(error)
    if verbose:
        echo("".join(traceback.format_exception(error)).rstrip("\n"), err=True, document=True)
    if "--json" in arguments and not lost:
        body = {"error": {"type": kind, "message": message, "hint": hint, "exit_code": code}}
        with contextlib.suppress(OSError):
            echo(json.dumps(body, indent=2), document=True)
    else:
        echo(f"joulefleet: {message}", err=True)
        if hint:
            echo(f"  try: {hint}", err=True)
    return code


def _unprinted(error: BaseException) -> tuple[str, str, str, int]:
    """The same for an answer that standard output did not take."""
    if isinstance(error, BrokenPipeError):
        return type(error).__name__, "the reader of our output went away", "", EXIT_FAILED
    why = getattr(error, "strerror", None) or str(error)
    hint = "what was stored is whole: send the output elsewhere and ask for it again"
    return type(error).__name__, f"cannot print the answer: {why.lower()}", hint, EXIT_FAILED


def _describe(error: BaseException) -> tuple[str, str, str, int]:
    """An error as (type, sentence, hint, exit code)."""
    name = type(error).__name__
    if isinstance(error, JoulefleetError):
        return name, error.message, error.hint, error.exit_code
    if isinstance(error, click.exceptions.Abort | KeyboardInterrupt):
        # click makes an error of its own of Ctrl-C. The notes say how to go on, where there is a run.
        noted = (note for one in (error, error.__cause__) for note in getattr(one, "__notes__", ()))
        where = "; ".join(dict.fromkeys(noted))
        return "Interrupted", f"interrupted{': ' * bool(where)}{where}", "", EXIT_INTERRUPTED
    if isinstance(error, click.ClickException):
        place = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "joulefleet"
        hint = f"`{place} --help`" if isinstance(error, click.UsageError) else ""
        return name, error.format_message(), hint, EXIT_USAGE
    if isinstance(error, OSError) and error.errno is not None:
        from joulefleet.files import storage_error

        refused = storage_error(Path(str(error.filename or "a file")), error)
        return type(refused).__name__, refused.message, refused.hint, refused.exit_code
    return name, f"unexpected {name}: {error}", "run again with -v and report the traceback", EXIT_FAILED
