"""One federated round: the engine, the rules, who is asked, what it costs, what the server gets to know."""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
