"""`Reported`: what devices have told the server, kept up to date in place; `ServerView` shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.round.view import ALWAYS, FIELDS, ServerView

Ids = NDArray[np.int64]

ROWS = frozenset({"bias_delta", "label_histogram"})
"""Fields with one column per class."""
COUNTED = frozenset({"last_round", "times_chosen", "failures", "check_ins"})
"""Fields that start at 0, not unknown."""


class Reported:
    """One array per field that the selector reads; all others are NaN at no cost.

    Args:
        data_size: Training samples of each device, known from registration.
        needs: Names of the fields to keep.
        classes: Columns of the fields in `ROWS`.
    """

    def __init__(self, data_size: NDArray[np.int64], needs: frozenset[str], classes: int) -> None:
        self._n = len(data_size)
        self._data_size = _read_only(data_size)
        shapes = {name: (self._n, classes) if name in ROWS else (self._n,) for name in FIELDS - ALWAYS}
        self.fields = {
            name: np.full(shapes[name], 0.0 if name in COUNTED else np.nan) for name in sorted(needs - ALWAYS)
        }
        self._shown = {name: _read_only(values) for name, values in self.fields.items()}
        self._hidden = {
            name: np.broadcast_to(np.nan, shapes[name]) for name in sorted(shapes) if name not in self.fields
        }

    def view(self, eligible: NDArray[np.bool_], **scalars: Any) -> ServerView:
        """What is known now; its arrays change in place with later reports."""
        fields: dict[str, Any] = {**self._shown, **self._hidden, **scalars}
        return ServerView(eligible=_read_only(eligible), data_size=self._data_size, **fields)

    def put(self, devices: Ids, values: Mapping[str, NDArray[np.float64]]) -> None:
        """Take reports in; what a device did not report (NaN) leaves what is known."""
        for name, fresh in values.items():
            if name in self.fields:
                told = ~np.isnan(fresh) if fresh.ndim == 1 else ~np.isnan(fresh).any(1)
                self.fields[name][devices[told]] = fresh[told]

    def count(self, number: int, chosen: Ids, finished: Ids) -> None:
        """Who was chosen in a round, and who finished it."""
        if "times_chosen" in self.fields:
            self.fields["times_chosen"][chosen] += 1
        if "last_round" in self.fields and number:
            self.fields["last_round"][finished] = number

    def count_failures(self, participants: Ids, failed: NDArray[np.bool_]) -> None:
        """Who left, was late or diverged in a row; whoever did what was asked begins anew."""
        if "failures" in self.fields:
            failures = self.fields["failures"]
            failures[participants] = np.where(failed, failures[participants] + 1, 0)

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints."""
        return {name: values.copy() for name, values in self.fields.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        for name, values in self.fields.items():
            values[...] = state[name]


def _read_only(values: NDArray[Any]) -> NDArray[Any]:
    view = values.view()
    view.flags.writeable = False
    return view
