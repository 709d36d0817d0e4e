"""VGG-16 without batch normalisation (Simonyan and Zisserman 2015, configuration D).

The convolutions are torchvision's, name by name. Its head (134 million parameters with ten classes) expects
7x7 maps; 32x32 images leave a single pixel, which the head would see 49 times. ``head="linear"`` is what is
usual for such images: one linear layer on the 512 channels, 14.7 million parameters in all.
"""

from __future__ import annotations

from torch import Tensor, nn  # noqa: TID253 - a model is torch code; `models.build` imports it on demand

_CHANNELS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


class VGG16(nn.Module):
    """Thirteen convolutions in five pooled stages, then a head.

    Args:
        classes: Number of classes.
        head: ``torchvision`` (7x7 pooling and three linear layers) or ``linear``.
        dropout: Share of each hidden linear layer's outputs that a step leaves out (section 3.1: 0.5 after
            the first two). The linear head has no such layer, and no dropout.
    """

    def __init__(self, classes: int = 10, head: str = "torchvision", dropout: float = 0.5) -> None:
        super().__init__()
        if head not in ("torchvision", "linear"):
            raise ValueError(f"head {head!r} is neither 'torchvision' nor 'linear'")
        self.features = _features()
        self.avgpool = nn.AdaptiveAvgPool2d(7 if head == "torchvision" else 1)
        deep = head == "torchvision"
        self.classifier = _torchvision_head(classes, dropout) if deep else nn.Linear(512, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                _zero_bias(module)
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.01)
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


def _torchvision_head(classes: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(512 * 7 * 7, 4096),
        nn.ReLU(inplace=True),
        nn.Dropout(dropout),
        nn.Linear(4096, 4096),
        nn.ReLU(inplace=True),
        nn.Dropout(dropout),
        nn.Linear(4096, classes),
    )


def _zero_bias(module: nn.Conv2d | nn.Linear) -> None:
    if module.bias is not None:
        nn.init.zeros_(module.bias)
