"""VGG-16 without batch normalisation (Simonyan and Zisserman 2015, configuration D).

The convolutions are torchvision's, name by name. Its head (134 million parameters with ten classes) expects
7x7 maps; 32x32 images leave a single pixel, which the head would see 49 times. Two heads for such images:
``hidden`` is the published one with two hidden layers of 512 instead of 4096, as many as there are channels,
and its dropout (15.2 million parameters in all); ``linear`` is one layer on the channels, without (14.7).
"""

from __future__ import annotations

from torch import Tensor, nn  # noqa: TID253 - a model is torch code; `models.build` imports it on demand

# Rows and columns after pooling, width of the hidden layers, spread of the linear layers' first weights. 0.01
# is made for layers of 4096; those of 512 begin as the convolutions do (He et al. 2015), or learn nothing.
_HEADS = {"torchvision": (7, 4096, 0.01), "hidden": (1, 512, (2 / 512) ** 0.5), "linear": (1, 0, 0.01)}
_CHANNELS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


class VGG16(nn.Module):
    """Thirteen convolutions in five pooled stages, then a head.

    Args:
        classes: Number of classes.
        head: ``torchvision`` (7x7 pooling and three linear layers), ``hidden`` or ``linear``.
        dropout: Share of each hidden linear layer's outputs that a step leaves out (section 3.1: 0.5 after
            the first two). The linear head has no such layer, and no dropout.
    """

    def __init__(self, classes: int = 10, head: str = "torchvision", dropout: float = 0.5) -> None:
        super().__init__()
        if head not in _HEADS:
            raise ValueError(f"head {head!r} is neither 'torchvision' nor one of {', '.join(_HEADS)}")
        pixels, width, spread = _HEADS[head]
        self.features = _features()
        self.avgpool = nn.AdaptiveAvgPool2d(pixels)
        inputs = 512 * pixels**2
        self.classifier = _hidden(inputs, width, classes, dropout) if width else nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                _zero_bias(module)
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, spread)
                _zero_bias(module)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of ``x`` (batch, 3, height, width); both sizes at least 32."""
        logits: Tensor = self.classifier(self.avgpool(self.features(x)).flatten(1))
        return logits


def _features() -> nn.Sequential:
    layers: list[nn.Module] = []
    inputs = 3
    for stage in _CHANNELS:
        for outputs in stage:
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True)]
            inputs = outputs
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers)


def _hidden(inputs: int, width: int, classes: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, width),
        nn.ReLU(inplace=True),
        nn.Dropout(dropout),
        nn.Linear(width, width),
        nn.ReLU(inplace=True),
        nn.Dropout(dropout),
        nn.Linear(width, classes),
    )


def _zero_bias(module: nn.Conv2d | nn.Linear) -> None:
    if module.bias is not None:
        nn.init.zeros_(module.bias)
