"""torchvision on a machine whose torch has no CUDA."""

import pytest
import torch

from emulator.data.vision import torchvision


def test_data_sets_transforms_and_models_are_there() -> None:
    vision = torchvision()
    assert hasattr(vision.datasets, "MNIST")
    image = vision.transforms.functional.to_tensor(torch.zeros(4, 4, 3, dtype=torch.uint8).numpy())
    assert image.shape == (3, 4, 4)
    model = vision.models.resnet18(num_classes=10).eval()
    assert model(torch.zeros(1, 3, 32, 32)).shape == (1, 10)


def test_it_is_imported_once() -> None:
    assert torchvision() is torchvision()


def test_the_declared_operators_do_not_pretend_to_work() -> None:
    from emulator.data import vision

    torchvision()
    if not vision._declared:
        pytest.skip("this torchvision's own operators load here")
    with pytest.raises(NotImplementedError, match="torchvision::nms"):
        torch.ops.torchvision.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
