from emulator.runs.assembly import (
    Assembly,
    assemble,
    check_learnable,
    make_selector,
    reward_rules_of,
    rules_of,
)  # fmt: skip
from emulator.runs.batch import play
from emulator.runs.checkpoint import load_checkpoint, save_checkpoint
from emulator.runs.dry_run import Outlook, look_ahead
from emulator.runs.emulation import log_round, opened_log
from emulator.runs.fleet_inputs import with_behaviour
from emulator.runs.learners import Learners, data_of, learners_of, metric_of, task_of
from emulator.runs.opening import reopen, resuming, start, stoppable, stopped
from emulator.runs.planning import BatchEntry, BatchIndex, PlannedEmulation, check_selectors, plan
from emulator.runs.reading import FinishedRun
from emulator.runs.replay.course import Course, course_of
from emulator.runs.replay.floors import Floors
from emulator.runs.replay.happened import Replay, Week, replay_of, span, week_of
from emulator.runs.replay.penalties import Penalties, penalties_of, share
from emulator.runs.result import EMULATION_FILE, EmulationRecord, emulations_below
from emulator.runs.tables import KNOWN_COSTS, METRIC_PREFIX, N_UNKNOWN, RunLog, read_log

__all__ = [
    "EMULATION_FILE", "KNOWN_COSTS", "METRIC_PREFIX", "N_UNKNOWN", "Assembly", "BatchEntry", "BatchIndex",
    "Course", "EmulationRecord", "FinishedRun", "Floors", "Learners", "Outlook", "Penalties",
    "PlannedEmulation", "Replay", "RunLog", "Week", "assemble", "check_learnable", "check_selectors",
    "course_of", "data_of", "emulations_below", "learners_of", "load_checkpoint", "log_round", "look_ahead",
    "make_selector", "metric_of", "opened_log", "penalties_of", "plan", "play", "read_log", "reopen",
    "replay_of", "resuming", "reward_rules_of", "rules_of", "save_checkpoint", "share", "span", "start",
    "stoppable", "stopped", "task_of", "week_of", "with_behaviour",
]  # fmt: skip
