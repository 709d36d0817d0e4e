"""Byte-level emulators of the instruments, part of the product: a bench without hardware."""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
