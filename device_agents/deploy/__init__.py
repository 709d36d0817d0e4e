"""Puts the agent on a device: what the device needs, the payload as one file, upload and start."""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
