"""The truth about N devices: what they are, what happens to them, their batteries, their network.

Only the engine sees it; selectors see `emulator.round.view.ServerView`.
"""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
