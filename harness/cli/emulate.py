"""``joulefleet emulate``: replay profiles and traces for a fleet and its selectors."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from dataclasses import asdict
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.frame import Callback, Command, Output, columns, root_option
from harness.cli.own_code import code_option, given
from harness.cli.terminal import echo
from joulefleet.rounding import rounded

if TYPE_CHECKING:
    from emulator import Result, RoundOutcome
    from emulator.runs import BatchEntry, BatchIndex
    from emulator.scale import Cluster
    from harness.demo.run import Advance


LISTED = 20
"""Variants that a dry run names."""


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
@click.option("--selector", "selectors", multiple=True, metavar="A,B:OPTION=VALUE",
              help="Instead of the scenario's own; may be repeated, also with other options.")  # fmt: skip
@click.option("--set", "settings", multiple=True, metavar="KEY=A,B",
              help="Other values of a key of the scenario, such as protocol.k=5,10; may be repeated: every "
              "combination is run.")  # fmt: skip
@click.option("--seeds", type=Seeds(), metavar="0-9", help="Instead of the scenario's own.")
@code_option
@engine_options
@click.option("--resume", "resumed", type=click.Path(path_type=Path, file_okay=False, exists=True),
              metavar="DIR", help="Continue a run that was interrupted.")  # fmt: skip
@click.option("--more-rounds", type=click.IntRange(min=1), metavar="N",
              help="With --resume: play N more rounds of a complete run.")  # fmt: skip
@click.option("--accept-other-software", is_flag=True,
              help="With --resume: although code or packages have changed; comparisons say so.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show what would be run, and train nothing.")
@root_option("Where the run goes.", Path("emulations"))
def emulate(
    scenario: str | None,
    selectors: tuple[str, ...],
    settings: tuple[str, ...],
    seeds: tuple[int, ...] | None,
    code: tuple[Path, ...],
    engine: str,
    ray_address: str | None,
    resumed: Path | None,
    more_rounds: int | None,
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
    if more_rounds and resumed is None:
        raise click.UsageError("--more-rounds extends a complete run: name it with --resume DIR.")
    if resumed is not None:
        if selectors or settings or seeds or dry_run:
            raise click.UsageError("--resume continues what was started; it takes no other choice.")
        given(code)
        opened = ray_cluster(engine, ray_address)
        return _continued(resumed, opened, accept_other_software, more_rounds or 0)
    from emulator import load_scenario
    from emulator.runs import check_selectors, plan, start
    from emulator.scenario import scenario_text, selectors_in, settings_in, with_code

    found = with_code(load_scenario(str(scenario)), given(code))
    index = plan(found, selectors_in(selectors) if selectors else None, seeds, settings_in(settings))
    check_selectors(index)
    if dry_run:
        return _dry_run(index)
    # The cluster first: if there is none, no run is left behind.
    with ray_cluster(engine, ray_address) as cluster, start(root, index, scenario_text(str(scenario))) as run:
        return _played(run, index, cluster)


def _continued(
    path: Path, opened: AbstractContextManager[Cluster | None], accept: bool, more_rounds: int
) -> Output:
    from emulator.runs import reopen

    with opened as cluster:
        run, index = reopen(path, accept_other_software=accept, more_rounds=more_rounds)
        with run:
            return _played(run, index, cluster)


def _played(run: Any, index: BatchIndex, cluster: Cluster | None) -> Output:
    from emulator.compare.titles import value_text
    from emulator.runs import metric_of, play, resuming, stoppable, stopped
    from harness.cli.progress import progress

    rounds = {one.folder: index.scenario_of(one).protocol.rounds for one in index.planned}
    before = dict(zip(rounds, accumulate(rounds.values(), initial=0), strict=False))
    echo(f"{index.size}, {sum(rounds.values()):,} rounds", err=True)
    echo(f"into {run.path}; should it stop, `{resuming(run.path, index)}` goes on", err=True)
    with (
        stoppable(stopped(run.path, index)),
        progress("emulating", sum(rounds.values())) as advance,
    ):

        def on_round(planned: BatchEntry, outcome: RoundOutcome) -> None:
            done = before[planned.folder] + outcome.round
            where = f"{index.label(planned)} seed {planned.seed} round {outcome.round}"
            use = f"; {cluster.describe()}" if cluster else ""
            reached = value_text(outcome.accuracy, metric_of(index.scenario_of(planned)))
            advance(done, f"{where}, validation {reached}{use}")

        if cluster is None:
            results = play(run, index, on_round)
        else:
            results = _played_on_ray(run, index, cluster, on_round, advance, rounds)
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
    rounds: dict[str, int],
) -> list[Result]:
    """One emulation per processor where there are enough of them, else each one's clients spread over all."""
    from emulator.runs import play
    from emulator.scale import open_ray_trainer, play_sweep, unfinished

    left = {one.folder for one in unfinished(run, index)}
    if len(left) < cluster.cpus():
        return play(run, index, on_round, open_ray_trainer)
    played = sum(count for folder, count in rounds.items() if folder not in left)

    def on_done(planned: BatchEntry, done: int, total: int) -> None:
        nonlocal played
        played += rounds[planned.folder]
        advance(played, f"{index.label(planned)} seed {planned.seed} finished; {cluster.describe()}")

    (results,) = play_sweep([(run, index)], on_done)
    return results


def summarised(results: list[Result]) -> list[dict[str, Any]]:
    """One line per emulation; every number beside where it came from."""
    from emulator.compare import participations
    from emulator.runs import penalties_of, replay_of
    from joulefleet.provenance import Origin

    lines = []
    for result in results:
        rounds, facts, replay = result.rounds, result.record.facts, replay_of(result)
        energy_j = {
            name.removeprefix("energy_j_"): float(rounds[name].sum())
            for name in rounds.columns
            if name.startswith("energy_j_")
        }
        lines.append(
            {
                "origin": Origin.EMULATED.value,
                "folder": result.path.name,
                "method": result.record.method,
                "selector": result.record.selector,
                "options": result.record.options,
                "settings": result.record.settings,
                "privileged": facts["privileged"],
                "seed": result.record.seed,
                "rounds": result.record.rounds,
                "ended_early": result.record.ended_early,
                "test_accuracy": result.record.test_accuracy,
                "metric": asdict(result.record.metric),
                "test_metric": result.record.tested,
                "training": facts["trainer"],
                "virtual_time_s": float(rounds["duration_ns"].sum()) * 1e-9,
                "calendar_s": replay.span_s,
                "replay": asdict(replay),
                "energy_j": energy_j,
                "wait_j": float(rounds["wait_j"].sum()),
                "energy_with_waiting_j": float(rounds["energy_j"].sum()),
                **participations(rounds),
                "not_measured": list(facts.get("not_measured", [])),
                "clock_notes": list(facts.get("clock_notes", [])),
                "energy": facts["energy"],
                "mean_reward": float(rounds["reward"].mean()),
                "penalties": asdict(penalties_of([result])),
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
        *("seeds", "rounds", "finished", f"test {metric.name}", "time (s)", "calendar (h)"),
        *("energy (J)", "selected_only (J)", "waiting (J)", "reward"),
    )
    rows = []
    for method in dict.fromkeys(line["method"] for line in summary):
        lines = [line for line in summary if line["method"] == method]
        tested = _mean([line["test_metric"] for line in lines])
        row = [
            shown_name(method),
            str(len(lines)),
            " to ".join(map(str, sorted({line["rounds"] for line in lines}))),
            _finished(lines),
            "unknown" if tested is None else value_text(tested, Metric(**lines[0]["metric"])),
            rounded(_mean([line["virtual_time_s"] for line in lines])),
            rounded(_mean([line["calendar_s"] / 3600 for line in lines])),
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
        finished, asked = counts.get(line["method"], (0, 0))
        counts[line["method"]] = finished + line["finished"], asked + line["asked"]
    return warnings_of(counts)


def _notes(summary: list[dict[str, Any]]) -> list[str]:
    """Where the numbers come from, and what went otherwise than planned."""
    bases = sorted({f"{line['energy']} energy, costs {line['cost_origin']}" for line in summary})
    learned = sorted({line["training"] for line in summary})
    made_up = " (a formula: nothing was learned)" if "surrogate" in learned else ""
    unmeasured = sorted({what for line in summary for what in (*line["not_measured"], *line["clock_notes"])})
    early = sorted({line["ended_early"] for line in summary if line["ended_early"]})
    judged = summary[0]["metric"]
    better = "" if judged["higher_is_better"] else " (less is better)"
    return [
        f"means   over seeds: final test {judged['name']}{better}, time of the rounds and of the calendar",
        "        (with the pauses between rounds), energy with all probes (honest), and with",
        "        those of the chosen devices only (selected_only), both without waiting for the choice;",
        "        finished: devices that sent the update they were asked for, of all seeds",
        f"basis   {'; '.join(bases)}; emulated, training {', '.join(learned)}{made_up}",
        *(f"reward  {line}" for line in _judged(summary)),
        *(f"world   {line}" for line in _world(summary)),
        *(f"early   {reason}" for reason in early),
        *(f"note    {what}" for what in unmeasured),
    ]


def _judged(summary: list[dict[str, Any]]) -> list[str]:
    """How often the penalties applied to those who learn by the reward."""
    from emulator import SELECTORS, Family
    from emulator.runs import Penalties
    from emulator.selectors import shown_name

    learn = [line for line in summary if SELECTORS.load(line["selector"]).family is Family.LEARNING]
    return [
        f"{shown_name(method)}: {Penalties.sum([Penalties(**line['penalties']) for line in lines]).text()}"
        for method in dict.fromkeys(line["method"] for line in learn)
        if (lines := [line for line in learn if line["method"] == method])
    ]


def _world(summary: list[dict[str, Any]]) -> list[str]:
    """What the traces did: of the first emulation, and of others that differ in what is worth a line."""
    from emulator.runs import Replay

    found = {line["folder"]: Replay(**line["replay"]).sentences() for line in summary}
    first, *others = found.items()
    still = sum(Replay(**line["replay"]).nothing_moved for line in summary)
    said = [f"{first[0]}: {text}" for text in first[1]]
    if others and still:
        said.append(f"in {still} of {len(summary)} emulations the traces changed nothing")
    return said


def _mean(values: list[Any]) -> Any:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _network_line(facts: Mapping[str, Any]) -> list[str]:
    found = facts.get("network")
    return (
        [f"network     {found['users']:,} recordings [{found['origin']}] given to users by the seed"]
        if found
        else []
    )


def _dry_run(index: BatchIndex) -> Output:
    from emulator.runs import Floors, look_ahead

    planned = index.planned[0]
    scenario = index.scenario_of(planned)
    ahead = look_ahead(scenario, planned.seed)
    facts, protocol, origin = ahead.facts, scenario.protocol, ahead.facts["cost_origin"]
    names = [f"{index.label(one)} seed {one.seed}" for one in index.planned]
    data = {
        "emulations": names,
        "scenario": scenario.model_dump(mode="json"),
        "eligible_at_start": ahead.eligible,
        "outlook": asdict(ahead.foreseen),
        "facts": facts,
        "missing": ahead.missing or None,
    }
    accuracy, limits = facts.get("local_accuracy"), "not known before the data are at hand"
    if "budgets" in facts:
        known = facts["budgets"]
        limits = f"T = {known['time_s']:.4g} s, E = {known['energy_j']:.4g} J per round [{origin}]"
        limits += f" for seed {planned.seed}"
    fleet = f"{scenario.fleet.devices:,} devices of {len(facts['profiles'])} profiles [{origin}]"
    rounds = f"{protocol.rounds} of {protocol.k} clients from {scenario.candidates} candidates"
    notes = [
        *facts["not_measured"],
        *facts["clock_notes"],
        *([f"local accuracy of {accuracy}"] if accuracy else []),
    ]
    floors = Floors(**facts["floors"]).sentences() if "floors" in facts else []
    variants = list(dict.fromkeys(index.label(one) for one in index.planned))
    more = [f"            ... and {len(variants) - LISTED:,} more"] if len(variants) > LISTED else []
    lines = [
        f"would run   {index.size}",
        *(f"            {name}" for name in variants[:LISTED]),
        *more,
        *(["of the first:"] if len(variants) > 1 else []),
        f"fleet       {fleet}, {facts['energy']} energy; {ahead.eligible:,} eligible at the start",
        *_network_line(facts),
        f"rounds      {rounds}, {protocol.local_epochs} local epochs",
        *(
            f"clock       {line}"
            for line in ahead.foreseen.sentences(traces=scenario.fleet.traces is not None)
        ),
        *(f"floor       {line} [{origin}]" for line in floors),
        f"budgets     {limits}",
        f"training    {facts['trainer']}",
        *([f"data        {ahead.missing} now"] if ahead.missing else []),
        *(f"note        {note}" for note in notes),
    ]
    return Output(data, lines)
