from emulator.scenario.load import load_scenario, preset_names
from emulator.scenario.model import Scenario

__all__ = ["Scenario", "load_scenario", "preset_names"]
