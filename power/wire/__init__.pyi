from power.wire.decoder import Decoded, Decoder
from power.wire.hvpm import HvpmDecoder
from power.wire.ina219.csv_decoder import CsvScale, Ina219CsvDecoder
from power.wire.ina219.csv_rows import CsvFormat
from power.wire.ina219.decoder import Ina219Decoder
from power.wire.lvpm import LvpmDecoder

__all__ = [
    "CsvFormat", "CsvScale", "Decoded", "Decoder", "HvpmDecoder", "Ina219CsvDecoder", "Ina219Decoder",
    "LvpmDecoder",
]  # fmt: skip
