from emulator.compare.load import BASELINE, load_emulations
from emulator.compare.metrics import participations
from emulator.compare.render import as_csv, as_data, as_latex, as_markdown, as_text
from emulator.compare.table import finishing_warnings
from emulator.compare.titles import METRICS, SHOWN

__all__ = [
    "BASELINE", "METRICS", "SHOWN", "as_csv", "as_data", "as_latex", "as_markdown",
    "as_text", "finishing_warnings", "load_emulations", "participations",
]  # fmt: skip
