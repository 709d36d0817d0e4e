"""Local training of many clients as one job; `emulator.training.base.Trainer` is the seam."""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
