"""`emulate`: one selector with one seed, from its first round to its last, into a folder of a run."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from emulator.round.engine import Engine
from emulator.round.outcome import RoundOutcome
from emulator.round.selector import Selector
from emulator.runs.assembly import assemble
from emulator.runs.checkpoint import forget_if_planned, load_checkpoint, save_checkpoint
from emulator.runs.result import EMULATION_FILE, EmulationRecord, Result, tested_as
from emulator.runs.tables import RunLog, has_rounds
from emulator.scenario.model import Scenario
from emulator.training.base import OpenTrainer
from joulefleet.errors import ConfigError, DamagedEmulation, NobodyLeft, StorageError, describe
from joulefleet.records import read_record, write_record
from joulefleet.runstore import Run
from power import DeviceProfile

OnRound = Callable[[RoundOutcome], None]
CHECKPOINT_PERIOD_S = 1.0
"""Shortest time between checkpoints: rounds of milliseconds are sooner played again than made durable."""
NOTED_LATER = (
    *("profiles_sha256", "selector_options", "local_accuracy", "task", "metric", "selector_sha256"),
    *("floors", "clock_notes", "behaviour", "budget_rule"),
)
"""Facts that earlier versions did not note: a run begun by one goes on as before."""
_log = logging.getLogger(__name__)


def emulate(
    run: Run,
    scenario: Scenario,
    seed: int,
    *,
    folder: str = "",
    swept: tuple[str, ...] = (),
    selector: Selector | None = None,
    profiles: Sequence[DeviceProfile] | None = None,
    open_trainer: OpenTrainer | None = None,
    on_round: OnRound = lambda _: None,
) -> Result:
    """Run or continue one (selector, seed) in a folder of a run; the last arguments as in `assemble`.

    One that is finished goes on if its scenario now has more rounds.
    """
    path = run.subfolder(folder)
    known = read_record(path / EMULATION_FILE, EmulationRecord) if (path / EMULATION_FILE).exists() else None
    if known is not None:
        _check_scenario(path, known, scenario, seed)
    # What ``auto`` became decides the bits of the result, and may differ between machines.
    exact = scenario if known is None else _with_trainer(scenario, str(known.facts["trainer"]))
    assembly = assemble(exact, seed, selector=selector, profiles=profiles, open_trainer=open_trainer)
    engine = assembly.engine
    try:
        if known is not None:
            _check_facts(path, known.facts, assembly.facts)
            if known.scenario != scenario:
                forget_if_planned(path)
        record = EmulationRecord(
            scenario=scenario, seed=seed, facts=(known or assembly).facts, swept=swept or None
        )
        resume_after = None if known is None else _continue(engine, path)
        if record != known:  # new, or finished until now
            write_record(path / EMULATION_FILE, record, replace=True)
        with opened_log(run, engine, folder, resume_after) as log:
            ended_early = _play(engine, log, path, scenario.checkpoint_every, on_round)
        assembly.devices.write(path)
        accuracy = engine.test().accuracy
    finally:
        engine.trainer.close()
    record = record.model_copy(
        update={
            "rounds": engine.round,
            **tested_as(record.metric, accuracy),
            "ended_early": ended_early,
        }
    )
    write_record(path / EMULATION_FILE, record, replace=True)
    return Result(path, record)


def _check_scenario(path: Path, known: EmulationRecord, scenario: Scenario, seed: int) -> None:
    """Notice a stored scenario that is not the run's; only rounds may have been added."""
    stored, now = known.scenario.model_dump(mode="json"), scenario.model_dump(mode="json")
    if stored["protocol"]["rounds"] < now["protocol"]["rounds"]:
        stored["protocol"]["rounds"] = now["protocol"]["rounds"]
    changed = [
        f"{part}.{key}" if isinstance(now[part], dict) else part
        for part in now
        for key in (now[part] if isinstance(now[part], dict) else [""])
        if (stored[part] != now[part] if not key else stored[part].get(key) != now[part][key])
    ]
    if changed or known.seed != seed:
        raise ConfigError(
            f"{path / EMULATION_FILE}: is of another scenario than its run ({', '.join(changed) or 'seed'})",
            hint="it was edited: put it back as it was, or remove the folder, and the emulation begins again",
        )


def _check_facts(path: Path, begun: dict[str, Any], now: dict[str, Any]) -> None:
    """A run goes on with what it was begun with, or not at all."""
    # As they read back, so that a tuple is no other fact than the list it was stored as.
    now = json.loads(json.dumps(now))
    held = [name for name in now if name in begun or name not in NOTED_LATER]
    changed = [name for name in held if name not in begun or begun[name] != now[name]]
    if changed:
        raise ConfigError(
            f"{path}: was begun with other facts: {', '.join(changed)}",
            hint="what it rests on (data, traces, profiles, policies) must be as it was; or run it anew",
        )


def _with_trainer(scenario: Scenario, kind: str) -> Scenario:
    return scenario.model_copy(update={"trainer": scenario.trainer.model_copy(update={"kind": kind})})


def _continue(engine: Engine, path: Path) -> int:
    """Bring an engine to the last checkpoint; returns its round, -1 if the run starts again."""
    try:
        state = load_checkpoint(path)
        if state is None:
            return -1
        if not has_rounds(path, state["round"]):
            _log.warning("%s: its tables lack rounds before the checkpoint, so it begins again", path)
            return -1
        engine.load_state_dict(state)
    except StorageError as error:
        raise DamagedEmulation(error.message, hint=error.hint) from error
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError) as error:
        raise DamagedEmulation(
            f"{path}: its checkpoint is not one of such a run ({describe(error)})"
        ) from error
    return engine.round


def opened_log(run: Run, engine: Engine, folder: str, resume_after: int | None = None) -> RunLog:
    """The log of an engine's rounds, whoever asks it for them; ``resume_after`` as in `RunLog`."""
    every = engine.rules.test_every
    # What was the last round, and so was tested, may be one among others now.
    untested = bool(resume_after) and not (every and engine.round % every == 0) and not engine.done
    return RunLog(
        run,
        engine.world.fleet.origin,
        training=engine.trainer.implementation,
        metrics=sorted(engine.selector.metrics()),
        folder=folder,
        resume_after=resume_after,
        untested=untested,
        metric=engine.reward_rules.metric.name,
    )


def log_round(log: RunLog, engine: Engine, outcome: RoundOutcome) -> None:
    """Store what an engine has just played."""
    test_every = engine.rules.test_every
    tested = engine.done or (test_every and outcome.round % test_every == 0)
    log.append(
        outcome,
        eligible=engine.eligible,
        loss=engine.score.loss,
        test_accuracy=engine.test().accuracy if tested else math.nan,
        overhead_s=engine.chooser.overhead_s,
        metrics=engine.selector.metrics(),
        motion=engine.motion.counts() | engine.levels,
    )


def _play(engine: Engine, log: RunLog, path: Path, every: int, on_round: OnRound) -> str:
    """Play what is left; returns why that was not all, if so."""
    saved_at_s = -math.inf
    while not engine.done:
        try:
            outcome = engine.play()
        except NobodyLeft as error:
            if not engine.round:
                raise
            return error.message
        log_round(log, engine, outcome)
        due = time.monotonic() - saved_at_s >= CHECKPOINT_PERIOD_S
        if every and outcome.round % every == 0 and due:
            log.sync()
            save_checkpoint(path, engine.state_dict())
            saved_at_s = time.monotonic()
        on_round(outcome)
    return ""
