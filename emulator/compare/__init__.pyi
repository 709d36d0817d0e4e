from emulator.compare.load import BASELINE, load_emulations
from emulator.compare.render import as_csv, as_data, as_latex, as_markdown, as_text, interval_text
from emulator.compare.titles import METRICS, SHOWN

__all__ = [
    "BASELINE", "METRICS", "SHOWN", "as_csv", "as_data", "as_latex", "as_markdown",
    "as_text", "interval_text", "load_emulations",
]  # fmt: skip
