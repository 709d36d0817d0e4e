from emulator.compare.load import ComparedRuns, compare_emulations, load_results
from emulator.data.model import DataSet, Split
from emulator.data.sources import DATA_SETS
from emulator.environment import EmulatorEnv
from emulator.round.outcome import Accounting, Fate, RoundOutcome
from emulator.round.selector import Family, Probe, Profiling, Selector
from emulator.round.view import ServerView
from emulator.runs.batch import resume, run, run_all
from emulator.runs.result import BatchResult, Result, load_result
from emulator.scenario.load import load_scenario
from emulator.scenario.model import Scenario
from emulator.selectors.registry import SELECTORS
from emulator.training.base import Trainer

__all__ = [
    "DATA_SETS", "SELECTORS", "Accounting", "BatchResult", "ComparedRuns", "DataSet", "EmulatorEnv",
    "Family", "Fate", "Probe", "Profiling", "Result", "RoundOutcome", "Scenario", "Selector",
    "ServerView", "Split", "Trainer", "compare_emulations", "load_result", "load_results", "load_scenario",
    "resume", "run", "run_all",
]  # fmt: skip
