"""What rounds of one M and K took, row by row: measured, by the formula, by the emulator, to be shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from harness.probing.validation import MeasuredCell
from joulefleet.interval import Interval, Scale
from power.profile import EnergyKind

Source = Literal["bench", "formula", "emulator"]
VANILLA = "vanilla"


@dataclass(frozen=True, slots=True)
class CostRow:
    """What a round took, counted in one way by one source.

    Attributes:
        counted: `VANILLA` or an accounting.
        time_saved: Share of the vanilla round; None of the vanilla round itself.
        energy_saved: The same.
        wait_j: Of all candidates for the choice, in the first row of a source that knows it.
    """

    counted: str
    source: Source
    time_s: Interval
    energy_j: Interval
    time_saved: Interval | None = None
    energy_saved: Interval | None = None
    wait_j: float | None = field(default=None, kw_only=True)


def cost_rows(cell: MeasuredCell, energy: EnergyKind) -> Iterator[CostRow]:
    """The vanilla round, then every accounting; each as measured, and below it as it was predicted."""
    formula, emulator = cell.predicted, cell.emulated
    # What is net of idle is a difference, and may be measured as negative.
    scale = Scale.LOG if energy == "gross" else Scale.LINEAR
    yield CostRow(VANILLA, "bench", cell.vanilla_s.on(Scale.LOG), cell.vanilla_j.on(scale))
    if formula is not None:
        wait_j = formula.vanilla_wait_j.mean
        yield CostRow(VANILLA, "formula", formula.vanilla_s, formula.vanilla_j, wait_j=wait_j)
    if emulator is not None:
        yield CostRow(VANILLA, "emulator", Interval(emulator.vanilla_s), Interval(emulator.vanilla_j))
    for i, (accounting, saving) in enumerate(cell.savings.items()):
        wait = None if i else cell.probing_wait_j.mean
        found = (
            saving.time_s.on(Scale.LOG),
            saving.energy_j.on(scale),
            saving.time_saved.on(Scale.SAVED),
            saving.energy_saved.on(Scale.SAVED),
        )
        yield CostRow(accounting.value, "bench", *found, wait_j=wait)
        if formula is not None:
            by = formula.savings[accounting]
            wait = None if i else formula.probing_wait_j.mean
            shares = by.time_saved, by.energy_saved
            yield CostRow(accounting.value, "formula", by.time_s, by.energy_j, *shares, wait_j=wait)
        if emulator is not None:
            own = emulator.savings[accounting]
            values = (own.time_s, own.energy_j, own.time_saved, own.energy_saved)
            yield CostRow(accounting.value, "emulator", *map(Interval, values))
