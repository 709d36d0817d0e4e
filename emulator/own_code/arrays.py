"""What ``data()`` of a user's file gives, as a `DataSet`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.data.model import DataSet, Split, halves, image_data_set
from emulator.data.sources import DataSource
from joulefleet.errors import ConfigError

Wrong = Callable[..., ConfigError]
FORMS = (
    "`return x, y`, or `x, y, groups`, or a dictionary of such with `train`, `test` and maybe `validation`"
)
TRAIN, VALIDATION = 0.8, 0.1
"""Shares of data that comes in one piece, drawn by the seed; the rest is for testing."""
FEWEST = 10


@dataclass(frozen=True, slots=True)
class Arrays:
    """Checked arrays.

    Attributes:
        parts: By the name of the split; ``all`` if it is for us to divide.
        classes: As many as occur; 0 if targets are numbers.
        tokens: Likewise of tokens.
    """

    parts: Mapping[str, Split]
    classes: int
    tokens: int


def read_arrays(found: Any, wrong: Wrong) -> Arrays:
    """Check what the function gave; ``wrong`` makes the error.

    Raises:
        ConfigError: It cannot be trained on.
    """
    if isinstance(found, Mapping):
        if set(found) - {"train", "validation", "test"} or not {"train", "test"} <= set(found):
            raise wrong("data", f"gives a dictionary with {', '.join(map(repr, found))}", FORMS)
        parts = {name: _split(name, part, wrong) for name, part in found.items()}
    else:
        parts = {"all": _split("", found, wrong)}
    first = next(iter(parts.values()))
    for name, part in parts.items():
        for array in ("x", "y"):
            mine, other = getattr(part, array), getattr(first, array)
            if mine.shape[1:] != other.shape[1:] or mine.dtype != other.dtype:
                raise wrong(
                    "data", f"gives {array} of {_about(mine)} in {name!r}, elsewhere of {_about(other)}"
                )
    if len(first) < FEWEST:
        raise wrong("data", f"gives {len(first)} samples", f"at least {FEWEST} are needed")
    whole = first.y.dtype == np.int64
    classes = 1 + max(int(part.y.max(initial=0)) for part in parts.values()) if whole else 0
    tokens = (
        1 + max(int(part.x.max(initial=0)) for part in parts.values()) if first.x.dtype == np.int64 else 0
    )
    return Arrays(parts, classes, tokens)


def data_set_of(name: str, arrays: Arrays, source: DataSource, classes: int | None = None) -> DataSet:
    """The data set of a seed."""
    parts, rng = dict(arrays.parts), source.rng(name)
    if "all" in parts:
        whole = parts["all"]
        order = rng.permutation(len(whole))
        a, b = round(TRAIN * len(whole)), round((TRAIN + VALIDATION) * len(whole))
        train, validation, test = whole.take(order[:a]), whole.take(order[a:b]), whole.take(order[b:])
    elif "validation" in parts:
        train, validation, test = parts["train"], parts["validation"], parts["test"]
    else:
        train, (validation, test) = parts["train"], halves(parts["test"], rng)
    make = image_data_set if train.x.dtype == np.uint8 else DataSet
    return make(
        name, arrays.classes if classes is None else classes, train, validation, test, note="own data"
    )


def _split(name: str, found: Any, wrong: Wrong) -> Split:
    where = f" in {name!r}" if name else ""
    if not isinstance(found, tuple | list) or len(found) not in (2, 3):
        raise wrong("data", f"gives {type(found).__name__}{where}", FORMS)
    x, y = _inputs(_array(found[0]), where, wrong), _targets(_array(found[1]), where, wrong)
    if len(x) != len(y):
        raise wrong("data", f"gives {len(x)} samples and {len(y)} targets{where}")
    groups = None
    if len(found) == 3:
        given = _array(found[2])
        if given.shape != (len(y),):
            raise wrong("data", f"gives groups of {_about(given)} for {len(y)} samples{where}")
        groups = np.unique(given, return_inverse=True)[1].astype(np.int64)
    return Split(x, y, groups)


def _array(thing: Any) -> NDArray[Any]:
    """Also of a tensor or a table."""
    if hasattr(thing, "detach"):
        thing = thing.detach().cpu()
    return np.asarray(thing)


def _inputs(x: NDArray[Any], where: str, wrong: Wrong) -> NDArray[Any]:
    if x.ndim < 2:
        raise wrong("data", f"gives x of {_about(x)}{where}", "one row per sample: `x.reshape(len(x), -1)`")
    if x.dtype == np.uint8:
        if x.ndim != 4:
            raise wrong("data", f"gives uint8 x of shape {x.shape}{where}",
                        "images are (samples, channels, height, width); numbers are float32")  # fmt: skip
        return np.ascontiguousarray(x)
    if x.dtype.kind == "f":
        return _finite(np.ascontiguousarray(x, np.float32), "x", where, wrong)
    if x.dtype.kind in "iu":
        if x.min(initial=0) < 0:
            raise wrong("data", f"gives negative whole numbers as x{where}",
                        "whole numbers are tokens, from 0 on; numbers are `x.astype('float32')`")  # fmt: skip
        return np.ascontiguousarray(x, np.int64)
    raise wrong("data", f"gives x as {x.dtype}{where}", "float32 numbers, uint8 images or int64 tokens")


def _targets(y: NDArray[Any], where: str, wrong: Wrong) -> NDArray[Any]:
    if y.ndim == 0:
        raise wrong("data", f"gives one number as y{where}", "one target per sample")
    if y.dtype.kind == "f":
        return _finite(np.ascontiguousarray(y, np.float32), "y", where, wrong)
    if y.dtype.kind not in "iub":
        raise wrong("data", f"gives y as {y.dtype}{where}",
                    "whole numbers from 0 on for classes, floating ones for numbers to predict")  # fmt: skip
    labels = np.ascontiguousarray(y, np.int64)
    if labels.min(initial=0) < 0:
        raise wrong("data", f"gives negative labels{where}", "classes are numbered from 0 on")
    return labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels


def _finite(array: NDArray[Any], name: str, where: str, wrong: Wrong) -> NDArray[Any]:
    finite = np.isfinite(array)
    if not finite.all():
        count, row = finite.size - int(finite.sum()), int(np.argwhere(~finite)[0, 0])
        unknown = "; for a target that is unknown, put a number that `loss` and `metric` of your own skip"
        raise wrong(
            "data",
            f"gives {name} with values that are not finite{where}: {count:,} of {finite.size:,}, "
            f"the first in row {row:,}",
            "fill or drop them" + (unknown if name == "y" else ""),
        )
    return array


def _about(array: NDArray[Any]) -> str:
    return f"shape {array.shape} ({array.dtype})"
