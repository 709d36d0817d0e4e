"""``joulefleet probing fidelity``: how well profiles of an earlier run predict federated rounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.frame import Command, Output, columns, run_argument
from joulefleet.printable import csv_text

if TYPE_CHECKING:
    from harness.probing.fidelity_model import ComparedWork, Distribution, PredictionFidelity

ROUNDS, PARTS = "rounds", "parts"
CALM = ", host not contended"
TARGET_MEDIAN, TARGET_P95 = 0.05, 0.15
"""What a prediction is held to: per device and per round, time and energy."""

_profile = click.Path(path_type=Path, exists=True)


@click.command("fidelity", cls=Command)
@run_argument
@click.option("--profiles", "places", type=_profile, multiple=True, required=True,
              help="Profile files of an earlier run, or its folder; may be repeated.")  # fmt: skip
@click.option("--energy", type=click.Choice(["marginal", "net", "gross"]),
              help="Kind of energy; by default what the scenario charges.")  # fmt: skip
@click.option("--csv", "table", type=click.Path(path_type=Path, dir_okay=False),
              help="Write every stretch of work to this file.")  # fmt: skip
def fidelity(run: Path, places: tuple[Path, ...], energy: Any, table: Path | None) -> Output:
    """Predict the rounds of RUN (`joulefleet bench federate`) from profiles, and show the errors."""
    from harness.probing.fidelity import measure_fidelity
    from harness.profiles.library import profiles_at
    from joulefleet.errors import StorageError
    from joulefleet.files import write_atomic

    if table is not None and table.exists():  # before the work, whose result would be lost
        raise StorageError(f"{table}: exists already, not overwritten", hint="name another file")
    found = measure_fidelity(run, profiles_at(places), energy=energy)
    if table is not None:
        write_atomic(table, _csv(found).encode())
    return Output(_data(found), _lines(found))


def _groups(found: PredictionFidelity) -> Iterator[tuple[str, list[ComparedWork]]]:
    """What the errors are about, and the periods of work in it."""
    from harness.probing.fidelity_model import DEVICE, PHASES, ROUND

    for what, name in ((ROUND, ROUNDS), (DEVICE, PARTS)):
        yield name, found.select(what)
        yield f"{name}{CALM}", found.select(what, contended=False)
        yield f"{name}, host contended", found.select(what, contended=True)
        yield f"{name}, as profiled", found.select(what, changed=False)
        yield f"{name}, load or link set", found.select(what, changed=True)
    for device in sorted({one.device for one in found.compared if one.device}):
        yield f"device {device}", found.select(DEVICE, device=device)
    for phase in PHASES:
        yield f"phase {phase}", found.select(phase)


def _errors(stretches: list[ComparedWork]) -> dict[str, Distribution | None]:
    from harness.probing.fidelity_model import Distribution

    return {
        "time": Distribution.of([one.error_s for one in stretches]),
        "energy": Distribution.of([one.error_j for one in stretches]),
    }


def _meets(errors: Distribution | None) -> bool | None:
    return None if errors is None else errors.median <= TARGET_MEDIAN and errors.p95 <= TARGET_P95


def _data(found: PredictionFidelity) -> dict[str, Any]:
    groups = {name: _errors(stretches) for name, stretches in _groups(found)}
    return {
        "run": str(found.run),
        "origin": found.origin.value,
        "predicted_origin": found.predicted_origin.value,
        "energy": found.energy,
        "target": {"median": TARGET_MEDIAN, "p95": TARGET_P95},
        "reached": {
            name: {quantity: _meets(errors) for quantity, errors in groups[name].items()}
            for name in (ROUNDS, f"{ROUNDS}{CALM}", PARTS, f"{PARTS}{CALM}")
        },
        "errors": {
            name: {quantity: None if one is None else asdict(one) for quantity, one in errors.items()}
            for name, errors in groups.items()
        },
        "compared": [_finite(one.row()) for one in found.compared],
        "left_out": list(found.left_out),
        "notes": list(found.notes),
    }


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has no word for what is not a number."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


def _csv(found: PredictionFidelity) -> str:
    rows = [{**one.row(), "origin": found.origin.value} for one in found.compared]
    return csv_text(rows[0], (row.values() for row in rows))


def _lines(found: PredictionFidelity) -> list[str]:
    title = (
        f"{found.run.name}: measured [{found.origin.value}], predicted from profiles "
        f"[{found.predicted_origin.value}], {found.energy} energy"
    )
    right = ("n", "s: med", "p95", "bias", "J: med", "p95", "bias")
    groups = {name: _errors(stretches) for name, stretches in _groups(found) if stretches}
    rows = [
        [name, _count(errors), *_cells(errors["time"]), *_cells(errors["energy"])]
        for name, errors in groups.items()
    ]
    table = columns(("percent", *right), rows, right)
    left_out = [f"left out: {x}" for x in found.left_out]
    said = (*_verdicts(found), *_processor_time(found), *_remarks(), *found.notes, *left_out)
    return [title, table, *said]


def _count(errors: dict[str, Distribution | None]) -> str:
    """How many stretches the numbers rest on; one without energy has no error of it."""
    counts = dict.fromkeys(0 if one is None else one.n for one in errors.values())
    return "/".join(map(str, counts))


def _cells(errors: Distribution | None) -> list[str]:
    if errors is None:
        return ["-"] * 3
    return [f"{100 * errors.median:.1f}", f"{100 * errors.p95:.1f}", f"{100 * errors.bias:+.1f}"]


def _verdicts(found: PredictionFidelity) -> Iterator[str]:
    target = f"median at most {TARGET_MEDIAN:.0%}, 95th percentile at most {TARGET_P95:.0%}"
    for name, quantities in _data(found)["reached"].items():
        for quantity, reached in quantities.items():
            said = "nothing to tell" if reached is None else "reached" if reached else "not reached"
            yield f"{quantity} of {name}: {target}: {said} [{found.origin.value}]"


def _processor_time(found: PredictionFidelity) -> Iterator[str]:
    """Tells an epoch that was more work from one that got less of its processor."""
    from harness.probing.fidelity_model import DEVICE, Distribution

    errors = Distribution.of([one.error_cpu_s for one in found.select(DEVICE)])
    if errors is not None:
        med, p95, bias = _cells(errors)
        yield f"processor time of epochs: median error {med} %, 95th percentile {p95} %, bias {bias} %"
        yield "where it is predicted well and time is not, devices had less of their processors than before"


def _remarks() -> list[str]:
    from harness.probing.fidelity_model import IDLE_BELOW, STEAL_ABOVE

    limits = f"idle for less than {IDLE_BELOW:.0%} or stolen for more than {STEAL_ABOVE:.0%} of the time"
    return [
        "error: (predicted - measured) / measured; its size in the median (med) and 95th percentile (p95)",
        "bias: the median error with its sign; above zero too much was predicted",
        f"contended: the host's processors were {limits}",
        "rounds: R_T and R_E under honest accounting; waiting for the choice is in neither",
        "parts: all that one device did in one round, from the download to the upload",
    ]
