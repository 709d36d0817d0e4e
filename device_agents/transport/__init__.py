"""How the host reaches a device: run a command, keep one running, move files. Local process or SSH."""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
