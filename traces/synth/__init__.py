"""A fitted generator of interaction traces.

`model` is what is fitted and shipped, `spells` what is counted in recorded traces, `fit` turns counts into
a model, `process` and `grid` draw from it, `write` stores what was drawn, `fidelity` compares it with people
whom it never saw.
"""
