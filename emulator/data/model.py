"""`DataSet`: what a federated task learns from, as arrays, with the splits that keep it honest."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulefleet.errors import DataQualityError


@dataclass(frozen=True, slots=True)
class Split:
    """Samples and their classes, or other targets.

    Attributes:
        x: One row per sample: uint8 images (channels first), float32 numbers or int64 tokens.
        y: The class of each sample, or of each of its tokens (int64); or numbers to predict (float32).
        groups: To whom each sample belongs (a speaker, a writer), where the data says so.
    """

    x: NDArray[Any]
    y: NDArray[Any]
    groups: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.y)

    def take(self, indices: NDArray[np.int64]) -> Split:
        """The samples at ``indices``, copied."""
        groups = None if self.groups is None else self.groups[indices]
        return Split(self.x[indices], self.y[indices], groups)


@dataclass(frozen=True, slots=True)
class DataSet:
    """A data set in its three parts.

    Attributes:
        name: Registered name.
        classes: Number of classes; 0 if the targets are numbers.
        train: What the devices share among them.
        validation: What the server has for itself; rewards come from it.
        test: For reports only; nothing is ever chosen or rewarded by it.
        note: Where it comes from and under which licence.
        mean: Of the training images' channels in 0 to 1, by which uint8 images are centred.
        std: Likewise, by which they are scaled.
    """

    name: str
    classes: int
    train: Split
    validation: Split
    test: Split
    note: str
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name in ("train", "validation", "test"):
            self._check(name, getattr(self, name))

    @property
    def input_shape(self) -> tuple[int, ...]:
        """One sample."""
        return tuple(self.train.x.shape[1:])

    @property
    def has_labels(self) -> bool:
        """Whether each sample is of one class, by which samples can be dealt out and counted."""
        return bool(self.classes) and self.train.y.ndim == 1

    def inputs(self, x: NDArray[Any]) -> NDArray[Any]:
        """Samples as a model takes them: images as normalised float32, anything else as it is."""
        if x.dtype != np.uint8:
            return x
        channels = (-1, *(1 for _ in self.input_shape[1:]))
        mean, std = (np.asarray(value, np.float32).reshape(channels) for value in (self.mean, self.std))
        result: NDArray[np.float32] = (x * np.float32(1 / 255) - mean) / std
        return result

    def sha256(self) -> str:
        """Hash of everything in it, for a run's manifest."""
        digest = hashlib.sha256(repr((self.classes, self.mean, self.std)).encode())
        for split in (self.train, self.validation, self.test):
            for array in (split.x, split.y):
                digest.update(repr((array.dtype.str, array.shape)).encode())
                digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def _check(self, name: str, split: Split) -> None:
        where = f"data set {self.name!r}, {name} split"
        if len(split.x) != len(split.y) or split.x.shape[1:] != self.train.x.shape[1:]:
            raise DataQualityError(
                f"{where}: {len(split.y)} labels do not fit samples of shape {split.x.shape}"
            )
        if split.y.shape[1:] != self.train.y.shape[1:]:
            raise DataQualityError(
                f"{where}: targets of shape {split.y.shape}, to train {self.train.y.shape}"
            )
        if split.x.dtype not in (np.uint8, np.float32, np.int64):
            raise DataQualityError(
                f"{where}: samples are {split.x.dtype}",
                hint="use uint8 images, float32 numbers or int64 tokens",
            )
        if split.y.dtype != (np.int64 if self.classes else np.float32):
            raise DataQualityError(
                f"{where}: labels are {split.y.dtype}",
                hint="use int64, as in `y.astype('i8')`; numbers to predict are float32, with 0 classes",
            )
        if not self.classes and not np.isfinite(split.y).all():
            raise DataQualityError(f"{where}: targets that are not finite")
        if self.classes and len(split.y) and (split.y.min() < 0 or split.y.max() >= self.classes):
            raise DataQualityError(f"{where}: labels outside 0 to {self.classes - 1}")
        if split.x.dtype == np.float32 and not np.isfinite(split.x).all():
            raise DataQualityError(f"{where}: samples that are not finite")
        if split.x.dtype == np.uint8 and not self.mean:
            raise DataQualityError(f"{where}: images without mean and std", hint="see `image_data_set`")


def image_data_set(
    name: str, classes: int, train: Split, validation: Split, test: Split, note: str
) -> DataSet:
    """A data set of uint8 images (samples, channels, height, width), normalised by its training part."""
    mean, std = _channel_moments(train.x)
    return DataSet(name, classes, train, validation, test, note, mean, std)


def halves(split: Split, rng: np.random.Generator) -> tuple[Split, Split]:
    """Validation and test out of one held-out split.

    The training part stays whole this way: the paper's 100 devices of 600 samples are all of MNIST.
    """
    order = rng.permutation(len(split))
    middle = len(split) // 2
    return split.take(np.sort(order[:middle])), split.take(np.sort(order[middle:]))


def _channel_moments(images: NDArray[np.uint8]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel in 0 to 1, exactly, from its 256 possible values."""
    if images.dtype != np.uint8 or images.ndim != 4 or not len(images):
        raise DataQualityError(f"images of shape {images.shape} and type {images.dtype} cannot be normalised")
    values = np.arange(256) / 255
    mean, std = [], []
    for channel in range(images.shape[1]):
        share = np.bincount(images[:, channel].ravel(), minlength=256) / images[:, channel].size
        mean.append(float(share @ values))
        std.append(float(np.sqrt(share @ (values - mean[-1]) ** 2)) or 1.0)
    return tuple(mean), tuple(std)
