from emulator.scenario.load import preset_summaries, preset_text, scenario_text
from emulator.scenario.model import (
    BatterySection,
    FleetSection,
    InterferenceSection,
    ProtocolSection,
    RewardSection,
    SelectorSection,
    TaskSection,
    TracesSection,
    TrainerSection,
    VariationSection,
)

__all__ = [
    "BatterySection", "FleetSection", "InterferenceSection", "ProtocolSection", "RewardSection",
    "SelectorSection", "TaskSection", "TracesSection", "TrainerSection", "VariationSection",
    "preset_summaries", "preset_text", "scenario_text",
]  # fmt: skip
