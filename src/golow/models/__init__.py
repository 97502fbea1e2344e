"""The zoo: the published networks that golow knows by name, as plain ``nn.Module``\\ s.

There is one file per family. If torchvision has the model too, the state dict has the same names,
shapes and order, so that published weights load with ``strict=True``.

Importing this package does not import torch: the command line lists the zoo in milliseconds. A
family's file, and torch with it, is imported when one of its models is built.
"""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING, cast

from golow.models.entry import Entry, Field
from golow.models.others import OTHERS

if TYPE_CHECKING:
    from torch import nn

__all__ = ["ZOO", "Entry", "Field", "build", "check_arguments", "nearest"]


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
        initialisation="kaiming",  # PyTorch's own lets the signal vanish in so many layers
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
        initialisation="kaiming",  # PyTorch's own lets the signal vanish in so many layers
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
        name="densenet121",
        build="golow.models.densenet:densenet121",
        in_channels=3,
        classes=1000,
        resolution=224,
        minimum_resolution=29,
        parameters=7_978_856,
        summary="DenseNet-121 (Huang et al. 2017): each layer uses all earlier outputs",
    ),
    Entry(
        name="mobilenet_v1",
        build="golow.models.mobilenet_v1:mobilenet_v1",
        in_channels=3,
        classes=1000,
        resolution=224,
        minimum_resolution=1,
        parameters=4_231_976,
        summary="MobileNet (Howard et al. 2017): depthwise separable convolutions",
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
    Entry(
        name="shufflenet_v2",
        build="golow.models.shufflenet:shufflenet_v2",
        in_channels=3,
        classes=1000,
        resolution=224,
        minimum_resolution=1,
        parameters=2_278_604,
        summary="ShuffleNetV2 x1.0 (Ma et al. 2018): split, concatenated, shuffled channels",
    ),
    Entry(
        name="efficientnet_b0",
        build="golow.models.efficientnet:efficientnet_b0",
        in_channels=3,
        classes=1000,
        resolution=224,
        minimum_resolution=1,
        parameters=5_288_548,
        summary="EfficientNet-B0 (Tan & Le 2019): squeeze-and-excitation, stochastic depth",
    ),
    Entry(
        name="convnext_tiny",
        build="golow.models.convnext:convnext_tiny",
        in_channels=3,
        classes=1000,
        resolution=224,
        minimum_resolution=32,
        parameters=28_589_128,
        summary="ConvNeXt-T (Liu et al. 2022): 7x7 depthwise, layer norm, GELU",
    ),
    Entry(
        name="vit_b_16",
        build="golow.models.vision_transformer:vit_b_16",
        in_channels=3,
        classes=1000,
        resolution=224,
        minimum_resolution=16,
        parameters=86_567_656,
        summary="ViT-B/16 (Dosovitskiy et al. 2021): attention over patches of 16x16 pixels",
        resolution_step=16,
    ),
    Entry(
        name="swin_t",
        build="golow.models.swin:swin_t",
        in_channels=3,
        classes=1000,
        resolution=224,
        minimum_resolution=4,
        parameters=28_288_354,
        summary="Swin-T (Liu et al. 2021): attention within shifted windows of 7x7",
    ),
    Entry(
        name="unet",
        build="golow.models.unet:unet",
        in_channels=3,
        classes=2,
        resolution=256,
        minimum_resolution=16,
        parameters=31_037_698,
        summary="U-Net (Ronneberger et al. 2015), padded, with batch norm: a class per pixel",
        resolution_step=16,
        per_pixel=True,
    ),
)

ZOO: dict[str, Entry] = {entry.name: entry for entry in (*_ENTRIES, *OTHERS)}


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
        ValueError: an argument is below the model's minimum, or the model does not take it.
    """
    entry = ZOO[name]
    given = {"in_channels": in_channels, "classes": classes, "resolution": resolution}
    arguments = {argument: value for argument, value in given.items() if value is not None}
    entry.require(arguments)
    module, function = entry.build.split(":")
    builder = getattr(importlib.import_module(module), function)
    return cast("nn.Module", builder(**{**entry.arguments, **arguments}))


def nearest(name: str) -> list[str]:
    """Up to three names of the zoo that are similar to this one, the closest first."""
    return difflib.get_close_matches(name.lower(), ZOO, n=3)


def check_arguments(name: str, *, in_channels: int, classes: int, resolution: int) -> None:
    """Raise ValueError with what is valid if the model cannot be built with these.

    Every builder calls this first. A caller without torch can use it too.
    """
    for what, value in (("channels", in_channels), ("classes", classes)):
        if value < 1:
            raise ValueError(f"{name} needs {what} of at least 1, got {value}")
    if fault := ZOO[name].resolution_fault(resolution):
        raise ValueError(fault)
