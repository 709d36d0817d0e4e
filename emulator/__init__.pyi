from emulator.runs.batch import resume as resume
from emulator.runs.batch import run as run

__all__ = ["resume", "run"]
