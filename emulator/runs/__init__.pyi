from emulator.runs.assembly import assemble, make_selector, reward_rules_of, rules_of
from emulator.runs.batch import BatchEntry, BatchIndex, PlannedEmulation, plan, play, reopen, start
from emulator.runs.checkpoint import load_checkpoint, save_checkpoint
from emulator.runs.fleet_inputs import with_behaviour
from emulator.runs.floors import Floors
from emulator.runs.learners import Learners, data_of, learners_of, task_of
from emulator.runs.outlook import Outlook, look_ahead
from emulator.runs.reading import FinishedRun
from emulator.runs.replayed import Replay, Week, replay_of, span, week_of
from emulator.runs.result import EMULATION_FILE, EmulationRecord
from emulator.runs.tables import KNOWN_COSTS, METRIC_PREFIX, N_UNKNOWN, RunLog

__all__ = [
    "EMULATION_FILE", "KNOWN_COSTS", "METRIC_PREFIX", "N_UNKNOWN", "BatchEntry", "BatchIndex",
    "EmulationRecord", "FinishedRun", "Floors", "Learners", "Outlook", "PlannedEmulation", "Replay", "RunLog",
    "Week", "assemble", "data_of", "learners_of", "load_checkpoint", "look_ahead", "make_selector", "plan",
    "play", "reopen", "replay_of", "reward_rules_of", "rules_of", "save_checkpoint", "span", "start",
    "task_of", "week_of", "with_behaviour",
]  # fmt: skip
