from emulator.round.accounting import counted, honest_time_s, round_costs, vanilla_cost
from emulator.round.budgets import budgets_of
from emulator.round.chooser import Chooser, check_size
from emulator.round.engine import Engine
from emulator.round.learning import RoundLearning
from emulator.round.outcome import ClientCost, RoundCost
from emulator.round.phases import OpenRound
from emulator.round.reports import Reported, file_reports, round_reports
from emulator.round.reward import REWARDS, BudgetRule, Budgets
from emulator.round.rules import Aggregation, RewardRules, RoundRules
from emulator.round.timeline import Timeline
from emulator.round.view import ALWAYS_SHOWN, PRIVILEGED_FIELDS, VIEW_FIELDS

__all__ = [
    "ALWAYS_SHOWN", "PRIVILEGED_FIELDS", "REWARDS", "VIEW_FIELDS", "Aggregation", "BudgetRule",
    "Budgets", "Chooser", "ClientCost", "Engine", "OpenRound", "Reported", "RewardRules", "RoundCost",
    "RoundLearning", "RoundRules", "Timeline", "budgets_of", "check_size", "counted", "file_reports",
    "honest_time_s", "round_costs", "round_reports", "vanilla_cost",
]  # fmt: skip
