from power.emulated.options import EmulatorOptions
from power.emulated.service import EMULATORS, Emulator, EmulatorProcess, build_emulator, in_thread, serve

__all__ = [
    "EMULATORS", "Emulator", "EmulatorOptions", "EmulatorProcess", "build_emulator", "in_thread", "serve",
]  # fmt: skip
