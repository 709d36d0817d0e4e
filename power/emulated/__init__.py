"""Byte-level emulators of the instruments, part of the product: a bench without hardware."""

from joulefleet.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__)
