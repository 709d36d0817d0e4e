"""The paper's table and figures as lists of emulations, and what is read off them.

Plans and results are here. Public modules besides: `behaviour`, `curves`, `effort`, `render`, `runner`,
`vanilla`.
"""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
