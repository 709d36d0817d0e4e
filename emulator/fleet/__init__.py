"""The truth about N devices: what they are, what happens to them, their batteries, their network.

Only the engine sees it; selectors see `emulator.round.view.ServerView`.
"""

from joulefleet.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__)
