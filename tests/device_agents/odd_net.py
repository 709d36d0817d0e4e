"""A small network of everything that the exporter knows and the five models do not use."""

from torch import Tensor, nn


class OddNet(nn.Module):
    """Grouped, dilated and strided convolutions, every kind of pooling, batch normalisation of vectors.

    No bias right before a batch normalisation: its gradient is zero, and a computed one rounding noise.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(2, 8, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.Conv2d(8, 4, 3, stride=3, padding=1, groups=4, bias=False),
            nn.AvgPool2d(2, stride=1, padding=1),
            nn.Conv2d(4, 6, 2, stride=2),
            nn.MaxPool2d(3, stride=2, padding=1),
            nn.Tanh(),
            nn.AdaptiveAvgPool2d((3, 2)),
            nn.Flatten(),
            nn.Linear(36, 10, bias=False),
            nn.BatchNorm1d(10),
            nn.Sigmoid(),
        )
        self.head = nn.Linear(10, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x))


class Unexportable(nn.Module):
    """Uses an operator that has no ONNX form here."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(2 * 15 * 13, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.flatten(1)).erfinv()
