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
    "TaskSection", "TracesSection", "TrainerSection", "preset_summaries", "preset_text",
    "scenario_text",
]  # fmt: skip
