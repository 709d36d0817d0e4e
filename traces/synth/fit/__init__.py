"""Fits a usage model on recorded traces."""
