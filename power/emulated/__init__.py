"""Byte-level emulators of the instruments, part of the product: a bench without hardware."""
