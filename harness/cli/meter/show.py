"""``joulefleet meter show``: what a recording holds, as energy and, if wanted, as CSV."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.frame import Command, Output
from joulefleet.errors import EXIT_DATA_QUALITY

if TYPE_CHECKING:
    from rich.console import Console


@click.command("show", cls=Command)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--from", "from_s", type=float, metavar="SECONDS", help="Begin here; else at the first sample.")
@click.option("--to", "to_s", type=float, metavar="SECONDS", help="End here; else at the last sample.")
@click.option(
    "--csv", type=click.Path(path_type=Path, dir_okay=False), help="Write the samples to this new file too."
)
def show(folder: Path, from_s: float | None, to_s: float | None, csv: Path | None) -> Output:
    """Show the energy, mean power and findings of a recording, or of a part of it.

    --from and --to count from its first sample. The exit code is 6 if the energy must not be used.
    """
    from power import write_samples_csv
    from power.energy import measure_energy
    from power.recording import open_recording

    recording = open_recording(folder)
    record = recording.record
    measured = measure_energy(recording, from_s, to_s)
    energy, budget, window = measured.energy, measured.budget, measured.window
    data: dict[str, Any] = {
        "folder": str(folder),
        "origin": record.provenance(folder.name).origin.value,
        "instrument": record.info.kind,
        "started_utc": record.started_utc,
        "duration_s": energy.duration_s,
        "n_samples": energy.n_samples,
        "lost_fraction": energy.lost_fraction if energy.loss_known else None,
        "energy_j": energy.energy_j,
        "energy_half_width_95_j": budget.half_width_j if budget else None,
        "mean_power_w": energy.mean_power_w,
        "charge_c": energy.charge_c,
        "problems": list(energy.problems),
        "notes": [*energy.notes, *(budget.notes if budget else ())],
        "findings": [finding.model_dump(mode="json") for finding in record.findings],
        "csv_rows": write_samples_csv(recording, csv, window.start_ns, window.end_ns) if csv else None,
    }
    return Output(data, lambda console: _render(console, data), 0 if energy.valid else EXIT_DATA_QUALITY)


def _render(console: Console, data: dict[str, Any]) -> None:
    lines = [f"{data['instrument']}, {data['started_utc']:%Y-%m-%d %H:%M:%S} UTC, {data['origin']}"]
    lost = "losses unknown" if data["lost_fraction"] is None else f"{data['lost_fraction']:.3%} lost"
    lines.append(f"{data['n_samples']:,} samples in {data['duration_s']:.3f} s ({lost})")
    if data["energy_j"] is not None:
        half_j = data["energy_half_width_95_j"]
        known = "" if half_j is None else f" ± {half_j:.2g} J (95 %)"
        lines.append(f"{data['energy_j']:.6g} J{known}, {data['mean_power_w']:.6g} W on average")
        lines.append(f"{data['charge_c']:.6g} C ({data['charge_c'] / 3.6:.6g} mAh)")
    lines += [f"not to be used: {problem}" for problem in data["problems"]]
    lines += [f"note: {note}" for note in data["notes"]]
    lines += [f"{found['severity']}: {found['code']}: {found['message']}" for found in data["findings"]]
    if data["csv_rows"] is not None:
        lines.append(f"{data['csv_rows']:,} rows of CSV written")
    for line in lines:
        console.print(line, markup=False, highlight=False)
