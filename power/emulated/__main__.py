"""``python -m power.emulated KIND OPTIONS_JSON``: one emulated instrument as a process."""

import sys

from power.emulated.options import EmulatorOptions
from power.emulated.service import main

main(sys.argv[1], EmulatorOptions.model_validate_json(sys.argv[2] if len(sys.argv) > 2 else "{}"))
