"""The ``joulefleet`` command. Commands are imported when called: ``--help`` stays instant."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import click

import joulefleet
from harness.cli.frame import LazyGroup, report_error
from harness.cli.terminal import survive_any_terminal

# Pydantic looks through all installed packages for plugins of its own: 15 ms of every command for nothing.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")

READY = {
    "bench": ("harness.cli.bench.commands:bench", "Devices and plans on the bench: ping, run, status."),
    "compare": ("harness.cli.compare:compare", "Compare emulation runs, paired by seed."),
    "demo": ("harness.cli.demo:demo", "The whole tool end to end, here and now, without hardware."),
    "doctor": ("harness.cli.doctor:doctor", "Check this machine: what works, why not, how to fix it."),
    "emulate": ("harness.cli.emulate:emulate", "Replay profiles and traces for a fleet and a selector."),
    "experiment": (
        "harness.cli.experiment:experiment",
        "The paper's table and figures, one command each.",
    ),
    "export": (
        "harness.cli.export:export",
        "Write a run as CSV, Parquet or JUnit, for Perfetto, TensorBoard or MLflow.",
    ),
    "figures": ("harness.cli.export:figures", "The figures of a run as SVG and PDF, for a paper."),
    "lab": ("harness.cli.lab:lab", "Runs in a browser, live, for this machine only."),
    "list": ("harness.cli.list:list_group", "Show what can be named: meters, selectors, scenarios..."),
    "meter": ("harness.cli.meter.commands:meter", "Power meters: find, record, emulate, test."),
    "policy": ("harness.cli.policy:policy", "Train and inspect learned selectors."),
    "probing": ("harness.cli.probing.commands:probing", "What stopping after the first epoch saves."),
    "profile": ("harness.cli.profile.commands:profile", "Device profiles: build, show, scale, import."),
    "report": ("harness.cli.export:report", "Make or open the HTML page of a run."),
    "runs": ("harness.cli.runs:runs", "Stored runs: list, show, salvage."),
    "traces": ("harness.cli.traces.commands:traces", "Interaction traces: import, validate, synthesise."),
}

cli = LazyGroup(
    name="joulefleet",
    help="Measure what federated learning costs on real devices, and replay it at scale.",
    ready=READY,
)
click.version_option(joulefleet.__version__, prog_name="joulefleet")(cli)


def main(argv: list[str] | None = None) -> NoReturn:
    """Run the command line and exit with the code of ``joulefleet.errors``."""
    survive_any_terminal()
    arguments = sys.argv[1:] if argv is None else argv
    sys.exit(run(arguments))


def run(arguments: list[str]) -> int:
    """Run the command line and return its exit code; no error escapes."""
    try:
        _check_origin()
        result = cli.main(arguments, prog_name="joulefleet", standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:
        return report_error(error, arguments)
    return result if isinstance(result, int) else 0


def _check_origin() -> None:
    from joulefleet.errors import ConfigError
    from joulefleet.shadowing import shadowed_packages

    shadowed = shadowed_packages()
    if shadowed:
        name, place = next(iter(shadowed.items()))
        raise ConfigError(
            f"package {name!r} would be imported from {place}, which is not joulefleet's",
            hint=f"uninstall the other package called {name!r}, or use a virtual environment of its own",
        )
