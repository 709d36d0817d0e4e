from emulator.runs.assembly import assemble, make_selector, reward_rules_of, rules_of
from emulator.runs.batch import BatchEntry, BatchIndex, PlannedEmulation, plan, play, reopen, start
from emulator.runs.checkpoint import load_checkpoint, save_checkpoint
from emulator.runs.learners import Learners, data_of, learners_of, metric_of, task_of
from emulator.runs.reading import FinishedRun
from emulator.runs.result import EMULATION_FILE, EmulationRecord
from emulator.runs.tables import KNOWN_COSTS, METRIC_PREFIX, N_UNKNOWN, RunLog

__all__ = [
    "EMULATION_FILE", "KNOWN_COSTS", "METRIC_PREFIX", "N_UNKNOWN", "BatchEntry", "BatchIndex",
    "EmulationRecord", "FinishedRun", "Learners", "PlannedEmulation", "RunLog", "assemble", "data_of",
    "learners_of", "load_checkpoint", "make_selector", "metric_of", "plan", "play", "reopen",
    "reward_rules_of", "rules_of", "save_checkpoint", "start", "task_of",
]  # fmt: skip
