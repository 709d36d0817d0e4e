"""Pretrained policies of the learning selectors: the files (``trained/``), and how they are made."""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
