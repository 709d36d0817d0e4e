"""From samples to joules: windows of time, integration, idle power, noise, and one interval for all of it."""

from joulefleet.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__)
