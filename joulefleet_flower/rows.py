"""A model's arrays as one flat row and back: selectors and the engine work on rows."""

from math import prod

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from joulefleet.errors import ConfigError, DeviceProtocolError


class Rows:
    """Where each array of a model sits in a row of float32.

    Args:
        arrays: The model.
    """

    def __init__(self, arrays: ArrayRecord) -> None:
        self._arrays = {name: (tuple(a.shape), np.dtype(a.dtype)) for name, a in arrays.items()}

    def row(self, arrays: ArrayRecord) -> NDArray[np.float32]:
        """A model as a row.

        Raises:
            DeviceProtocolError: It is another model.
        """
        shapes = {name: tuple(array.shape) for name, array in arrays.items()}
        if shapes != {name: shape for name, (shape, _) in self._arrays.items()}:
            raise DeviceProtocolError(
                "a client sent arrays of other names or shapes than the model has",
                hint="a client answers with all arrays of the model that it received, and nothing else",
            )
        pieces = [arrays[name].numpy().ravel() for name in self._arrays]
        return np.concatenate(pieces, dtype=np.float32, casting="unsafe")

    def record(self, row: NDArray[np.float32]) -> ArrayRecord:
        """A row as a model."""
        arrays, start = {}, 0
        for name, (shape, dtype) in self._arrays.items():
            piece = row[start : start + prod(shape)].reshape(shape)
            # A count that was averaged is off by rounding, and a cast to int would cut it.
            exact = np.rint(piece) if np.issubdtype(dtype, np.integer) else piece
            arrays[name] = Array(exact.astype(dtype))
            start += prod(shape)
        return ArrayRecord(arrays)

    def output_bias(self, classes: int) -> slice:
        """Where the last layer's bias is: the last vector with an entry per class."""
        stop = sum(prod(shape) for shape, _ in self._arrays.values())
        for shape, _ in reversed(self._arrays.values()):
            if shape == (classes,):
                return slice(stop - classes, stop)
            stop -= prod(shape)
        raise ConfigError(
            f"the model has no output bias of {classes} entries, which this selector reads",
            hint="give the last layer a bias, or choose another selector",
        )
