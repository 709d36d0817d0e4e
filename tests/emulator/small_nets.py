"""Models of one's own, as a user of the library would write them: found by ``module:Class``."""

from torch import Tensor, nn


class ConvolutionWithBatchNorm(nn.Module):
    """What large image models have: convolutions, one of them depthwise, batch statistics, a shortcut."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.bn2 = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4 * 4 * 4, classes)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(self.relu(self.bn1(self.conv1(x))), 2)
        x = self.relu(x + self.bn2(self.conv2(x)))
        logits: Tensor = self.fc(x.flatten(1))
        return logits


class NoBias(nn.Linear):
    """A model whose output layer has no bias."""

    def __init__(self, classes: int) -> None:
        super().__init__(4, classes, bias=False)
