"""The loss of every task: cross entropy, kept per sample.

Selectors need more than its mean (Oort ranks by the root mean square), so the mean is taken by the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The negative log likelihood of each sample's label: (batch,) from logits (batch, classes)."""
    return -logits.log_softmax(1).gather(1, labels.unsqueeze(1)).squeeze(1)
