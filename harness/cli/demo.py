"""``joulefleet demo``: the whole tool end to end, on this machine, without hardware."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.frame import Command, Output, root_option


@click.command("demo", cls=Command)
@root_option("Where the runs go.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Random seed of the bench."
)
@click.option("--quick", is_flag=True, help="Less of everything: no background load, one seed, few rounds.")
def demo(root: Path, seed: int, quick: bool) -> Output:
    """The whole tool end to end, here and now, without hardware.

    Act 1: two processes play devices and really train LeNet-5, in torch and in onnxruntime; emulated Monsoons
    read the power that their processor time stands for. Act 2: the profiles drive a fleet with generated
    people, FedRank against FedAvg and Oort. Act 3: what early exit saves. Every number says where it is from.
    """
    from harness.cli.progress import progress, stop_on_signals
    from harness.demo.local_bench import FULL, QUICK
    from harness.demo.outcome import as_dict, lines
    from harness.demo.run import run_demo

    result = run_demo(root, seed, size=QUICK if quick else FULL, show=progress, stopping=stop_on_signals)

    return Output(as_dict(result), lines(result))
