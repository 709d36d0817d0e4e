"""``joulefleet lab``: the runs of this machine in a browser."""

from __future__ import annotations

import socket
import webbrowser
from pathlib import Path

import click

from harness.cli.frame import Command, Output
from harness.cli.terminal import echo
from joulefleet.errors import ConfigError
from joulefleet.install_hint import install_hint


@click.command("lab", cls=Command)
@click.option(
    "--root", "roots", multiple=True, type=click.Path(path_type=Path, file_okay=False),
    help="A folder of runs; may be repeated.  [default: runs, emulations, experiments]",
)  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Else a free one.")
@click.option("--open/--no-open", "opens", default=True, help="Whether to open a browser.")
def lab(roots: tuple[Path, ...], port: int, opens: bool) -> Output:
    """Show runs in a browser, also while they are going on. For this machine only; Ctrl-C ends it."""
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
        port = door.getsockname()[1]
        address = f"http://127.0.0.1:{port}/{shown.token}/"
        echo(address)
        echo("for this machine only; whoever has the address sees the runs. Ctrl-C ends it.", err=True)
        if opens:
            webbrowser.open(address)
        config = uvicorn.Config(make_app(shown, port), log_level="error", access_log=False)
        uvicorn.Server(config).run(sockets=[door])
    return Output({"address": address}, "ended")
