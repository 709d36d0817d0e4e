from emulator.data.partition import PARTITIONS, Holdings, Partition, make_partition, partition_options
from emulator.data.sources import FOLDER_VARIABLE, data_folder, load_data_set

__all__ = [
    "FOLDER_VARIABLE", "PARTITIONS", "Holdings", "Partition", "data_folder", "image_data_set", "load_data_set",
    "make_partition", "partition_options",
]  # fmt: skip
