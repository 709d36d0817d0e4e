"""Draws people from a usage model."""
