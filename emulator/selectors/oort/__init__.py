"""Oort in three modes: as the paper describes it, and as two published classes decide.

`settings` holds the parameters and each mode's defaults, `arms` what is known of every device, `draws` who
rolls the dice, `official` and `variants` the decision rules, `selector` the method as the engine
sees it.
"""
