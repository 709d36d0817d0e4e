"""One federated round: the engine, the rules, who is asked, what it costs, what the server gets to know."""

from joulefleet.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__)
