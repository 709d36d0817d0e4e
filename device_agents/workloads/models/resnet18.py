"""ResNet-18 (He et al. 2016), the architecture and parameter names of torchvision.

The paper trains it on CIFAR-10 and does not say with which stem. The default is torchvision's, made for
ImageNet; ``stem="cifar"`` keeps the full resolution and costs 15 times the arithmetic on a 32x32 image.
"""

from __future__ import annotations

from torch import Tensor, nn  # noqa: TID253 - a model is torch code; `models.build` imports it on demand


class ResNet18(nn.Module):
    """Four stages of two basic blocks each.

    Args:
        classes: Number of classes.
        stem: ``torchvision`` (7x7 stride 2, then max pooling) or ``cifar`` (3x3 stride 1, no pooling).
    """

    def __init__(self, classes: int = 10, stem: str = "torchvision") -> None:
        super().__init__()
        if stem not in ("torchvision", "cifar"):
            raise ValueError(f"stem {stem!r} is neither 'torchvision' nor 'cifar'")
        wide = stem == "torchvision"
        self.conv1 = nn.Conv2d(3, 64, 7 if wide else 3, 2 if wide else 1, 3 if wide else 1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1) if wide else nn.Identity()
        self.layer1 = _stage(64, 64, stride=1)
        self.layer2 = _stage(64, 128, stride=2)
        self.layer3 = _stage(128, 256, stride=2)
        self.layer4 = _stage(256, 512, stride=2)
        self.fc = nn.Linear(512, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Logits of ``x`` (batch, 3, height, width)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


class _BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, which is projected where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        inner = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        result: Tensor = self.relu(inner + self.downsample(x))
        return result


def _stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(_BasicBlock(inputs, outputs, stride), _BasicBlock(outputs, outputs, 1))
