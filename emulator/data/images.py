"""MNIST, Fashion-MNIST, CIFAR-10: published files where present, else torchvision. FEMNIST by writer."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from emulator.data.model import DataSet, Split, halves, image_data_set
from emulator.data.sources import FOLDER_VARIABLE, DataSource
from joulefleet.budgets import ARRAY_BYTES, npz_arrays
from joulefleet.errors import DataQualityError, StorageError

_IDX_UINT8 = 8  # the type byte of the idx header
_CIFAR_RECORD = 1 + 3 * 32 * 32


def mnist(source: DataSource) -> DataSet:
    """60,000 + 10,000 handwritten digits."""
    return _idx_data_set(source, "mnist", "MNIST", note="MNIST (LeCun et al. 1998)")


def fashionmnist(source: DataSource) -> DataSet:
    """60,000 + 10,000 articles of clothing."""
    return _idx_data_set(
        source, "fashionmnist", "FashionMNIST", note="Fashion-MNIST (Xiao et al. 2017), MIT licence"
    )


def cifar10(source: DataSource) -> DataSet:
    """50,000 + 10,000 colour images."""
    batches = source.find("cifar-10-batches-bin", "cifar10/cifar-10-batches-bin", "cifar10")
    if batches is not None and (batches / "test_batch.bin").exists():
        train = _joined([_cifar_batch(batches / f"data_batch_{number}.bin") for number in range(1, 6)])
        held_out = _cifar_batch(batches / "test_batch.bin")
    else:
        train, held_out = (_from_torchvision(source, "CIFAR10", train=train) for train in (True, False))
    validation, test = halves(held_out, source.rng("cifar10"))
    return image_data_set("cifar10", 10, train, validation, test, note="CIFAR-10 (Krizhevsky 2009)")


def femnist(source: DataSource) -> DataSet:
    """Handwritten digits by who wrote them: a group per writer, as the file has it."""
    names = ("femnist-subset/femnist_subset.npz", "femnist_subset.npz")
    path = source.require("FEMNIST", *names)
    try:
        arrays = npz_arrays(path, ("x", "y", "client", "is_test"))
        x, y, writer = arrays["x"], arrays["y"].astype(np.int64), arrays["client"].astype(np.int64)
        held_out = arrays["is_test"].astype(bool)
        if x.dtype != np.uint8 or x.shape != (len(y), 28, 28) or not len(y) == len(writer) == len(held_out):
            raise ValueError(f"images of shape {x.shape} and {len(y)} labels")
    except (OSError, ValueError, KeyError) as error:
        raise DataQualityError(f"{path}: not the arrays x, y, client, is_test ({error})") from error
    whole = Split(x[:, np.newaxis], y, writer)
    train, rest = whole.take(np.flatnonzero(~held_out)), whole.take(np.flatnonzero(held_out))
    validation, test = halves(rest, source.rng("femnist"))
    note = (
        "FEMNIST digits (Caldas et al. 2018), a subset by client; that each is one writer is the file's word"
    )
    return image_data_set("femnist", 10, train, validation, test, note=note)


def _idx_data_set(source: DataSource, name: str, torchvision_name: str, *, note: str) -> DataSet:
    folder = source.find(name, f"{torchvision_name}/raw")
    if folder is not None and _idx_path(folder, "train-images-idx3-ubyte") is not None:
        train, held_out = (_idx_split(folder, part) for part in ("train", "t10k"))
    else:
        train, held_out = (
            _from_torchvision(source, torchvision_name, train=train) for train in (True, False)
        )
    validation, test = halves(held_out, source.rng(name))
    return image_data_set(name, 10, train, validation, test, note=note)


def _idx_split(folder: Path, part: str) -> Split:
    images = _read_idx(folder, f"{part}-images-idx3-ubyte")
    labels = _read_idx(folder, f"{part}-labels-idx1-ubyte")
    return Split(images[:, np.newaxis], labels.astype(np.int64))


def _idx_path(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / f"{name}.gz", folder / name) if path.exists()), None)


def _unpacked(path: Path) -> bytes:
    """At most what any such data set has: a few packed bytes can hold any number of zeros."""
    with gzip.open(path) as file:
        data = file.read(ARRAY_BYTES + 1)
    if len(data) > ARRAY_BYTES:
        raise ValueError(f"more than {ARRAY_BYTES >> 20} MB unpacked")
    return data


def _read_idx(folder: Path, name: str) -> NDArray[np.uint8]:
    """One file of the idx format: two zeros, type, number of axes, big-endian sizes, then the values."""
    path = _idx_path(folder, name)
    if path is None:
        raise StorageError(f"{folder / name}: missing, also with .gz")
    try:
        data = _unpacked(path) if path.suffix == ".gz" else path.read_bytes()
        _, kind, axes = struct.unpack_from(">HBB", data)
        shape = struct.unpack_from(f">{axes}I", data, 4)
        values = np.frombuffer(data, np.uint8, offset=4 + 4 * axes)
        if kind != _IDX_UINT8 or values.size != np.prod(shape):
            raise ValueError(f"header says type {kind}, shape {shape}; {values.size} bytes follow")
        return values.reshape(shape)
    except (OSError, EOFError, struct.error, zlib.error, ValueError) as error:
        raise DataQualityError(f"{path}: not a whole idx file ({error})", hint="fetch it again") from error


def _cifar_batch(path: Path) -> Split:
    """One official binary batch: a label byte, then 3072 bytes of pixels, channels first."""
    try:
        raw = np.frombuffer(path.read_bytes(), np.uint8)
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}") from error
    if raw.size == 0 or raw.size % _CIFAR_RECORD:
        raise DataQualityError(f"{path}: {raw.size} bytes are not whole records", hint="fetch it again")
    records = raw.reshape(-1, _CIFAR_RECORD)
    return Split(records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64))


def _joined(splits: list[Split]) -> Split:
    return Split(np.concatenate([split.x for split in splits]), np.concatenate([split.y for split in splits]))


def _from_torchvision(source: DataSource, name: str, *, train: bool) -> Split:
    from emulator.data.vision import torchvision

    try:
        data = getattr(torchvision().datasets, name)(
            str(source.folder), train=train, download=source.download
        )
    except (RuntimeError, OSError) as error:
        why = f" and could not be fetched: {error}" if source.download else ", and was not to be fetched"
        raise StorageError(
            f"{name} is not in {source.folder}{why}",
            hint=f"put its files there, or name the folder that has them in {FOLDER_VARIABLE}",
        ) from error
    images = np.asarray(data.data)
    channels_first = images[:, np.newaxis] if images.ndim == 3 else np.moveaxis(images, -1, 1)
    return Split(np.ascontiguousarray(channels_first), np.asarray(data.targets, np.int64))
