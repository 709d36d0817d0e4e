"""Pretrained policies of the learning selectors: the files (``trained/``), and how they are made."""

from joulefleet.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__)
