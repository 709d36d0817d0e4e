"""``joulefleet lab``: the runs of this machine in a browser."""

from __future__ import annotations

import contextlib
import socket
import webbrowser
from collections.abc import Iterator
from pathlib import Path

import click

from harness.cli.frame import Command, Output
from harness.cli.terminal import echo
from joulefleet.errors import ConfigError
from joulefleet.files import cache_folder, write_atomic
from joulefleet.install_hint import install_hint


@click.command("lab", cls=Command)
@click.option(
    "--root", "roots", multiple=True, type=click.Path(path_type=Path, file_okay=False),
    help="A folder of runs; may be repeated.  [default: runs, emulations, experiments]",
)  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Else a free one.")
@click.option("--open/--no-open", "opens", default=True, help="Whether to open a browser.")
def lab(roots: tuple[Path, ...], port: int, opens: bool) -> Output:
    """Show runs in a browser, also while they are going on, and take notes about them.

    For this machine only; Ctrl-C ends it, and no run.
    """
    try:
        import uvicorn

        from harness.lab.server import Lab, make_app
    except ImportError as error:
        raise ConfigError(f"{error.name} is not installed", hint=install_hint("lab")) from error
    from harness.lab.folders import Folders

    shown = Lab(Folders(roots or (Path("runs"), Path("emulations"), Path("experiments"))))
    with socket.socket() as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(("127.0.0.1", port))
        door.listen()  # whoever reads the address may come at once
        port = door.getsockname()[1]
        address = f"http://127.0.0.1:{port}/{shown.token}/"
        echo(address)
        echo("for this machine only; whoever has the address sees the runs. Ctrl-C ends it.", err=True)
        config = uvicorn.Config(
            make_app(shown, port), log_level="error", access_log=False, timeout_graceful_shutdown=1
        )
        with _opened(address) if opens else contextlib.nullcontext():
            uvicorn.Server(config).run(sockets=[door])
    return Output({"address": address}, "ended")


@contextlib.contextmanager
def _opened(address: str) -> Iterator[None]:
    """Have a browser go there by a file of the user's: a program's arguments can be read by everybody."""
    file = cache_folder() / "lab.html"  # always this: what a killed one left is replaced
    page = f'<meta http-equiv="refresh" content="0; url={address}"><a href="{address}">joulefleet lab</a>\n'
    write_atomic(file, page.encode(), replace=True, mode=0o600)
    try:
        webbrowser.open(file.as_uri())
        yield
    finally:
        file.unlink(missing_ok=True)
