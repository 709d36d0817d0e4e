"""One round from check-in to the last update: who gets how far, on the virtual clock.

A round that probes goes: candidates receive the model, work on their probe, wait for the decision; the
chosen go on, the others stop. Without probing the chosen do everything in one go. The server hears at once
when a device goes away, so it waits for nobody who has left.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from emulator.fleet.conditions import NEVER_NS
from emulator.fleet.world import World
from emulator.round.learning import RoundLearning
from emulator.round.outcome import Fate
from emulator.round.rules import RoundRules
from emulator.round.selector import Probe
from emulator.round.timeline import Timeline
from emulator.round.view import Ids, ServerView


@dataclass(slots=True, eq=False)
class OpenRound:
    """A round that waits for the choice.

    Attributes:
        number: From 1 on.
        start_ns: When it was due: when the round before had ended and `RoundRules.every_s` was over.
        now_ns: When the first device was asked; later than ``start_ns`` if nobody was there.
        view: What the server knows.
        eligible: How many devices checked in.
        probed: Candidates that were probed, ascending; ``None`` if the method does not probe.
        candidates: Who can be chosen, ascending: of those probed, who reported and is still there.
        decision_ns: When the choice is made.
        timeline: Of those probed.
        learning: Of those probed.
    """

    number: int
    start_ns: int
    now_ns: int
    view: ServerView
    eligible: int
    candidates: Ids
    decision_ns: int
    probed: Ids | None = None
    timeline: Timeline | None = None
    learning: RoundLearning | None = None


def deadline_ns(start_ns: int, after_s: float | None) -> int:
    """When something that may take so long is over."""
    return NEVER_NS if after_s is None else start_ns + round(after_s * 1e9)


def probe(world: World, rules: RoundRules, kind: Probe, devices: Ids, now_ns: int) -> Timeline:
    """Candidates do their probe, and wait until the last of them has reported or gone."""
    # Probing is over when the round is, at the latest.
    ends_ns = (deadline_ns(now_ns, after_s) for after_s in (rules.probe_deadline_s, rules.deadline_s))
    timeline = Timeline(world, devices, now_ns, min(ends_ns))
    everybody = np.arange(len(devices))
    timeline.download(everybody)
    if kind is Probe.EPOCH:
        timeline.first_epoch(everybody, "probe")
    elif kind is Probe.BATCH:
        timeline.forward(everybody, "probe", samples=rules.batch_size)
    else:
        timeline.forward(everybody, "probe")
    decision_ns = int(timeline.t_ns.max(initial=now_ns))
    timeline.reopen(Fate.DEADLINE)
    timeline.wait_until(decision_ns, everybody)
    return timeline


def finish(
    timeline: Timeline,
    rules: RoundRules,
    places: Ids,
    epochs: Ids,
    *,
    before: Probe,
    forward: bool,
) -> Timeline:
    """The chosen train and send their updates, until enough have or nobody is left.

    Args:
        timeline: Of all participants, up to the choice.
        rules: Deadline and over-commitment.
        places: The chosen.
        epochs: Local epochs of each of them, the probe included.
        before: What they did before the choice.
        forward: Whether they first measure the loss of the model they received.
    """
    timeline.close_at(deadline_ns(timeline.start_ns, rules.deadline_s), Fate.DEADLINE)
    count = np.zeros(len(timeline.devices), np.int64)
    count[places] = epochs - 1

    def go(line: Timeline) -> Timeline:
        if before is Probe.NONE:
            line.download(places)
        if forward:
            line.forward(places, "train")
        if before is not Probe.EPOCH:
            line.first_epoch(places, "train")
        line.epochs(places, count, "train")
        line.upload(places)
        return line

    if len(places) <= rules.k:
        return go(timeline)
    trial = go(timeline.fork())
    done_ns = np.sort(trial.t_ns[places[trial.under_way[places]]])
    if len(done_ns) <= rules.k:
        return trial
    timeline.close_at(int(done_ns[rules.k - 1]), Fate.SURPLUS)
    go(timeline)
    # Of those who finished in the same nanosecond as the last one wanted, the lower ids count.
    finished = places[timeline.under_way[places]]
    order = np.argsort(timeline.t_ns[finished], kind="stable")
    timeline.end(finished[order[rules.k :]], Fate.SURPLUS)
    return timeline
