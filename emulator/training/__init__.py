"""Local training of many clients as one job; `emulator.training.base.Trainer` is the seam."""

from joulefleet.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__)
