"""Client selectors, one file each; `emulator.selectors.base.SELECTORS` lists them."""
