"""A fitted generator of interaction traces.

`model` is what is fitted and shipped; `fit` counts recorded traces and turns the counts into a model, `draw`
draws people from it, `write` stores them as a trace set, `fidelity` compares them with people whom the fit
never saw.
"""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
