"""The reference fleet: phone profiles from published facts, for when nobody has measured yet."""

from joulefleet.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__)
