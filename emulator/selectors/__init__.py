"""Client selectors, one file each; `emulator.selectors.registry.SELECTORS` lists them."""

from joulefleet.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__)
