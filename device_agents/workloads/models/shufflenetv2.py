"""ShuffleNet v2, width x1.0 (Ma et al. 2018), the architecture and parameter names of torchvision."""

from __future__ import annotations

import torch  # noqa: TID253 - a model is torch code; `models.build` imports it on demand
from torch import Tensor, nn  # noqa: TID253

_STAGES = ((116, 4), (232, 8), (464, 4))  # output channels and units, Table 5 of the paper


class ShuffleNetV2(nn.Module):
    """A strided stem, three stages of units that split, transform and shuffle channels, a 1x1 convolution."""

    def __init__(self, classes: int = 200) -> None:
        super().__init__()
        self.conv1 = nn.Sequential(*_convolution(3, 24, kernel=3, stride=2), nn.ReLU(inplace=True))
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.stage2, self.stage3, self.stage4 = _stages(24)
        self.conv5 = nn.Sequential(*_convolution(464, 1024), nn.ReLU(inplace=True))
        self.fc = nn.Linear(1024, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of ``x`` (batch, 3, height, width)."""
        x = self.maxpool(self.conv1(x))
        x = self.conv5(self.stage4(self.stage3(self.stage2(x))))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


class _Unit(nn.Module):
    """The basic unit (half of the channels pass untouched), or with ``stride=2`` the down-sampling one."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        half = outputs // 2
        self.branch1 = nn.Sequential()
        if stride > 1:
            self.branch1 = nn.Sequential(
                *_convolution(inputs, inputs, kernel=3, stride=stride, groups=inputs),
                *_convolution(inputs, half),
                nn.ReLU(inplace=True),
            )
        self.branch2 = nn.Sequential(
            *_convolution(inputs if stride > 1 else half, half),
            nn.ReLU(inplace=True),
            *_convolution(half, half, kernel=3, stride=stride, groups=half),
            *_convolution(half, half),
            nn.ReLU(inplace=True),
        )
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        kept, changed = (x, x) if self.stride > 1 else x.chunk(2, 1)
        return _shuffle(torch.cat((self.branch1(kept), self.branch2(changed)), 1))


def _stages(inputs: int) -> list[nn.Sequential]:
    stages = []
    for outputs, units in _STAGES:
        first = _Unit(inputs, outputs, 2)
        stages.append(nn.Sequential(first, *(_Unit(outputs, outputs, 1) for _ in range(units - 1))))
        inputs = outputs
    return stages


def _convolution(
    inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1
) -> tuple[nn.Module, nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return convolution, nn.BatchNorm2d(outputs)


def _shuffle(x: Tensor) -> Tensor:
    """Interleave the two halves of the channels."""
    batch, channels, height, width = x.shape
    halves = x.reshape(batch, 2, channels // 2, height, width)
    return halves.transpose(1, 2).reshape(batch, channels, height, width)
