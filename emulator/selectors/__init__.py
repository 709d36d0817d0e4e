"""Client selectors, one file each; `emulator.selectors.registry.SELECTORS` lists them."""
