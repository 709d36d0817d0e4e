"""The user's tool: devices on the bench, their clocks and profiles, rounds on them, pages, commands.

`run_bench`, `run_probing` and `run_federation` measure; `open_run` opens what any of them, or the emulator,
has stored; `write_outputs` makes its page. The command line is `harness.cli`.
"""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
