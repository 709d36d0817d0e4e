"""``python -m harness.profiles.reference_fleet [DATA] [OUT]``: compute the facts of the reference fleet."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from device_agents.workloads import TASKS, count_task
from harness.profiles.reference_fleet.listed import write_listed
from harness.profiles.reference_fleet.phones import (
    BATTERY_V,
    asleep_w,
    charge_share_per_h,
    phones,
    radios,
    rounded,
)
from harness.profiles.reference_fleet.training import ANCHOR_SOC, Bodt, speed, training_power
from joulefleet.errors import ConfigError
from joulefleet.records import write_record
from power.reference import Family, PowerFacts, ReferenceFacts, TaskFacts, reference_facts

FACTS_FILE = Path("power/reference/facts.json")

SAMPLES = {
    "mnist": 60_000 // 100,
    "cifar10": 50_000 // 100,
    "cinic10": 90_000 // 100,
    "tinyimagenet": 100_000 // 100,
    "shakespeare": 1_115_394 // 298,  # characters of tinyshakespeare over its speakers
    "wikitext": (1_256_449 + 1_121_681) // 100,  # characters of WikiText-2's test and validation texts
    "digits": 1_797 // 30,  # scikit-learn's digits over the demo's devices
}
"""Training samples of one client: each data set over the paper's 100 clients, except as noted."""

FAMILY: dict[str, Family] = {"shufflenetv2": "depthwise", "lstm": "recurrent"}


def tasks() -> tuple[TaskFacts, ...]:
    """Size and arithmetic of every task whose clients' size is known, counted."""
    found = []
    for task in (task for task in TASKS.values() if task.data_set in SAMPLES):
        work = count_task(task)
        found.append(
            TaskFacts(
                # The model as the task's name has it: two tasks may share a class and differ in its options.
                model=task.name.removeprefix(f"{task.data_set}-"),
                dataset=task.data_set,
                family=FAMILY.get(task.model, "convolution"),
                samples=SAMPLES[task.data_set],
                batch_size=task.batch_size,
                local_epochs=task.local_epochs,
                flop_per_sample=work.training_flop,
                parameters=work.parameters,
                bytes=work.bytes,
            )
        )
    return tuple(found)


def compute_facts(data: Path) -> ReferenceFacts:
    """Everything in ``facts.json``, from the folder of data sets."""
    folder = data / "device-profiles"
    bodt = Bodt(folder)
    found, line, repeat_log_sd = phones(folder)
    by_soc = {phone.soc: phone for phone in found}
    counted = tasks()
    lstm = next(task for task in counted if task.name == "shakespeare-lstm")
    return ReferenceFacts(
        # Written by hand, in the file itself.
        sources=reference_facts().sources,
        interference=reference_facts().interference,
        variation=reference_facts().variation,
        speed=speed(folder, bodt, lstm, {soc: phone.score for soc, phone in by_soc.items()}, line),
        power=PowerFacts(
            **training_power(bodt, by_soc[ANCHOR_SOC]),
            repeat_log_sd=rounded(repeat_log_sd),
            asleep_w=asleep_w(folder),
        ),
        radios=radios(data / "network"),
        battery_v=BATTERY_V,
        charge_share_per_h=charge_share_per_h(data / "traces"),
        tasks=counted,
        phones=tuple(found),
    )


def main(arguments: list[str]) -> None:
    """Write the file anew."""
    data = arguments[0] if arguments else os.environ.get("JOULEFLEET_DATA", "")
    if not data:
        raise ConfigError("no folder of data sets", hint="name it, or set JOULEFLEET_DATA")
    out = Path(arguments[1]) if len(arguments) > 1 else FACTS_FILE
    write_record(out, compute_facts(Path(data)), replace=True)
    write_listed(out.with_name("listed.json"), Path(data) / "device-profiles")


if __name__ == "__main__":
    main(sys.argv[1:])
