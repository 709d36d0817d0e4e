"""From samples to joules: windows of time, integration, idle power, noise, and one interval for all of it."""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
