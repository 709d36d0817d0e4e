"""Recordings: what an instrument said, on disk, re-decodable, readable in bounded memory.

A recording is a folder::

    recording.json     instrument, limits, timebase, findings, hashes (written last, on a clean close)
    opening.json       what was known when it began, so that a killed recording can be salvaged
    samples.arrows     current_a, voltage_v (and tick, where ticks are not uniform); memory-mappable
    blocks.parquet     one row per batch of samples: index, ticks, gap before it, energy inside it
    raw.bin            the instrument's bytes, exactly as they came
    arrivals.parquet   host time at which the bytes up to an offset had arrived

Samples stay an Arrow stream so that a window of a day-long recording is read without the day (ADR-0004).
"""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
