"""``joulefleet traces synth`` and ``traces fit``: generate traces, and fit what they are generated from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.frame import Command, Output

if TYPE_CHECKING:
    from traces.synth import UsageModel


@click.command("synth", cls=Command)
@click.option("--users", required=True, type=click.IntRange(min=1), help="How many people to generate.")
@click.option("--days", default=7, show_default=True, type=click.IntRange(1, 3650), help="For how long.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0),
              help="The same seed gives the same people, however many.")  # fmt: skip
@click.option("--model", "model_name", default="default", show_default=True, metavar="NAME|FILE",
              help="'default', 'availability' (from FLASH), or a file of `traces fit`.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), required=True, help="New folder; never overwritten.")
def synth(users: int, days: int, seed: int, model_name: str, out: Path) -> Output:
    """Generate traces of people who never existed but behave like those a model was fitted on."""
    from harness.cli.progress import progress
    from harness.cli.traces.view import summary_lines
    from traces import synthesise
    from traces.synth import load_model

    model = load_model(model_name)
    with progress("generating", users) as advance:
        made = synthesise(model, out, users=users, days=days, seed=seed, on_progress=advance)
    data = {"path": str(made.path), **made.record.model_dump(mode="json"), "model": _about(model)}
    return Output(data, summary_lines(made))


@click.command("fit", cls=Command)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True,
              help="The model (JSON); never overwritten.")  # fmt: skip
@click.option("--name", default=None, help="Of the model; by default that of the folder.")
@click.option("--bridge-h", default=0.0, show_default=True, type=click.FloatRange(min=0),
              help="Gaps of the recorder up to this many hours are bridged.")  # fmt: skip
def fit(folder: Path, out: Path, name: str | None, bridge_h: float) -> Output:
    """Fit a usage model on a trace set, for `traces synth --model`."""
    from joulefleet.provenance import Origin
    from joulefleet.records import write_record
    from traces import TraceSet
    from traces.synth import TraceOrigin, fit_set

    found = TraceSet(folder)
    # A set that is not generated was read from somewhere; a model cannot claim more than that.
    generated = found.record.provenance.origin is Origin.EMULATED
    origin: TraceOrigin = Origin.EMULATED if generated else Origin.IMPORTED
    model = fit_set(lambda: iter(found), name or folder.resolve().name, origin=origin, bridge_h=bridge_h)
    write_record(out, model)
    return Output({"path": str(out), **_about(model)}, _lines(out, model))


def _about(model: UsageModel) -> dict[str, Any]:
    return {
        "name": model.name,
        "sha256": model.sha256(),
        "channels": {
            process.channel: {
                "given": process.given,
                "classes": len(process.classes),
                "evidence": process.evidence.model_dump(mode="json"),
            }
            for process in model.processes
        },
        "battery": model.battery is not None,
        "apps": None if model.apps is None else model.apps.evidence.origin.value,
    }


def _lines(out: Path, model: UsageModel) -> list[str]:
    lines = [f"{out}: usage model {model.name} ({model.sha256()[:12]})"]
    for process in model.processes:
        given = f" given {process.given}" if process.given else ""
        seen = process.evidence
        people = f"{seen.users} people ({seen.origin.value}), {seen.user_days:.0f} days"
        lines.append(f"  {process.channel}{given}: {people}, {len(process.classes)} classes")
    lines += [f"  battery: {model.battery.evidence.users} people"] if model.battery is not None else []
    lines += [f"  apps: {model.apps.evidence.origin.value}"] if model.apps is not None else []
    return lines
