"""Code that the user names: a task, selectors, rewards and aggregations, from a file or an installed package.

Nothing is run because a file of ours says so. A scenario and a run folder hold names and hashes; the code
itself comes from the command line (``--code``), from the caller, or from what is installed.
"""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
