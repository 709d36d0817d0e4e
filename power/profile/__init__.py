"""What a device takes for one model: the profile as stored, its load curve, and many profiles as arrays."""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
