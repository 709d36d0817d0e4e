"""``joulefleet emulate``: replay profiles and traces for a fleet and its selectors."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.frame import Callback, Command, Output, columns, root_option
from harness.cli.own_code import code_option, given
from joulefleet.rounding import rounded

if TYPE_CHECKING:
    from emulator import Result, RoundOutcome
    from emulator.runs import BatchEntry, BatchIndex
    from emulator.scale import Cluster
    from harness.demo.run import Advance


def engine_options(command: Callback) -> Callback:
    """Give a command both options, as ``engine`` and ``ray_address``."""
    address = click.option(
        "--ray-address",
        metavar="HOST:PORT",
        help="Address of a running Ray cluster; without it, one is started on this machine.",
    )
    engine = click.option(
        "--engine",
        type=click.Choice(["local", "ray"]),
        default="local",
        show_default=True,
        help="On this machine's cores, or on a Ray cluster; the results are the same.",
    )
    return engine(address(command))


def check_engine(engine: str, ray_address: str | None) -> None:
    """An address without the engine it belongs to is a mistake."""
    if ray_address is not None and engine != "ray":
        raise click.UsageError("--ray-address goes with `--engine ray`.")


@contextmanager
def ray_cluster(engine: str, ray_address: str | None) -> Iterator[Cluster | None]:
    """The Ray cluster to run on, if any."""
    if engine == "local":
        yield None
        return
    from emulator.scale import connected

    # Ray prints what its nodes have to say to standard output, which is for results.
    with redirect_stdout(sys.stderr), connected(ray_address) as cluster:
        yield cluster


class Seeds(click.ParamType[tuple[int, ...]]):
    """Seeds such as ``0-9`` or ``0,3,5-7``."""

    name = "seeds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Every number of the list."""
        found: list[int] = []
        for part in str(value).split(","):
            match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
            if match is None or (match[2] is not None and int(match[2]) < int(match[1])):
                self.fail(f"{value!r} is no list of seeds such as 0-9 or 0,3,5-7", param, ctx)
            found += range(int(match[1]), int(match[2] or match[1]) + 1)
        return tuple(dict.fromkeys(found))


@click.command("emulate", cls=Command)
@click.argument("scenario", required=False)
@click.option(
    "--selector",
    "selectors",
    metavar="A,B",
    help="Instead of the scenario's own; with their default options.",
)
@click.option("--seeds", type=Seeds(), metavar="0-9", help="Instead of the scenario's own.")
@code_option
@engine_options
@click.option("--resume", "resumed", type=click.Path(path_type=Path, file_okay=False, exists=True),
              metavar="DIR", help="Continue a run that was interrupted.")  # fmt: skip
@click.option("--accept-other-software", is_flag=True,
              help="With --resume: although code or packages have changed; comparisons say so.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show what would be run, and train nothing.")
@root_option("Where the run goes.", Path("emulations"))
def emulate(
    scenario: str | None,
    selectors: str | None,
    seeds: tuple[int, ...] | None,
    code: tuple[Path, ...],
    engine: str,
    ray_address: str | None,
    resumed: Path | None,
    accept_other_software: bool,
    dry_run: bool,
    root: Path,
) -> Output:
    """Replay profiles and traces for a fleet and its selectors, with real training.

    SCENARIO is a TOML file or the name of a preset (`joulefleet list scenarios`).
    """
    check_engine(engine, ray_address)
    if (scenario is None) == (resumed is None):
        raise click.UsageError("give a SCENARIO, or --resume DIR (which knows its own).")
    if resumed is not None:
        if selectors or seeds or dry_run:
            raise click.UsageError("--resume continues what was started; it takes no other choice.")
        given(code)
        return _continued(resumed, ray_cluster(engine, ray_address), accept_other_software)
    from emulator import load_scenario
    from emulator.runs import make_selector, plan, start
    from emulator.scenario import scenario_text, with_code

    found = with_code(load_scenario(str(scenario)), given(code))
    names = [name.strip() for name in selectors.split(",")] if selectors else [found.selector.name]
    index = plan(found, names, seeds or found.seeds)
    for planned in index.planned:  # a misspelt name or option is found now, not after hours
        make_selector(index.scenario_of(planned))
    if dry_run:
        return _dry_run(index)
    # The cluster first: if there is none, no run is left behind.
    with ray_cluster(engine, ray_address) as cluster, start(root, index, scenario_text(str(scenario))) as run:
        return _played(run, index, cluster)


def _continued(path: Path, opened: AbstractContextManager[Cluster | None], accept: bool) -> Output:
    from emulator.runs import reopen

    with opened as cluster:
        run, index = reopen(path, accept_other_software=accept)
        with run:
            return _played(run, index, cluster)


def _played(run: Any, index: BatchIndex, cluster: Cluster | None) -> Output:
    from emulator.compare.titles import value_text
    from emulator.runs import metric_of, play
    from harness.cli.progress import progress

    rounds, metric = index.scenario.protocol.rounds, metric_of(index.scenario)
    with progress("emulating", rounds * len(index.planned)) as advance:

        def on_round(planned: BatchEntry, outcome: RoundOutcome) -> None:
            done = index.planned.index(planned) * rounds + outcome.round
            where = f"{planned.selector} seed {planned.seed} round {outcome.round}"
            use = f"; {cluster.describe()}" if cluster else ""
            advance(done, f"{where}, validation {value_text(outcome.accuracy, metric)}{use}")

        if cluster is None:
            results = play(run, index, on_round)
        else:
            results = _played_on_ray(run, index, cluster, on_round, advance)
        use = None if cluster is None else cluster.use()
    summary = summarised(results)
    warnings = finishing_warnings(summary)
    data = {
        "path": str(run.path),
        "emulations": summary,
        "warnings": warnings,
        **({"ray": use} if use else {}),
    }
    return Output(data, _lines(run.path, summary))


def _played_on_ray(
    run: Any,
    index: BatchIndex,
    cluster: Cluster,
    on_round: Callable[[BatchEntry, RoundOutcome], None],
    advance: Advance,
) -> list[Result]:
    """One emulation per processor where there are enough of them, else each one's clients spread over all."""
    from emulator.runs import play
    from emulator.scale import open_ray_trainer, play_sweep, unfinished

    if len(unfinished(run, index)) < cluster.cpus():
        return play(run, index, on_round, open_ray_trainer)

    def on_done(planned: BatchEntry, done: int, total: int) -> None:
        before = len(index.planned) - total
        note = f"{planned.selector} seed {planned.seed} finished; {cluster.describe()}"
        advance((before + done) * index.scenario.protocol.rounds, note)

    (results,) = play_sweep([(run, index)], on_done)
    return results


def summarised(results: list[Result]) -> list[dict[str, Any]]:
    """One line per emulation; every number beside where it came from."""
    from emulator.compare import participations
    from joulefleet.provenance import Origin

    lines = []
    for result in results:
        rounds, facts = result.rounds, result.record.facts
        energy_j = {
            name.removeprefix("energy_j_"): float(rounds[name].sum())
            for name in rounds.columns
            if name.startswith("energy_j_")
        }
        lines.append(
            {
                "origin": Origin.EMULATED.value,
                "folder": result.path.name,
                "selector": result.record.selector,
                "privileged": facts["privileged"],
                "seed": result.record.seed,
                "rounds": result.record.rounds,
                "ended_early": result.record.ended_early,
                "test_accuracy": result.record.test_accuracy,
                "metric": asdict(result.record.metric),
                "test_metric": result.record.tested,
                "training": facts["trainer"],
                "virtual_time_s": float(rounds["duration_ns"].sum()) * 1e-9,
                "energy_j": energy_j,
                "wait_j": float(rounds["wait_j"].sum()),
                "energy_with_waiting_j": float(rounds["energy_j"].sum()),
                **participations(rounds),
                "not_measured": list(facts.get("not_measured", [])),
                "energy": facts["energy"],
                "mean_reward": float(rounds["reward"].mean()),
                "cost_origin": facts["cost_origin"],
            }
        )
    return lines


def _lines(path: Path, summary: list[dict[str, Any]]) -> list[str]:
    """Means over the seeds of each selector, and what they rest on."""
    from device_agents.workloads import Metric
    from emulator.compare.titles import value_text
    from emulator.selectors import shown_name

    metric = Metric(**summary[0]["metric"])
    right = (
        *("seeds", "rounds", "finished", f"test {metric.name}", "time (s)"),
        *("energy (J)", "selected_only (J)", "waiting (J)", "reward"),
    )
    rows = []
    for selector in dict.fromkeys(line["selector"] for line in summary):
        lines = [line for line in summary if line["selector"] == selector]
        tested = _mean([line["test_metric"] for line in lines])
        row = [
            shown_name(selector),
            str(len(lines)),
            " to ".join(map(str, sorted({line["rounds"] for line in lines}))),
            _finished(lines),
            "unknown" if tested is None else value_text(tested, metric),
            rounded(_mean([line["virtual_time_s"] for line in lines])),
            rounded(_mean([line["energy_j"]["honest"] for line in lines])),
            rounded(_mean([line["energy_j"]["selected_only"] for line in lines])),
            rounded(_mean([line["wait_j"] for line in lines])),
            f"{_mean([line['mean_reward'] for line in lines]):.3g}",
        ]
        rows.append(row)
    return [
        columns(("selector", *right), rows, right),
        *(f"warning {text}" for text in finishing_warnings(summary)),
        *_notes(summary),
        f"run     {path}",
        f"next    `joulefleet report {path}`, `joulefleet compare {path}`",
    ]


def _finished(lines: list[dict[str, Any]]) -> str:
    """``18 of 20``, of all seeds."""
    return f"{sum(line['finished'] for line in lines):,} of {sum(line['asked'] for line in lines):,}"


def finishing_warnings(summary: list[dict[str, Any]]) -> list[str]:
    """Selectors of which few participations finished: less work is neither fast nor cheap."""
    from emulator.compare import finishing_warnings as warnings_of

    counts: dict[str, tuple[int, int]] = {}
    for line in summary:
        finished, asked = counts.get(line["selector"], (0, 0))
        counts[line["selector"]] = finished + line["finished"], asked + line["asked"]
    return warnings_of(counts)


def _notes(summary: list[dict[str, Any]]) -> list[str]:
    """Where the numbers come from, and what went otherwise than planned."""
    bases = sorted({f"{line['energy']} energy, costs {line['cost_origin']}" for line in summary})
    learned = sorted({line["training"] for line in summary})
    made_up = " (a formula: nothing was learned)" if "surrogate" in learned else ""
    unmeasured = sorted({what for line in summary for what in line["not_measured"]})
    early = sorted({line["ended_early"] for line in summary if line["ended_early"]})
    judged = summary[0]["metric"]
    better = "" if judged["higher_is_better"] else " (less is better)"
    return [
        f"means   over seeds: final test {judged['name']}{better}, virtual time,",
        "        energy with all probes (honest), and with",
        "        those of the chosen devices only (selected_only), both without waiting for the choice;",
        "        finished: devices that sent the update they were asked for, of all seeds",
        f"basis   {'; '.join(bases)}; emulated, training {', '.join(learned)}{made_up}",
        *(f"early   {reason}" for reason in early),
        *(f"note    {what}" for what in unmeasured),
    ]


def _mean(values: list[Any]) -> Any:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _dry_run(index: BatchIndex) -> Output:
    from emulator.runs import assemble

    planned = index.planned[0]
    scenario = index.scenario_of(planned)
    assembly = assemble(scenario, planned.seed)
    engine = assembly.engine
    engine.trainer.close()
    eligible = int(engine.world.conditions.eligible(0).sum())
    names = [f"{one.selector} seed {one.seed}" for one in index.planned]
    data = {
        "emulations": names,
        "scenario": scenario.model_dump(mode="json"),
        "eligible_at_start": eligible,
        "facts": assembly.facts,
    }

    facts, protocol, origin = assembly.facts, scenario.protocol, assembly.facts["cost_origin"]
    budgets, accuracy = facts["budgets"], facts.get("local_accuracy")
    fleet = f"{scenario.fleet.devices:,} devices of {len(facts['profiles'])} profiles [{origin}]"
    rounds = f"{protocol.rounds} of {protocol.k} clients from {scenario.candidates} candidates"
    notes = [*facts["not_measured"], *([f"local accuracy of {accuracy}"] if accuracy else [])]
    limits = f"T = {budgets['time_s']:.4g} s, E = {budgets['energy_j']:.4g} J per round [{origin}]"
    lines = [
        f"would run   {', '.join(names)}",
        f"fleet       {fleet}, {facts['energy']} energy; {eligible:,} eligible at the start",
        f"rounds      {rounds}, {protocol.local_epochs} local epochs",
        f"budgets     {limits} for seed {planned.seed}",
        f"training    {facts['trainer']}",
        *(f"note        {note}" for note in notes),
    ]
    return Output(data, lines)
