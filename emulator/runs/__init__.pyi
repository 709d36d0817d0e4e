from emulator.runs.assembly import assemble, make_selector, reward_rules_of, rules_of
from emulator.runs.batch import play
from emulator.runs.checkpoint import load_checkpoint, save_checkpoint
from emulator.runs.dry_run import Outlook, look_ahead
from emulator.runs.emulation import log_round, opened_log
from emulator.runs.fleet_inputs import with_behaviour
from emulator.runs.learners import Learners, data_of, learners_of, metric_of, task_of
from emulator.runs.opening import reopen, resuming, start, stoppable, stopped
from emulator.runs.planning import BatchEntry, BatchIndex, PlannedEmulation, check_selectors, plan
from emulator.runs.reading import FinishedRun
from emulator.runs.replay.floors import Floors
from emulator.runs.replay.happened import Replay, Week, replay_of, span, week_of
from emulator.runs.result import EMULATION_FILE, EmulationRecord
from emulator.runs.tables import KNOWN_COSTS, METRIC_PREFIX, N_UNKNOWN, RunLog

__all__ = [
    "EMULATION_FILE", "KNOWN_COSTS", "METRIC_PREFIX", "N_UNKNOWN", "BatchEntry", "BatchIndex",
    "EmulationRecord", "FinishedRun", "Floors", "Learners", "Outlook", "PlannedEmulation", "Replay", "RunLog",
    "Week", "assemble", "check_selectors", "data_of", "learners_of", "load_checkpoint", "log_round",
    "look_ahead", "make_selector", "metric_of", "opened_log", "plan", "play", "reopen", "replay_of",
    "resuming", "reward_rules_of", "rules_of", "save_checkpoint", "span", "start", "stoppable", "stopped",
    "task_of", "week_of", "with_behaviour",
]  # fmt: skip
