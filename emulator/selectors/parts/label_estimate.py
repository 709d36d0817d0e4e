"""Label shares guessed from updates: which classes a device seems to hold, without it telling.

The gradient of the output layer's bias is the mean of (softmax - one-hot), so over a local training the bias
of a class rises where the device holds more of it than the model predicted. The rises, normalised, are the
estimate. A device that has sent no update yet, or whose update raised no bias, counts as balanced. Methods
that look for balance therefore try whom they do not know; devices that have no data or never deliver have to
be told apart before (`emulator.selectors.parts.reliable`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def label_shares(bias_delta: NDArray[np.float64]) -> NDArray[np.float64]:
    """Estimated share of each class, one row per device; each row sums to 1.

    Args:
        bias_delta: Change of the output bias in each device's last update; NaN rows for none.
    """
    risen = np.where(bias_delta > 0.0, bias_delta, 0.0)  # NaN compares false
    total = risen.sum(axis=1, keepdims=True)
    classes = bias_delta.shape[1]
    balanced = np.full(risen.shape, 1.0 / classes)
    return np.asarray(np.divide(risen, total, out=balanced, where=total > 0.0))
