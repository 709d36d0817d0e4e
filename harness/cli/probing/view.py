"""How ``joulefleet probing validate`` shows what rounds take both ways: predicted, measured and replayed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from emulator import Accounting
from emulator.experiments import PAPER_SAVING
from harness.cli.frame import columns
from harness.cli.profile.view import digits
from harness.probing.cost_rows import cost_rows
from harness.probing.formula import COUNTED
from joulefleet.interval import ALIKE, Interval
from power.profile import EnergyKind, Quantity

if TYPE_CHECKING:
    from harness.probing.predict import PredictedCell, Prediction
    from harness.probing.validation import MeasuredCell, Validation

Row = list[str]

WAITING_PREDICTED = (
    "wait: for the slowest candidate before the server's choice, at awake power; in no other number"
)
WAITING_MEASURED = "wait: of all candidates for the server's choice after the probe; in no other number"


def prediction_data(found: Prediction, task: str) -> dict[str, Any]:
    """Plain data for ``--json``."""
    return {
        "task": task,
        "origin": found.origin.value,
        "profiles": found.profiles,
        "local_epochs": found.local_epochs,
        "energy": found.energy,
        "choose": found.rule,
        "cells": [asdict(cell) for cell in found.cells],
        **_about(found.notes),
    }


def validation_data(found: Validation) -> dict[str, Any]:
    """Plain data for ``--json``."""
    plan = found.plan
    return {
        "run": str(found.run),
        "origin": found.origin.value,
        "predicted_origin": found.predicted_origin.value if found.predicted_origin else None,
        "profiles_from": found.profiles_from,
        "task": plan.task,
        "backend": plan.backend,
        "local_epochs": plan.local_epochs,
        "keep": plan.keep,
        "energy": found.energy,
        "cells": [_plain(asdict(cell)) for cell in found.cells],
        "rounds": [asdict(line) for line in found.rounds],
        "planned": found.planned,
        "failed": found.failed,
        "failed_attempts": found.failed_attempts,
        **_about(found.notes),
    }


def _about(notes: Iterable[str]) -> dict[str, Any]:
    counted = {str(name): text for name, text in COUNTED.items()}
    return {"counted": counted, "paper": asdict(PAPER_SAVING), "notes": list(notes)}


def _plain(value: Any) -> Any:
    """Quantities as plain data, wherever they are."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return value.model_dump() if isinstance(value, Quantity) else value


def prediction_lines(found: Prediction, task: str) -> list[str]:
    """A table of all M and K, and what its numbers are."""
    title = (
        f"{task}, {found.local_epochs} local epochs, {found.energy} energy, {found.rule} choice, "
        f"from {found.profiles} profiles [{found.origin.value}]"
    )
    table = _table(row for cell in found.cells for row in _predicted_rows(cell))
    return [title, table, *_explained(WAITING_PREDICTED, found.notes)]


def validation_lines(found: Validation) -> list[str]:
    """The same of measured rounds, each accounting beside what formula and emulator say of these rounds."""
    plan = found.plan
    title = (
        f"{plan.task} with {plan.backend}, {plan.local_epochs} local epochs, {found.energy} energy, "
        f"{plan.keep} choice, on the bench [{found.origin.value}]"
    )
    lines = [title, _table(row for cell in found.cells for row in _measured_rows(cell, found.energy))]
    for cell in found.cells:
        honest = cell.savings[Accounting.HONEST]
        lines.append(
            f"M = {cell.candidates}, K = {cell.chosen}, honest: {_absolute(honest.saved_s)} s and "
            f"{_absolute(honest.saved_j)} J saved per round; n = {cell.repetitions}"
        )
    if found.predicted_origin is not None:
        lines.append(
            f"predicted [{found.predicted_origin.value}]: by the formula for the same rounds, from profiles "
            f"of {found.profiles_from}; emulator [{found.predicted_origin.value}]: the same rounds and "
            f"profiles, played by the emulator"
        )
    done = f"{len(found.rounds)} of {found.planned} rounds finished, {found.failed_attempts} attempts failed"
    failed = [f"round {name} is missing: {why}" for name, why in found.failed.items()]
    return [*lines, *_explained(WAITING_MEASURED, [*found.notes, done, *failed])]


def _table(rows: Iterable[Row]) -> str:
    right = ("M / K", "s", "J", "time saved %", "energy saved %", "wait J")
    return columns(("M / K", "counted", *right[1:]), rows, right)


def _explained(waiting: str, notes: Sequence[str]) -> list[str]:
    counted = [f"{name}: {text}" for name, text in COUNTED.items()]
    return [*counted, waiting, *notes, PAPER_SAVING.text, PAPER_SAVING.remark]


def _predicted_rows(cell: PredictedCell) -> Iterator[Row]:
    totals = [_mean(cell.vanilla_s), _mean(cell.vanilla_j)]
    yield [_pair(cell), "vanilla", *totals, "", "", _mean(cell.vanilla_wait_j)]
    for i, (accounting, saving) in enumerate(cell.savings.items()):
        totals = [_mean(saving.time_s), _mean(saving.energy_j)]
        shares = [_close_range(saving.time_saved), _close_range(saving.energy_saved)]
        yield ["", accounting.value, *totals, *shares, "" if i else _mean(cell.probing_wait_j)]


def _measured_rows(cell: MeasuredCell, energy: EnergyKind) -> Iterator[Row]:
    for i, row in enumerate(cost_rows(cell, energy)):
        name, share = {
            "bench": (row.counted, _share),
            "formula": ("  predicted", _range),
            "emulator": ("  emulator", _percent),
        }[row.source]
        shares = ["" if s is None else share(s) for s in (row.time_saved, row.energy_saved)]
        wait = "" if row.wait_j is None else digits(row.wait_j, 3)
        yield ["" if i else _pair(cell), name, _mean(row.time_s), _mean(row.energy_j), *shares, wait]


def _pair(cell: PredictedCell | MeasuredCell) -> str:
    return f"{cell.candidates} / {cell.chosen}"


def _mean(value: Interval | Quantity) -> str:
    return digits(value.mean, 3)


def _absolute(quantity: Quantity) -> str:
    if quantity.half_width_95 is None:
        return f"{_mean(quantity)} (no interval)"
    return f"{_mean(quantity)} ± {digits(quantity.half_width_95, 3)}"


def _percent(share: Interval) -> str:
    return f"{100 * share.mean:z.1f}"


def _share(share: Interval) -> str:
    """Percent with half of its interval; without one it says so."""
    if not share.known:
        return f"{_percent(share)} (no interval)"
    below, above = share.mean - share.low, share.high - share.mean
    if abs(above - below) <= ALIKE * (above + below) / 2:
        return f"{_percent(share)} ± {50 * (above + below):.1f}"
    return f"{_percent(share)} [{100 * share.low:z.1f}, {100 * share.high:z.1f}]"


def _range(share: Interval, places: int = 0) -> str:
    return f"{_percent(share)} ({100 * share.low:z.{places}f}–{100 * share.high:z.{places}f})"


def _close_range(interval: Interval) -> str:
    """The same, to full percents where that says enough."""
    return _range(interval, 0 if interval.high - interval.low >= 0.01 else 1)
