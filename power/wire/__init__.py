"""Wire formats: pure functions and state machines from bytes to samples, no input or output."""

from joulefleet.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__)
