"""``joulefleet policy``: pretrained policies of the learning selectors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import click

from harness.cli.frame import Group, Output
from harness.cli.own_code import code_option, given
from harness.cli.terminal import echo
from joulefleet.errors import ConfigError

if TYPE_CHECKING:
    from emulator import RoundOutcome
    from emulator.policies import PolicyManifest, Recipe

PACKAGED_FEDMARL = "fedmarl"
WRITTEN = {
    "task.name": "--task",
    "task.data": "--data",
    "task.train_samples": "100 devices x --samples",
    "no data set called": "--data: no data set called",
}
"""Keys of the scenarios that are made here, and the options that they come from."""


@click.group(cls=Group)
def policy() -> None:
    """Train and inspect learned selectors."""


@policy.command("show")
@click.argument("name", required=False, metavar="[NAME|FILE]")
def show(name: str | None) -> Output:
    """What a policy was made from and what it reached; without a name, all that ship with the package."""
    from emulator.policies import any_policy, packaged_policies

    names = [name] if name else packaged_policies()
    found = {known: any_policy(known).manifest for known in names}
    data = {known: manifest.model_dump(mode="json") for known, manifest in found.items()}
    return Output(data, _lines(found))


@policy.command("train")
@click.argument("kind", type=click.Choice(["fedrank", "fedmarl", "favor"]))
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True,
              help="The policy (.safetensors); never overwritten.")  # fmt: skip
@click.option("--scenario", metavar="FILE",
              help="Learn on this scenario: its fleet, traces, task and rules.")  # fmt: skip
@click.option("--world", type=click.Choice(["week", "still"]), default="week", show_default=True,
              help="Phones in use over a week, or phones that nobody uses.")  # fmt: skip
@click.option("--data", default="mnist", show_default=True, help="Data set to learn on.")
@click.option("--task", default="mnist-lenet5", show_default=True, help="Model and settings.")
@code_option
@click.option("--experts", default="harmony_like,oort,fedmarl", show_default=True,
              help="Whom fedrank imitates.")  # fmt: skip
@click.option("--fedmarl-policy", default=PACKAGED_FEDMARL, show_default=True,
              help="Policy of the expert FedMarl.")  # fmt: skip
@click.option("--runs", type=click.IntRange(min=1), help="Episodes, or runs per expert.")
@click.option("--rounds", type=click.IntRange(min=1),
              help="Rounds per episode or run; by default the scenario's, or 50 and 20.")  # fmt: skip
@click.option("--samples", type=click.IntRange(min=1), default=50, show_default=True,
              help="Training samples of each of the 100 devices.")  # fmt: skip
@click.option("--loss", type=click.Choice(["bce", "ranknet"]), default="bce", show_default=True,
              help="Loss function of the imitation.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Print the budget and stop.")
def train(
    kind: str,
    out: Path,
    scenario: str | None,
    world: Any,
    data: str,
    task: str,
    code: tuple[Path, ...],
    experts: str,
    fedmarl_policy: str,
    runs: int | None,
    rounds: int | None,
    samples: int,
    loss: Any,
    dry_run: bool,
) -> Output:
    """Make a policy. How many client-epochs it takes is printed first.

    For fedrank with several experts, one policy of all of them and one of each alone are written. Whoever
    chooses by the loss of the received model (afl, power_of_choice, cpow_d) cannot be imitated.
    """
    from emulator import load_scenario
    from emulator.policies import (
        CloningOptions,
        check_experts,
        client_epochs,
        recipe,
        train_by_trying,
        train_fedrank,
        write_policy,
    )
    from emulator.runs import look_ahead
    from emulator.scenario import with_code
    from harness.cli.progress import progress

    names = tuple(name.strip() for name in experts.split(","))
    offered = given(code)
    own, words = None, []
    if scenario is not None:
        _alone(scenario)
        own = with_code(load_scenario(scenario), offered)
        words.append(f"--scenario {quote(scenario)}")
    elif offered.tasks:  # the one that was given, unless one of several is named
        data = task = task if task in offered.tasks else next(iter(offered.tasks))
        if not (offered.tasks[task].has_labels and offered.tasks[task].metric.share):
            raise ConfigError(
                f"task {task!r} has no classes or no accuracy, which policies are learnt with",
                hint="give a scenario of your own with --scenario, or a task of classes",
            )
    chosen = {"world": world, "data": data, "task": task, "runs": runs, "rounds": rounds, "samples": samples}
    shown = ("runs", "rounds") if own else tuple(chosen)
    words += [f"--{name} {chosen[name]}" for name in shown if chosen[name] is not None]
    words += [f"--code {quote(str(path))}" for path in code]
    if kind == "fedrank":
        words += [f"--experts {','.join(names)}", f"--loss {loss}"]
        words += [] if fedmarl_policy == PACKAGED_FEDMARL else [f"--fedmarl-policy {quote(fedmarl_policy)}"]
    made = recipe(
        kind,
        data=data,
        task=task,
        experts=names,
        experts_policy=fedmarl_policy,
        runs=runs,
        rounds=rounds,
        samples=samples,
        scenario=own,
        world=world,
        command=" ".join(["joulefleet policy train", kind, *words]),
    )
    # All that can be wrong is found before training, which takes hours.
    files = _files(out, made, kind)
    if kind == "fedrank":
        check_experts(made)
    budget = client_epochs(made, kind)
    echo(f"{kind}: at most {budget:,} client-epochs", err=True)
    with _as_written(own is None):
        look_ahead(made.scenarios[0], made.seeds[0])
    if dry_run:
        return Output({"client_epochs": budget}, [])
    with progress(f"training {kind}", sum(s.protocol.rounds for s in made.runs(kind))) as advance:
        done = 0

        def on_round(label: str, outcome: RoundOutcome) -> None:
            nonlocal done
            done += outcome.round > 0  # a profiling is no round of the plan
            advance(done, label)

        if kind == "fedrank":
            results = train_fedrank(made, CloningOptions(loss=loss), on_round)
        else:
            results = {"": train_by_trying(kind, made, on_round)}
    for label, result in results.items():
        write_policy(files[label], result)
    found = {str(files[label]): result.manifest for label, result in results.items()}
    data_of = {name: manifest.model_dump(mode="json") for name, manifest in found.items()}
    return Output(data_of, _lines(found))


def _alone(scenario: str) -> None:
    """What the scenario says must not be said twice."""
    context = click.get_current_context()
    for name in ("world", "data", "task", "samples"):
        if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            raise click.UsageError(f"--{name} and --scenario {scenario}: the scenario says it already.")


@contextmanager
def _as_written(options: bool) -> Iterator[None]:
    """Errors name what the user wrote: options, where there is no scenario file."""
    try:
        yield
    except ConfigError as error:
        message = error.message
        for key, option in WRITTEN.items() if options else ():
            message = message.replace(key, option)
        raise ConfigError(message, hint=error.hint) from error


def _files(out: Path, made: Recipe, kind: str) -> dict[str, Path]:
    """Where each policy goes, by its label.

    Raises:
        ConfigError: One of them is there already, or could not be written there.
    """
    from emulator.policies import POLICY_SUFFIX

    if out.suffix != POLICY_SUFFIX:
        raise ConfigError(f"--out {out}: a new {POLICY_SUFFIX} file is needed")
    labels = made.groups if kind == "fedrank" else {"": ()}
    files = {label: out if not label else out.with_stem(f"{out.stem}_from_{label}") for label in labels}
    for path in files.values():
        if path.exists():
            raise ConfigError(
                f"--out {out}: {path} is there already",
                hint=f"a new {POLICY_SUFFIX} file is needed; choose another name",
            )
    try:
        # Asking for permissions would not do: root has them all, also where nothing can be written.
        with TemporaryFile(dir=out.parent):
            pass
    except OSError as error:
        raise ConfigError(
            f"--out {out}: nothing can be written to {out.parent} ({error.strerror})",
            hint="make the folder first, or choose another",
        ) from error
    return files


def _lines(found: dict[str, PolicyManifest]) -> list[str]:
    lines = []
    for name, manifest in found.items():
        facts = {
            "kind": manifest.kind,
            "made by": manifest.command,
            "learnt on": f"{manifest.data} (seeds {_span(manifest.seeds)})",
        }
        if manifest.experts:
            facts["imitates"] = ", ".join(manifest.experts)
            if manifest.stop_seeds:
                facts["stopped by"] = f"seeds {_span(manifest.stop_seeds)}"
            facts["judged on"] = f"seeds {_span(manifest.held_out_seeds)}"
        facts["took"] = f"{manifest.client_epochs:,} client-epochs, {manifest.cpu_s:,.0f} CPU seconds"
        facts |= {result: f"{value:.4g}" for result, value in manifest.results.items()}
        width = max(map(len, facts))
        lines += [name, *(f"  {what:<{width}}  {text}" for what, text in facts.items())]
    return lines


def _span(seeds: tuple[int, ...]) -> str:
    return f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else ", ".join(map(str, seeds))
