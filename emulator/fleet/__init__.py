"""The truth about N devices: what they are (`state`), what happens to them (`conditions`), their batteries.

Only the engine sees it; selectors see `emulator.round.view.ServerView`.
"""
