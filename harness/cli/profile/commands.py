"""``joulefleet profile``: what devices need for training: build, show, list, export, import, scale."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.frame import Group, Output, root_option, share
from harness.cli.own_code import code_option, given

if TYPE_CHECKING:
    from harness.profiles.library import Stored
    from power.profile import StatedSpread

_root = root_option()


@click.group("profile", cls=Group)
def profile() -> None:
    """Device profiles: build, show, list, export, import, scale."""


@profile.command("build")
@_root
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option(
    "--between-sessions",
    "spread",
    type=share,
    metavar="SHARE",
    help="Standard deviation between sessions over the mean, such as 3%; for fewer than three sessions.",
)
@click.option("--source", help="Where that number comes from; profiles show it.")
@click.option(
    "--calibration",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Of the meter, instead of what its recordings say; gives further profiles, and changes none.",
)
@click.option("--device", default="", help="Whose meter that is, where the calibration fits several.")
def build(
    root: Path,
    runs: tuple[str, ...],
    spread: float | None,
    source: str | None,
    calibration: Path | None,
    device: str,
) -> Output:
    """Build the profiles of RUN from its captures; they are stored in the run.

    From several runs each profile rests on the captures of all. These, and profiles with a stated spread, go
    to a run of their own.
    """
    from harness.cli.profile.view import summary_text
    from harness.profiles.library import build_run_profiles
    from joulefleet.errors import EXIT_DATA_QUALITY
    from joulefleet.runstore import find_run
    from power.calibrate import load_calibration

    built = build_run_profiles(
        *(find_run(root, run) for run in runs),
        stated_spread=_stated(spread, source),
        calibration=None if calibration is None else load_calibration(calibration),
        device=device,
    )
    lines = [summary_text(built.profiles)] if built.profiles else []
    lines += [f"stored in {stored.place}" for stored in built.profiles]
    lines += [f"no profile of {problem}" for problem in built.problems]
    data = {"profiles": [_data(stored) for stored in built.profiles], "problems": list(built.problems)}
    return Output(data, lines, exit_code=EXIT_DATA_QUALITY if built.problems else 0)


def _stated(spread: float | None, source: str | None) -> StatedSpread | None:
    """``3%`` or ``0.03``, with its source."""
    from joulefleet.config import validate
    from power.profile import StatedSpread

    if spread is None and source is None:
        return None
    if spread is None or not source:
        raise click.UsageError(
            "--between-sessions and --source belong together: say where the number is from"
        )
    return validate({"relative_sd": spread, "source": source}, StatedSpread, name="--between-sessions")


@profile.command("list")
@_root
@click.option(
    "--reference/--no-reference", default=True, show_default=True, help="Show the reference fleet too."
)
@click.option("--task", help="Only this task, e.g. mnist-lenet5.")
def list_profiles(root: Path, reference: bool, task: str | None) -> Output:
    """List profiles: those in runs, and the reference fleet."""
    from harness.cli.profile.view import summary_text
    from harness.profiles.library import Stored, stored_profiles
    from power.reference import listed_phones, reference_facts, reference_fleet

    own = [stored for stored in stored_profiles(root) if task in (None, stored.profile.task)]
    lines = [summary_text(own) if own else f"no profiles in the runs of {root}"]
    if reference and task:
        lines.append(summary_text([Stored(found, None) for found in reference_fleet(task)]))
    elif reference:
        # Counted from the facts: making 272 profiles would take longer than all the rest.
        facts = reference_facts()
        tasks = ", ".join(found.name for found in facts.tasks)
        lines.append(f"reference fleet: {len(facts.phones)} phones [literature] for {tasks}")
        lines.append("  `joulefleet profile list --task mnist-lenet5` lists them")
        more = listed_phones().rows
        guessed = sum(phone.runs == 0 for phone in listed_phones().phones())
        lines.append(
            f"fleet ai-benchmark: {len(more)} more phones [literature], power of {guessed} interpolated"
        )

    def data() -> list[dict[str, Any]]:
        fleet = [Stored(found, None) for found in reference_fleet(task)] if reference else []
        return [{**_key(stored), "place": stored.place} for stored in [*own, *fleet]]

    return Output(data, lines)


@profile.command("show")
@_root
@click.argument("name")
def show(root: Path, name: str) -> Output:
    """Show one profile: NAME is a file, a label, or a part of one."""
    from harness.cli.profile.view import profile_lines
    from harness.profiles.library import find_profile

    stored = find_profile(name, root)
    return Output(_data(stored), profile_lines(stored))


@profile.command("history")
@_root
@click.argument("device")
@click.option("--task", help="Only this task, e.g. mnist-lenet5.")
@click.option("--quantity", "place", default="epoch.gross_j", show_default=True, metavar="NAME")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="An .html page with the plot.")
def history(root: Path, device: str, task: str | None, place: str, out: Path | None) -> Output:
    """What DEVICE needed in every run, oldest first."""
    from harness.cli.profile.view import history_text
    from harness.results.history import device_history

    rows = device_history(root, device, task=task, place=place)
    lines = [history_text(rows, place)]
    if out is not None:
        from harness.report.bench.history_page import write_history_page

        write_history_page(rows, place, out)
        lines.append(f"page: {out}")
    return Output([row.as_dict() for row in rows], lines)


@profile.command("export")
@_root
@click.argument("names", nargs=-1)
@click.option("--reference", "task", help="All reference phones for this task, e.g. mnist-lenet5.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="A .json, a .csv, or a folder.")
def export(root: Path, names: tuple[str, ...], task: str | None, out: Path) -> Output:
    """Write profiles as self-contained files; without NAMES, all that are in runs."""
    from harness.profiles.exchange import export_profiles
    from harness.profiles.library import find_profile, stored_profiles
    from joulefleet.errors import DataQualityError
    from power.reference import reference_fleet

    found = [find_profile(name, root).profile for name in names]
    if task is not None:
        found += reference_fleet(task)
    elif not names:
        found = [stored.profile for stored in stored_profiles(root)]
    if not found:
        raise DataQualityError(
            f"no profiles in the runs of {root}", hint="`joulefleet profile build RUN` makes them"
        )
    paths = export_profiles(found, out)
    return Output([str(path) for path in paths], f"{len(found)} profiles written to {out}")


@profile.command("import")
@_root
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False)
)
def import_(root: Path, files: tuple[Path, ...]) -> Output:
    """Take in profiles that were made elsewhere; whatever they claim, here they are imported or weaker."""
    from harness.cli.profile.view import summary_text
    from harness.profiles.exchange import import_profiles

    found = import_profiles(files, root)
    return Output([_data(stored) for stored in found], summary_text(found))


@profile.command("scale")
@_root
@click.argument("names", nargs=-1, required=True)
@click.option("--task", help="Predict this task on the same device, e.g. cifar10-resnet18.")
@code_option
@click.option("--samples", type=click.IntRange(1), help="Predict this number of samples per epoch.")
@click.option("--device", help="Predict this device; needs --score and --own-score.")
@click.option("--score", type=float, help="Benchmark score of that device; higher is faster.")
@click.option("--own-score", type=float, help="Score of the profile's own device in the same benchmark.")
@click.option("--power-ratio", type=float, help="Power of that device while training over the profile's.")
def scale(
    root: Path,
    names: tuple[str, ...],
    task: str | None,
    code: tuple[Path, ...],
    samples: int | None,
    **device: Any,
) -> Output:
    """Predict what was not measured from profiles NAMES; the result says scaled, from what, and how wrong."""
    from harness.cli.profile.view import profile_lines
    from harness.profiles.library import find_profile, store_as_run

    given(code)
    predicted = _predict([find_profile(name, root).profile for name in names], task, samples, device)
    (stored,) = store_as_run([predicted], root, "scale")
    return Output(_data(stored), profile_lines(stored))


def _predict(found: list[Any], task: str | None, samples: int | None, device: dict[str, Any]) -> Any:
    from harness.profiles.scale import scale_device, scale_samples, scale_task

    name = device.pop("device")
    if task is None and samples is None and name is None:
        raise click.UsageError("nothing to predict: give --task, --samples or --device")
    if task is not None:
        result = scale_task(found, task, samples)
    elif len(found) > 1:
        raise click.UsageError("several profiles serve --task only")
    else:
        result = found[0] if samples is None else scale_samples(found[0], samples)
    if name is None:
        if any(value is not None for value in device.values()):
            raise click.UsageError("--score, --own-score and --power-ratio belong to --device")
        return result
    if device["score"] is None or device["own_score"] is None:
        raise click.UsageError("--device needs --score and --own-score")
    return scale_device(result, name, **device)


def _key(stored: Stored) -> dict[str, Any]:
    found = stored.profile
    return {
        "id": stored.id,
        "run": stored.run or None,
        "created_utc": stored.created_utc,
        "device": found.device,
        "model": found.model,
        "dataset": found.dataset,
        "backend": found.backend,
        "origin": found.origin.value,
        "sessions": found.sessions,
        "epoch_duration_s": found.epoch.duration_s.model_dump(),
        "epoch_gross_j": found.epoch.gross_j.model_dump(),
    }


def _data(stored: Stored) -> dict[str, Any]:
    return {"place": stored.place, **stored.profile.model_dump(mode="json")}
