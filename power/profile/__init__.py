"""What a device takes for one model: the profile as stored, its load curve, and many profiles as arrays."""

from joulefleet.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__)
