"""``joulefleet traces``: read foreign usage traces, check them, look at them, prepare them for replay."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.frame import Group, Output

if TYPE_CHECKING:
    from traces import InteractionTrace, TraceSet
    from traces.synth import UsageModel


_folder = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
_out = click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="New folder; never overwritten."
)


@click.group("traces", cls=Group)
def traces() -> None:
    """Interaction traces: import, validate, look at, prepare for replay."""


def _pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    if wrong := [name for name, sign, _ in pairs if not (name and sign)]:
        raise click.BadParameter(f"{wrong[0]!r} is not of the form NAME=VALUE", ctx, param)
    return {name.strip(): value for name, _, value in pairs}


@traces.command("import")
@click.argument("format_name", metavar="FORMAT")
@click.argument("source", metavar="SRC", type=click.Path(path_type=Path, exists=True))
@_out
@click.option("--time-zone", default="", help="IANA name of the users' zone, e.g. America/Chicago.")
@click.option("--map", "column_map", multiple=True, callback=_pairs, metavar="FIELD=COLUMN",
              help="Name of a field in the source; may be repeated.")  # fmt: skip
@click.option("--set", "settings", multiple=True, callback=_pairs, metavar="NAME=VALUE",
              help="A setting of the format; may be repeated.")  # fmt: skip
@click.option("--max-bad-rows", default=100, show_default=True, type=click.IntRange(min=0),
              help="Fail when more rows than this cannot be read.")  # fmt: skip
def import_command(
    format_name: str,
    source: Path,
    out: Path,
    time_zone: str,
    column_map: dict[str, str],
    settings: dict[str, str],
    max_bad_rows: int,
) -> Output:
    """Read traces of a FORMAT (see `joulefleet traces formats`) and store them as a trace set."""
    from harness.cli.progress import progress
    from harness.cli.traces.view import summary_lines
    from traces import ReaderOptions, import_traces, source_bytes

    options = ReaderOptions(time_zone, column_map, settings, max_bad_rows)
    with progress(f"reading {source.name}", source_bytes(source)) as advance:
        made = import_traces(format_name, source, out, options, on_progress=advance)
    return Output(_summary(made), summary_lines(made))


@traces.command("formats")
def formats() -> Output:
    """List the formats that can be imported."""
    from traces.readers import READERS

    entries = READERS.entries()
    data = {e.name: {"summary": e.summary, "source": e.source} for e in entries.values()}
    return Output(data, [f"{e.name:<14} {e.summary}  ({e.source})" for e in entries.values()])


@traces.command("validate")
@_folder
@click.option("--repair", "repaired", metavar="OUT", type=click.Path(path_type=Path), default=None,
              help="Write a repaired copy into this new folder.")  # fmt: skip
def validate(folder: Path, repaired: Path | None) -> Output:
    """Check every trace of a set; exit code 6 if replay would refuse one."""
    from harness.cli.progress import progress
    from harness.cli.traces.view import finding_lines, repair_lines
    from joulefleet.errors import EXIT_DATA_QUALITY, EXIT_OK
    from traces import TraceSet, repair_set, validate_set

    found = TraceSet(folder)
    changed = found.verify()
    with progress("validating", len(found)) as advance:
        counts = validate_set(found, advance)
    data: dict[str, Any] = {**counts.as_dict(), "changed_tables": changed}
    result = None
    if repaired is not None:
        with progress("repairing", len(found)) as advance:
            result = repair_set(found, repaired, advance)
        data["repairs"] = [change.model_dump() for change in result.repairs]
        data["left"] = result.left.as_dict()
    left = counts if result is None else result.left
    lines = finding_lines(counts, changed)
    if result is not None:
        lines += repair_lines(result.repairs, result.left)
    return Output(data, lines, EXIT_DATA_QUALITY if left.users_with_errors or changed else EXIT_OK)


@traces.command("stats")
@_folder
@click.option("--policy", default=None, help="What counts as available, e.g. 'charging and wifi and idle'.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), default=None,
              help="Also write a page with plots; never overwritten.")  # fmt: skip
def stats(folder: Path, policy: str | None, html: Path | None) -> Output:
    """Sessions per day, session length, screen, charging and availability by hour."""
    from harness.cli.progress import progress
    from harness.cli.traces.view import stats_lines
    from harness.report.traces_page import stats_page
    from traces import TraceSet
    from traces.replay import parse_policy, policy_text
    from traces.stats import TraceStats

    found = TraceSet(folder)
    collected = TraceStats(policy_text(parse_policy(policy)) if policy else "")
    with progress("counting", len(found)) as advance:
        for number, trace in enumerate(found, 1):
            collected.add(trace)
            advance(number)
    data = collected.as_dict()
    if html is not None:
        data["html"] = str(stats_page(found, collected).write(html))
    page = [] if html is None else [f"page: {html}"]
    return Output(data, [*stats_lines(collected), *page])


@traces.command("show")
@_folder
@click.option("--users", "most", default=20, show_default=True, type=click.IntRange(min=0),
              help="How many users to list.")  # fmt: skip
def show(folder: Path, most: int) -> Output:
    """What a trace set holds, where it came from, and its first users."""
    from itertools import islice

    from harness.cli.traces.view import summary_lines, user_table
    from traces import TraceSet

    found = TraceSet(folder)
    users = [_about(trace) for trace in islice(found, most)]
    return Output({**_summary(found), "first_users": users}, [*summary_lines(found), user_table(users)])


@traces.command("flatten")
@_folder
@_out
@click.option("--intensity", type=click.Path(path_type=Path, dir_okay=False), default=None,
              help="Your own table of app intensities (TOML).")  # fmt: skip
def flatten(folder: Path, out: Path, intensity: Path | None) -> Output:
    """Bring a trace set into the memory-mapped form that replay uses."""
    from traces import TraceSet, write_flat
    from traces.replay import load_table

    found = TraceSet(folder)
    table = load_table(intensity)
    flat = write_flat(
        found,
        out,
        table=table,
        trace_set_sha256=found.record.sha256(),
        provenance=found.record.provenance,
    )
    data = {"users": len(flat), "steps": len(flat.state), "apps": len(flat.apps), "intensity": table.name}
    text = f"{len(flat):,} users, {len(flat.state):,} steps in {out}"
    return Output(data, text)


@traces.command("merge")
@click.argument("usage", metavar="USAGE", type=click.Path(path_type=Path, file_okay=False))
@click.argument("network", metavar="NETWORK")
@_out
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0),
              help="Decides whom which recording is given.")  # fmt: skip
def merge(usage: Path, network: str, out: Path, seed: int) -> Output:
    """Give the users of a set throughput from another one (a folder, or 'synthetic').

    What `[fleet.network]` of a scenario does, as a set on disk; replay it with `network = "trace"`.
    """
    from harness.cli.progress import progress
    from harness.cli.traces.view import summary_lines
    from traces import TraceSet
    from traces.merge import merge_traces, network_recordings

    found = TraceSet(usage)
    recordings = network_recordings(network)
    with progress("merging", len(found)) as advance:
        made = merge_traces(found, recordings, out, seed=seed, on_progress=advance)
    data = {**_summary(made), "network_recordings": len(recordings.flat), "seed": seed}
    return Output(data, summary_lines(made))


@traces.command("export")
@_folder
@_out
def export(folder: Path, out: Path) -> Output:
    """Write a trace set as CSV, in the generic format; cells that look like formulas are made text."""
    from traces import TraceSet, export_csv

    found = TraceSet(folder)
    counts = export_csv(found, out, found.record.provenance)
    return Output(counts, [f"{out / name}: {rows:,} rows" for name, rows in counts.items()])


def _about(trace: InteractionTrace) -> dict[str, Any]:
    from traces.quality import interval_channels, point_channels

    channels = [name for name, _ in interval_channels(trace) if "." not in name and name != "coverage"]
    return {
        "user": trace.user,
        "days": trace.span_ns / 86_400e9,
        "time_zone": trace.time_zone,
        "device": trace.device,
        "channels": channels + [name for name, _ in point_channels(trace)],
    }


def _summary(found: TraceSet) -> dict[str, Any]:
    record = found.record.model_dump(mode="json")
    return {"path": str(found.path), **record, "sha256": found.record.sha256()}


@traces.command("synth")
@click.option("--users", required=True, type=click.IntRange(min=1), help="How many people to generate.")
@click.option("--days", default=7, show_default=True, type=click.IntRange(1, 3650), help="For how long.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0),
              help="The same seed gives the same people, however many.")  # fmt: skip
@click.option("--model", "model_name", default="default", show_default=True, metavar="NAME|FILE",
              help="'default', 'availability' (from FLASH), or a file of `traces fit`.")  # fmt: skip
@_out
def synth(users: int, days: int, seed: int, model_name: str, out: Path) -> Output:
    """Generate traces of people who never existed but behave like those a model was fitted on."""
    from harness.cli.progress import progress
    from harness.cli.traces.view import summary_lines
    from traces import synthesise
    from traces.synth import load_model

    model = load_model(model_name)
    with progress("generating", users) as advance:
        made = synthesise(model, out, users=users, days=days, seed=seed, on_progress=advance)
    data = {"path": str(made.path), **made.record.model_dump(mode="json"), "model": _about_model(model)}
    return Output(data, summary_lines(made))


@traces.command("fit")
@_folder
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
    return Output({"path": str(out), **_about_model(model)}, _model_lines(out, model))


def _about_model(model: UsageModel) -> dict[str, Any]:
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


def _model_lines(out: Path, model: UsageModel) -> list[str]:
    lines = [f"{out}: usage model {model.name} ({model.sha256()[:12]})"]
    for process in model.processes:
        given = f" given {process.given}" if process.given else ""
        seen = process.evidence
        people = f"{seen.users} people ({seen.origin.value}), {seen.user_days:.0f} days"
        lines.append(f"  {process.channel}{given}: {people}, {len(process.classes)} classes")
    lines += [f"  battery: {model.battery.evidence.users} people"] if model.battery is not None else []
    lines += [f"  apps: {model.apps.evidence.origin.value}"] if model.apps is not None else []
    return lines
