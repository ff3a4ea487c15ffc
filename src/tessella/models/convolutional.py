"""The convolutional networks that Figure 5 sets against a ViT: ResNet-18 and VGG-19 for small images.

`resnet18` and `vgg19` are torchvision's, adapted to 32 x 32 pixels as is usual: a ResNet's first convolution is 3 x 3
without stride or pooling, a VGG (with batch normalisation) ends in one linear layer. `small_resnet` and `small_vgg` are
of the same families, for images of 8 x 8 pixels: residual blocks with two strides, and plain stacks with two poolings.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn


def network(name: str, channels: int, classes: int, seed: int) -> nn.Module:
    """Images of (batch, channels, side, side) to logits, with initial values of this seed.

    >>> network("small_vgg", 1, 10, seed=0)(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """
    if name not in _MADE:
        raise ValueError(f"network: got {name!r}, expected one of {', '.join(_MADE)}")
    # Modules draw their initial values from the global generator, which is left as it was.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _MADE[name](channels, classes)


class Residual(nn.Module):
    """Two 3 x 3 convolutions added to their input, as in a ResNet's basic block."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.body = nn.Sequential(
            _convolution(inputs, outputs, stride), nn.ReLU(), _convolution(outputs, outputs, stride=1)
        )
        same = stride == 1 and inputs == outputs
        self.skip = nn.Identity() if same else _convolution(inputs, outputs, stride, size=1)

    def forward(self, images: Float[Tensor, "batch inputs side side"]) -> Float[Tensor, "batch outputs side2 side2"]:
        return torch.relu(self.body(images) + self.skip(images))


def _convolution(inputs: int, outputs: int, stride: int, size: int = 3) -> nn.Sequential:
    made = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return nn.Sequential(made, nn.BatchNorm2d(outputs))


def _head(width: int, classes: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)]


def _small_resnet(channels: int, classes: int) -> nn.Module:
    stem = [_convolution(channels, 16, stride=1), nn.ReLU()]
    return nn.Sequential(*stem, Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2), *_head(64, classes))


def _small_vgg(channels: int, classes: int) -> nn.Module:
    parts: list[nn.Module] = []
    width = channels
    for outputs in (16, 32, 64):
        parts += [_convolution(width, outputs, 1), nn.ReLU(), _convolution(outputs, outputs, 1), nn.ReLU()]
        parts += [nn.MaxPool2d(2)] if outputs < 64 else []
        width = outputs
    return nn.Sequential(*parts, *_head(width, classes))


def _resnet18(channels: int, classes: int) -> nn.Module:
    made = _torchvision().resnet18(num_classes=classes)
    made.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
    made.maxpool = nn.Identity()
    return _module(made)


def _vgg19(channels: int, classes: int) -> nn.Module:
    made = _torchvision().vgg19_bn(num_classes=classes)
    if channels != 3:
        made.features[0] = nn.Conv2d(channels, 64, 3, padding=1)
    made.avgpool = nn.AdaptiveAvgPool2d(1)
    made.classifier = nn.Linear(512, classes)
    return _module(made)


def _module(made: Any) -> nn.Module:
    assert isinstance(made, nn.Module)
    return made


def _torchvision() -> Any:
    try:
        return importlib.import_module("torchvision.models")
    except (ImportError, RuntimeError) as error:  # beside another torch its compiled part fails at run time
        raise ValueError(
            f"network: torchvision cannot be imported ({str(error).splitlines()[0]}); pip install 'tessella[vision]'"
        ) from error


_MADE: dict[str, Callable[[int, int], nn.Module]] = {
    "resnet18": _resnet18,
    "vgg19": _vgg19,
    "small_resnet": _small_resnet,
    "small_vgg": _small_vgg,
}
