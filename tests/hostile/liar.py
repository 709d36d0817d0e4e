"""A real agent that lies: ``python -m tests.hostile.liar LIE [arguments of the agent]``.

It does all the work of a job. What it says of it is changed on the way out: when markers are stamped, in its
journal before that is collected, in its answers to pings. ``LIAR_TRUTH`` names a file for what was true.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Marker = dict[str, Any]
S = 10**9


def edges(markers: list[Marker], kind: str, epoch: int = 0) -> tuple[Marker, Marker]:
    found = [m for m in markers if m["kind"] == kind and (m["epoch"] == epoch or not epoch)]
    return found[0], found[1]


def last(markers: list[Marker]) -> int:
    return max(m["epoch"] for m in markers if m["kind"] == "epoch")


def cut_later(markers: list[Marker], to: float = 1 / 20) -> None:
    """Epochs after the probe took a part of their time."""
    for epoch in range(2, last(markers) + 1):
        start, end = edges(markers, "epoch", epoch)
        end["t_dev_ns"] = start["t_dev_ns"] + round(to * (end["t_dev_ns"] - start["t_dev_ns"]))


def cut_and_upload(markers: list[Marker], to: float = 1 / 20) -> None:
    """The same, and the rest is called an upload."""
    cut_later(markers, to)
    edges(markers, "upload")[0]["t_dev_ns"] = edges(markers, "epoch", last(markers))[1]["t_dev_ns"]


def into_idle(markers: list[Marker]) -> None:
    """Epochs after the probe lie behind the job."""
    over_ns = markers[-1]["t_dev_ns"]
    for number, epoch in enumerate(range(2, last(markers) + 1)):
        start, end = edges(markers, "epoch", epoch)
        length_ns = end["t_dev_ns"] - start["t_dev_ns"]
        start["t_dev_ns"] = over_ns + number * length_ns
        end["t_dev_ns"] = start["t_dev_ns"] + length_ns


def shift(seconds: float) -> Callable[[list[Marker]], None]:
    def shifted(markers: list[Marker]) -> None:
        for marker in markers:
            marker["t_dev_ns"] += round(seconds * S)

    return shifted


def reverse(markers: list[Marker]) -> None:
    """Later epochs in reverse order."""
    first, other = edges(markers, "epoch", 2), edges(markers, "epoch", 3)
    for a, b in zip(first, other, strict=True):
        a["t_dev_ns"], b["t_dev_ns"] = b["t_dev_ns"], a["t_dev_ns"]


def overlap(markers: list[Marker]) -> None:
    """Epoch 3 begins in the middle of epoch 2."""
    start, end = edges(markers, "epoch", 2)
    edges(markers, "epoch", 3)[0]["t_dev_ns"] = (start["t_dev_ns"] + end["t_dev_ns"]) // 2


def twice(markers: list[Marker]) -> None:
    """Epoch 2 is there twice."""
    at = markers.index(edges(markers, "epoch", 2)[1])
    markers[at + 1 : at + 1] = [dict(m) for m in edges(markers, "epoch", 2)]
    number(markers)


def extra(markers: list[Marker]) -> None:
    """One more epoch than it was told to train."""
    final = last(markers)
    start, end = edges(markers, "epoch", final)
    at = markers.index(end)
    middle_ns = (start["t_dev_ns"] + end["t_dev_ns"]) // 2
    more = [{**start, "epoch": final + 1, "t_dev_ns": middle_ns}, {**end, "epoch": final + 1}]
    end["t_dev_ns"] = middle_ns
    markers[at + 1 : at + 1] = more
    number(markers)


def missing(markers: list[Marker]) -> None:
    """Epoch 2 never was."""
    for edge in edges(markers, "epoch", 2):
        markers.remove(edge)
    number(markers)


def number(markers: list[Marker]) -> None:
    for seq, marker in enumerate(markers):
        marker["seq"] = seq


def swapped(markers: list[Marker]) -> None:
    """The last epoch comes after the upload."""
    epoch, upload = edges(markers, "epoch", last(markers)), edges(markers, "upload")
    for a, b in zip(epoch, upload, strict=True):
        i, j = markers.index(a), markers.index(b)
        markers[i], markers[j] = b, a
    times = sorted(m["t_dev_ns"] for m in markers)
    for marker, t_ns in zip(markers, times, strict=True):
        marker["t_dev_ns"] = t_ns
    number(markers)


def at(value: object) -> Callable[[list[Marker]], None]:
    def stamped(markers: list[Marker]) -> None:
        edges(markers, "epoch", 2)[1]["t_dev_ns"] = value

    return stamped


def seq(markers: list[Marker]) -> None:
    """A number that was there before."""
    markers[5]["seq"] = 4


def stretched(markers: list[Marker]) -> None:
    """The last epoch ends a second later, the upload with it."""
    edges(markers, "epoch", last(markers))[1]["t_dev_ns"] += S
    for edge in edges(markers, "upload"):
        edge["t_dev_ns"] += S


def early_train(markers: list[Marker]) -> None:
    """Epoch 2 began while it still waited for the decision."""
    start = edges(markers, "wait")[0]["t_dev_ns"]
    edges(markers, "wait")[1]["t_dev_ns"] = start + 1000
    edges(markers, "epoch", 2)[0]["t_dev_ns"] = start + 2000


def one_moment(markers: list[Marker]) -> None:
    """All of the later epochs and the upload at one moment."""
    at_ns = edges(markers, "epoch", 2)[0]["t_dev_ns"]
    for marker in markers:
        if marker["t_dev_ns"] > at_ns:
            marker["t_dev_ns"] = at_ns


def beyond_the_report(markers: list[Marker]) -> None:
    """The first epoch ends half a second after the device had reported that it was over."""
    edges(markers, "epoch", 1)[1]["t_dev_ns"] += S // 2
    edges(markers, "wait")[0]["t_dev_ns"] += S // 2


def unknown_pause(markers: list[Marker]) -> None:
    """A phase between two epochs that no job has: it was idle."""
    end = edges(markers, "epoch", 2)[1]
    where = markers.index(end) + 1
    idle = {**end, "kind": "idle", "epoch": 0}
    markers[where:where] = [{**idle, "edge": "start"}, {**idle, "edge": "end"}]
    number(markers)


def other_bytes(markers: list[Marker]) -> None:
    for edge in edges(markers, "upload"):
        edge["extra"]["bytes"] *= 1000


def other_pattern(markers: list[Marker]) -> None:
    edges(markers, "sync")[0]["extra"]["bit_ns"] //= 2


MARKERS: dict[str, Callable[[list[Marker]], None]] = {
    "into idle": into_idle,
    "all earlier": shift(-0.3),
    "all later": shift(0.3),
    "reversed": reverse,
    "overlapping": overlap,
    "twice": twice,
    "extra epoch": extra,
    "missing epoch": missing,
    "epoch behind the upload": swapped,
    "stretched": stretched,
    "trained while waiting": early_train,
    "sequence number": seq,
    "all at one moment": one_moment,
    "ends after its report": beyond_the_report,
    "a phase of its own": unknown_pause,
    "negative": at(-5),
    "huge": at(2**63 - 1),
    "beyond 64 bits": at(2**70),
    "not a number": at(float("nan")),
    "a word": at("now"),
    "other size": other_bytes,
    "other pattern": other_pattern,
}
INSIDE: dict[str, Callable[[list[Marker]], None]] = {
    "cut": cut_later,
    "cut and upload": cut_and_upload,
    "a third less": lambda markers: cut_and_upload(markers, 2 / 3),
}
"""Lies that fit between the host's messages."""


def as_told(markers: list[Marker]) -> None:
    """The lie that a file names."""
    MARKERS[Path(os.environ["LIAR_LIE"]).read_text()](markers)


def rewrite(change: Callable[[list[Marker]], None], path: Path) -> None:
    """Change the markers of a journal."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    markers = [record["marker"] for record in records if record["type"] == "marker"]
    truth = os.environ.get("LIAR_TRUTH")
    if truth:
        Path(truth).write_text(json.dumps(markers))
    change(markers)
    where = next(i for i, record in enumerate(records) if record["type"] == "marker")
    kept = [record for record in records if record["type"] != "marker"]
    kept[where:where] = [{"type": "marker", "marker": marker} for marker in markers]
    path.write_text("".join(json.dumps(record) + "\n" for record in kept))


def lie_about_markers(change: Callable[[list[Marker]], None]) -> None:
    from device_agents.payload.job_run import JobRun

    finish = JobRun._finish

    def lying(self: JobRun, code: str, message: str) -> None:
        rewrite(change, self._folder.journal)
        finish(self, code, message)

    JobRun._finish = lying  # type: ignore[method-assign]


def lie_about_pongs(change: Callable[[int, int], int]) -> None:
    """Answer pings with another time, given the true one and how many came before."""
    from device_agents.payload.link.streams import Reader

    dispatch = Reader._dispatch
    count = [0]

    def lying(self: Reader, message: dict[str, Any]) -> None:
        if message["type"] != "ping":
            dispatch(self, message)
            return
        t_ns = change(time.monotonic_ns(), count[0])
        count[0] += 1
        self._sender.send({"type": "pong", "nonce": message.get("nonce"), "t_dev_ns": t_ns})

    Reader._dispatch = lying  # type: ignore[method-assign]


PONGS: dict[str, Callable[[int, int], int]] = {
    "another clock": lambda t_ns, _: t_ns + S // 2,
    "another clock, behind": lambda t_ns, _: t_ns - S // 2,
    "stepped in between": lambda t_ns, n: t_ns + (S // 5 if n >= 20 else 0),
    "scattered": lambda t_ns, n: t_ns + (-1) ** n * S // 10,
    "a clock that stands": lambda _, n: 10**15,
    "a clock that runs a tenth slow": lambda t_ns, _: t_ns - t_ns // 10,
    "a clock that runs backwards": lambda t_ns, _: 10**16 - t_ns,
    "a clock that runs twice as fast": lambda t_ns, _: 2 * t_ns,
}


Words = dict[str, Any]
WORDS: dict[str, tuple[str, Callable[[Words], Words]]] = {
    "a shorter probe": ("probe_done", lambda said: {"duration_ns": said["duration_ns"] // 20}),
    "a longer probe": ("probe_done", lambda said: {"duration_ns": said["duration_ns"] + 3600 * S}),
    "less processor time than in the journal": (
        "done",
        lambda said: {"cpu": {**said["cpu"], "epochs_s": 0.0}},
    ),
    "more processor time than there is": ("done", lambda said: {"cpu": {**said["cpu"], "epochs_s": 1000.0}}),
    "fewer epochs": ("done", lambda said: {"epochs": said["epochs"] - 1}),
    "stopped by itself": ("done", lambda _: {"outcome": "stopped"}),
    "slept for a day": ("done", lambda _: {"suspended_ns": 86_400 * S}),
}


def lie_about_words(what: str) -> None:
    """In messages and in the journal alike, unless it is about their difference."""
    from device_agents.payload.link.conversation import Conversation
    from device_agents.payload.recording.journal import JobJournal

    say, append = Conversation.say, JobJournal.append
    kind, change = WORDS[what]

    def lying(self: Conversation, message: Words, block: bytes = b"") -> None:
        say(self, {**message, **change(message)} if message["type"] == kind else message, block)

    def writing(self: JobJournal, record: Words) -> None:
        both = record["type"] == kind and not what.endswith("journal")
        append(self, {**record, **change(record)} if both else record)

    Conversation.say = lying  # type: ignore[method-assign]
    JobJournal.append = writing  # type: ignore[method-assign]


def lie_the_second_time() -> None:
    """Hand over another journal when it is asked for again."""
    from device_agents.payload.agent import Agent

    collect = Agent._collect
    seen: set[str] = set()

    def lying(self: Agent, command: dict[str, Any]) -> None:
        job_id = str(command.get("job_id"))
        if command.get("file") == "journal" and command.get("offset") == 0:
            if job_id in seen:
                path = self._context.state.job(job_id).path / "journal.jsonl"
                other = r'("epoch":2,"t_dev_ns":\d+)(\d{4}),'
                path.write_text(re.sub(other, r"\g<1>9999,", path.read_text()))
            seen.add(job_id)
        collect(self, command)

    Agent._collect = lying  # type: ignore[method-assign]


def step_the_clock() -> None:
    """The device's clock is moved by 0.2 s when the first epoch begins, and back when the last is over."""
    from device_agents.payload.recording import journal

    now = time.monotonic_ns
    moved = [0]
    time.monotonic_ns = lambda: now() + moved[0]
    stamp = journal.Markers._stamp

    def lying(self: journal.Markers, kind: str, edge: str, epoch: int, extra: dict[str, Any]) -> int:
        if kind == "epoch" and epoch == 1 and edge == "start":
            moved[0] = S // 5
        if kind == "upload" and edge == "end":
            moved[0] = 0
        return stamp(self, kind, edge, epoch, extra)

    journal.Markers._stamp = lying  # type: ignore[method-assign]


def cut_the_probe() -> None:
    """The first epoch took a twentieth of its time, says its report too; the rest was waiting."""
    from device_agents.payload.recording import journal

    truth: list[Marker] = []
    said: dict[tuple[str, str, int], int] = {}

    class Clock:
        thread_time = staticmethod(time.thread_time)
        t_ns = 0

        def monotonic_ns(self) -> int:
            return self.t_ns

    clock = Clock()
    journal.time = clock  # type: ignore[assignment]
    stamp = journal.Markers._stamp

    def lying(self: journal.Markers, kind: str, edge: str, epoch: int, extra: dict[str, Any]) -> int:
        now_ns = clock.t_ns = time.monotonic_ns()
        if (kind, edge, epoch) == ("epoch", "end", 1):
            start_ns = said["epoch", "start", 1]
            clock.t_ns = start_ns + (now_ns - start_ns) // 20
        elif (kind, edge) == ("wait", "start"):
            clock.t_ns = said["epoch", "end", 1] + 1000
        said[kind, edge, epoch] = clock.t_ns
        truth.append({"kind": kind, "edge": edge, "epoch": epoch, "t_dev_ns": now_ns})
        Path(os.environ["LIAR_TRUTH"]).write_text(json.dumps(truth))
        return stamp(self, kind, edge, epoch, extra)

    journal.Markers._stamp = lying  # type: ignore[method-assign]


def call_it_setup() -> None:
    """The first epoch began when all but a fifth of it was over, says its report too; before was setup."""
    from device_agents.payload.job_run import JobRun

    epoch = JobRun._epoch

    def shorter(self: JobRun, trainer: Any, number: int) -> int:
        return epoch(self, trainer, number) // (5 if number == 1 else 1)

    def later(markers: list[Marker]) -> None:
        start, end = edges(markers, "epoch", 1)
        start["t_dev_ns"] = end["t_dev_ns"] - (end["t_dev_ns"] - start["t_dev_ns"]) // 5
        markers[markers.index(start) - 1]["t_dev_ns"] = start["t_dev_ns"]

    JobRun._epoch = shorter  # type: ignore[method-assign]
    lie_about_markers(later)


OTHERS = {
    "called setup": call_it_setup,
    "another journal": lie_the_second_time,
    "a stepped clock": step_the_clock,
    "cut probe": cut_the_probe,
}


def main() -> None:
    lie = sys.argv.pop(1)
    if lie in MARKERS or lie in INSIDE:
        lie_about_markers({**MARKERS, **INSIDE}[lie])
    elif lie == "markers":  # which lie, is said before each job
        lie_about_markers(as_told)
    elif lie in PONGS:
        lie_about_pongs(PONGS[lie])
    elif lie in WORDS:
        lie_about_words(lie)
    elif lie in OTHERS:
        OTHERS[lie]()
    elif lie != "none":
        raise SystemExit(f"no lie {lie!r}")
    from device_agents.payload.agent import main as agent

    agent()


if __name__ == "__main__":
    main()
