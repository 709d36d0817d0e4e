"""The common ground below every other package: errors, configuration, provenance, seeds, run store."""

__version__ = "0.1.0.dev0"
