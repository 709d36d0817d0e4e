"""Byte-level emulators of the instruments, part of the product: a bench without hardware."""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "power.emulated.options": ("EmulatorOptions",),
        "power.emulated.service": (
            "EMULATORS",
            "Emulator",
            "EmulatorProcess",
            "build_emulator",
            "in_thread",
            "serve",
        ),
    },
)
