"""A multilayer perceptron; without hidden layers it is softmax regression. Small, for tests and demos."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn  # noqa: TID253 - a model is torch code; `models.build` imports it on demand


class MLP(nn.Module):
    """Linear layers with ReLU between them, on flattened inputs.

    Args:
        classes: Number of classes.
        features: Numbers per sample.
        hidden: Width of each hidden layer; none by default.
    """

    def __init__(self, classes: int = 10, features: int = 64, hidden: Sequence[int] = ()) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width in hidden:
            layers += [nn.Linear(features, width), nn.ReLU(inplace=True)]
            features = width
        self.layers = nn.Sequential(*layers, nn.Linear(features, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Logits of ``x`` (batch, ...)."""
        logits: Tensor = self.layers(x.flatten(1))
        return logits
