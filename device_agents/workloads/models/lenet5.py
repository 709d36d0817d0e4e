"""LeNet-5 (LeCun et al. 1998) as used on MNIST today: ReLU and max pooling, 61,706 parameters."""

from __future__ import annotations

from torch import Tensor, nn  # noqa: TID253 - a model is torch code; `models.build` imports it on demand


class LeNet5(nn.Module):
    """Two convolutions, three linear layers.

    Pooling comes before the ReLU: the same function and the same gradient, on a quarter of the elements.
    """

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)  # pads MNIST's 28x28 to the paper's 32x32
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, classes)
        self.pool = nn.MaxPool2d(2)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of ``x`` (batch, 1, 28, 28)."""
        x = self.relu(self.pool(self.conv1(x)))
        x = self.relu(self.pool(self.conv2(x)))
        x = self.relu(self.fc1(x.flatten(1)))
        x = self.relu(self.fc2(x))
        logits: Tensor = self.fc3(x)
        return logits
