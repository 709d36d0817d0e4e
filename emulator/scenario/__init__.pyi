from emulator.scenario.code import check_code, with_code
from emulator.scenario.load import preset_summaries, preset_text, scenario_text
from emulator.scenario.model import (
    BatterySection,
    FleetSection,
    ProtocolSection,
    RewardSection,
    SelectorSection,
    TaskSection,
    TracesSection,
    TrainerSection,
)

__all__ = [
    "BatterySection", "FleetSection", "ProtocolSection", "RewardSection", "SelectorSection",
    "TaskSection", "TracesSection", "TrainerSection", "check_code", "preset_summaries", "preset_text",
    "scenario_text", "with_code",
]  # fmt: skip
