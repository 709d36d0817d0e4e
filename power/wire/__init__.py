"""Wire formats: pure functions and state machines from bytes to samples, no input or output."""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "power.wire.decoder": ("Decoded", "Decoder"),
        "power.wire.hvpm": ("HvpmDecoder",),
        "power.wire.ina219": ("Ina219Decoder",),
        "power.wire.ina219_csv": ("CsvScale", "Ina219CsvDecoder"),
        "power.wire.ina219_csv_rows": ("CsvFormat",),
        "power.wire.lvpm": ("LvpmDecoder",),
    },
)
