"""Client selectors, one file each; `emulator.selectors.registry.SELECTORS` lists them."""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
