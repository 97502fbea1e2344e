"""The zoo: the published networks that golow knows by name, as plain ``nn.Module``\\ s.

There is one file per family. If torchvision has the model too, the state dict has the same names,
shapes and order, so that published weights load with ``strict=True``.

Importing this package does not import torch: the command line lists the zoo in milliseconds. A
family's file, and torch with it, is imported when one of its models is built.
"""

from __future__ import annotations

import difflib
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Entry:
    """One model of the zoo.

    build: the function that makes it, as ``module:function``; see `build` for a call by name.
    in_channels, classes, resolution: its defaults (resolution is the side of the square image).
    minimum_resolution: the smallest resolution at which every layer still has a pixel.
    parameters: the number of trainable scalars at the defaults.
    summary: a one-line description.
    """

    name: str
    build: str
    in_channels: int
    classes: int
    resolution: int
    minimum_resolution: int
    parameters: int
    summary: str


_ENTRIES = (
    Entry(
        name="mlp",
        build="golow.models.mlp:mlp",
        in_channels=1,
        classes=10,
        resolution=28,
        minimum_resolution=1,
        parameters=535_818,
        summary="three linear layers (512, 256): only matrix products",
    ),
    Entry(
        name="lenet5",
        build="golow.models.lenet:lenet5",
        in_channels=1,
        classes=10,
        resolution=28,
        minimum_resolution=12,
        parameters=61_706,
        summary="LeNet-5 (LeCun et al. 1998): small convolutions, tanh, average pooling",
    ),
    Entry(
        name="mnist_cnn",
        build="golow.models.mnist_cnn:mnist_cnn",
        in_channels=1,
        classes=10,
        resolution=28,
        minimum_resolution=6,
        parameters=1_199_882,
        summary="the network of PyTorch's MNIST example: two convolutions, dropout, log-softmax",
    ),
    Entry(
        name="alexnet",
        build="golow.models.alexnet:alexnet",
        in_channels=3,
        classes=1000,
        resolution=224,
        minimum_resolution=63,
        parameters=61_100_840,
        summary="AlexNet (Krizhevsky 2014): five convolutions under three large linear layers",
    ),
    Entry(
        name="vgg16",
        build="golow.models.vgg:vgg16",
        in_channels=3,
        classes=1000,
        resolution=224,
        minimum_resolution=32,
        parameters=138_357_544,
        summary="VGG-16 (Simonyan & Zisserman 2015): thirteen 3x3 convolutions, no batch norm",
    ),
    Entry(
        name="vgg19",
        build="golow.models.vgg:vgg19",
        in_channels=3,
        classes=1000,
        resolution=224,
        minimum_resolution=32,
        parameters=143_667_240,
        summary="VGG-19 (Simonyan & Zisserman 2015): sixteen 3x3 convolutions, no batch norm",
    ),
    Entry(
        name="resnet18",
        build="golow.models.resnet:resnet18",
        in_channels=3,
        classes=1000,
        resolution=224,
        minimum_resolution=1,
        parameters=11_689_512,
        summary="ResNet-18 (He et al. 2016): residual blocks of two 3x3 convolutions",
    ),
    Entry(
        name="resnet50",
        build="golow.models.resnet:resnet50",
        in_channels=3,
        classes=1000,
        resolution=224,
        minimum_resolution=1,
        parameters=25_557_032,
        summary="ResNet-50 v1.5 (He et al. 2016): bottleneck blocks, the stride in the 3x3",
    ),
    Entry(
        name="mobilenet_v2",
        build="golow.models.mobilenet:mobilenet_v2",
        in_channels=3,
        classes=1000,
        resolution=224,
        minimum_resolution=1,
        parameters=3_504_872,
        summary="MobileNetV2 (Sandler et al. 2018): depthwise convolutions, few parameters",
    ),
)

ZOO: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}


def build(
    name: str,
    *,
    in_channels: int | None = None,
    classes: int | None = None,
    resolution: int | None = None,
) -> nn.Module:
    """The model of that name in training mode, with PyTorch's default initialisation.

    Arguments that are None take the entry's default. The layers draw their weights from torch's
    global generator; `golow.models.initialise` sets them from a seed instead.

    Raises:
        KeyError: the zoo has no such model; `nearest` lists similar names.
        ValueError: an argument is below the model's minimum.
    """
    entry = ZOO[name]
    module, function = entry.build.split(":")
    builder = getattr(importlib.import_module(module), function)
    model = builder(
        in_channels=entry.in_channels if in_channels is None else in_channels,
        classes=entry.classes if classes is None else classes,
        resolution=entry.resolution if resolution is None else resolution,
    )
    return cast("nn.Module", model)


def nearest(name: str) -> list[str]:
    """Up to three names of the zoo that are similar to this one, the closest first."""
    return difflib.get_close_matches(name.lower(), ZOO, n=3)


def check_arguments(name: str, *, in_channels: int, classes: int, resolution: int) -> None:
    """Raise ValueError with the smallest valid value if the model cannot be built with these.

    Every builder calls this first. A caller without torch can use it too.
    """
    limits = {
        "in_channels": (in_channels, 1),
        "classes": (classes, 1),
        "resolution": (resolution, ZOO[name].minimum_resolution),
    }
    for argument, (value, minimum) in limits.items():
        if value < minimum:
            raise ValueError(f"{name} needs {argument} of at least {minimum}, got {value}")
