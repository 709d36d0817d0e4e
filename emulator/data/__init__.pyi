from emulator.data.model import DataSet, Split, image_data_set
from emulator.data.partition import PARTITIONS, Holdings, Partition, make_partition, partition_options
from emulator.data.sources import DATA_SETS, FOLDER_VARIABLE, data_folder, load_data_set

__all__ = [
    "DATA_SETS", "FOLDER_VARIABLE", "PARTITIONS", "DataSet", "Holdings", "Partition", "Split",
    "data_folder", "image_data_set", "load_data_set", "make_partition", "partition_options",
]  # fmt: skip
