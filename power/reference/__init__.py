"""The reference fleet: phone profiles from published facts, for when nobody has measured yet."""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
