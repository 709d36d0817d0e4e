from emulator.scenario.code import check_code, with_code
from emulator.scenario.load import preset_names, preset_summaries, preset_text, scenario_text
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
from emulator.scenario.settings import selectors_in, settings_in
from emulator.scenario.sweep import method_label

__all__ = [
    "BatterySection", "FleetSection", "InterferenceSection", "ProtocolSection", "RewardSection",
    "SelectorSection", "TaskSection", "TracesSection", "TrainerSection", "VariationSection", "check_code",
    "method_label", "preset_names", "preset_summaries", "preset_text", "scenario_text", "selectors_in",
    "settings_in", "with_code",
]  # fmt: skip
