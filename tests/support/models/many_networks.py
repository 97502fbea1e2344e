"""Small networks for the tests of both direct levels: each has one property that a plan can get
wrong.

``CASES`` names them, with the shape of an input. A convolution stands before what is tried, so that
a gradient has to pass through it, and gives it values in the layout that the convolution likes.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from support.graphs.activation_examples import ACTIVATION_LAYERS


class Function(nn.Module):
    """A function as a layer."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *x: Tensor) -> Tensor:
        return self.function(*x)


class Two(nn.Module):
    """``combine(first(x), second(x))``."""

    def __init__(
        self, combine: Callable[[Tensor, Tensor], Tensor], first: nn.Module, second: nn.Module
    ) -> None:
        super().__init__()
        self.first, self.second, self.combine = first, second, combine

    def forward(self, x: Tensor) -> Tensor:
        return self.combine(self.first(x), self.second(x))


class Kept(nn.Module):
    """A value that is read once more after a step that could have overwritten it."""

    def __init__(self, between: nn.Module) -> None:
        super().__init__()
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        y = self.between(x)
        changed = torch.tanh(y)  # may write over y, which may be x
        return torch.cat([x.flatten(1), changed.flatten(1), x.flatten(1)], 1)


class Scaled(nn.Module):
    """A parameter of that shape in some arithmetic with x."""

    def __init__(
        self, shape: tuple[int, ...], arithmetic: Callable[[Tensor, Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, torch.Size(shape).numel()).view(shape))
        self.arithmetic = arithmetic

    def forward(self, x: Tensor) -> Tensor:
        return self.arithmetic(x, self.weight)


class SharedWeight(nn.Module):
    """Two layers of their own with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x)))


class Dropped(nn.Module):
    """A weight before dropout, so that its gradient shows the mask of the backward pass."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64, 100))
        self.drop = nn.Dropout(probability)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(x * self.weight)


class Kept2(nn.Module):
    """The layer once for itself and once through an activation that may work in place."""

    def __init__(self, between: nn.Module) -> None:
        super().__init__()
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        y = self.between(x)
        return torch.relu(y) * x + y


class Case(NamedTuple):
    """A network and the shape of its input, with the batch."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]


def after_conv(*layers: nn.Module, width: int = 16, size: tuple[int, int] = (9, 11)) -> Case:
    """The layers after a convolution to so many channels; flat at the end, for the loss. Each
    network has copies, in training: a layer that another test has put into `eval()` would stay
    so."""
    network = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), *layers, nn.Flatten())
    return Case(lambda: deepcopy(network), (4, 3, *size))


def conv(*arguments: int, size: tuple[int, int] = (9, 11), **settings: object) -> Case:
    """A convolution after another."""
    width = arguments[0]
    return after_conv(nn.Conv2d(*arguments, **settings), width=width, size=size)  # type: ignore[arg-type]


def same(width: int = 16, **settings: object) -> nn.Conv2d:
    """A convolution that keeps the shape."""
    return nn.Conv2d(width, width, 3, padding=1, **settings)  # type: ignore[arg-type]


def act(layer: nn.Module) -> Case:
    """An activation where the convolution takes it in, and where there is none to do so."""
    return after_conv(layer, nn.MaxPool2d(2), deepcopy(layer))


# With other weights a relu may fall on the other side of zero.
torch.manual_seed(0)

twice = same()
pointwise = nn.Linear(6, 6)


class Looked(nn.Module):
    """A table that integers of the state index, as relative positions do."""

    index: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.linspace(-1, 1, 7))
        self.register_buffer("index", torch.arange(16) % 5)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.table[self.index][:, None, None]


CASES: dict[str, Case] = {
    # convolution
    "grouped": conv(32, 48, 3, padding=1, groups=2),
    "groups of odd size": conv(15, 10, 3, groups=5, bias=False),
    "depthwise": conv(24, 24, 3, padding=1, groups=24),
    "depthwise by two": conv(8, 16, 5, padding=2, groups=8, stride=2),
    "dilated": conv(16, 17, 3, padding=2, dilation=2),
    "dilated unevenly": conv(16, 16, (3, 2), padding=(3, 1), dilation=(3, 2)),  # type: ignore[arg-type]
    "strided": conv(16, 32, 3, stride=2, padding=1),
    "strided unevenly": conv(16, 32, (3, 5), stride=(1, 3), padding=(0, 2)),  # type: ignore[arg-type]
    "odd channels": conv(19, 37, 3, padding=1),
    "one channel": conv(1, 1, 3),
    "one pixel": conv(16, 32, 3, padding=1, size=(1, 1)),
    "one pixel, strided, dilated": conv(16, 32, 3, padding=2, dilation=2, stride=2, size=(1, 1)),
    "one pixel, even kernel": conv(16, 16, 4, padding=2, size=(1, 2)),
    "one row": conv(16, 16, 3, padding=1, size=(1, 7)),
    "more padding than kernel": conv(16, 16, 2, padding=3, size=(3, 4)),
    "asymmetric padding": after_conv(
        Function(lambda x: functional.pad(x, (0, 1, 2, 3))), nn.Conv2d(16, 16, 3, stride=2)
    ),
    "padding of columns alone": after_conv(
        Function(lambda x: functional.pad(x, (2, 1))), nn.Conv2d(16, 16, 3, padding=1)
    ),
    # pooling
    "adaptive, even": after_conv(nn.AdaptiveAvgPool2d((4, 2)), size=(8, 8)),
    "adaptive, does not divide": after_conv(nn.AdaptiveAvgPool2d((4, 3))),
    "adaptive, larger than the image": after_conv(nn.AdaptiveAvgPool2d(7), same(), size=(3, 2)),
    "adaptive, of the image's size": after_conv(nn.AdaptiveAvgPool2d((9, 11)), nn.Tanh()),
    "adaptive, to one": after_conv(same(), nn.AdaptiveAvgPool2d(1)),
    "mean over the image": after_conv(same(), Function(lambda x: x.mean((2, 3)))),
    "mean over channels": after_conv(Function(lambda x: x.mean(1, keepdim=True))),
    "max": after_conv(nn.MaxPool2d(2), same()),
    "max, padded and overlapping": after_conv(nn.MaxPool2d(3, 2, 1), same()),
    "max, dilated": after_conv(nn.MaxPool2d(2, 1, 0, dilation=2), same()),
    "max, ceil": after_conv(nn.MaxPool2d(2, ceil_mode=True), same()),
    "max, ceil, strides beyond the kernel": after_conv(nn.MaxPool2d(2, 3, ceil_mode=True), same()),
    "max, uneven": after_conv(nn.MaxPool2d((3, 2), (2, 1), (1, 0)), same(20), width=20),
    "max after relu": after_conv(same(), nn.ReLU(), nn.MaxPool2d(3, 2, 1), same()),
    "average": after_conv(nn.AvgPool2d(2), same()),
    "average, padded": after_conv(nn.AvgPool2d(3, 2, 1), same()),
    "average, padding not counted": after_conv(
        nn.AvgPool2d(3, 2, 1, count_include_pad=False), same()
    ),
    "average, ceil": after_conv(
        nn.AvgPool2d(2, ceil_mode=True, count_include_pad=False), same(20), width=20
    ),
    # linear
    "linear of one row": Case(
        lambda: nn.Sequential(nn.Linear(70, 33), nn.GELU(), nn.Linear(33, 5), nn.ReLU()), (1, 70)
    ),
    "linear": Case(lambda: nn.Sequential(nn.Linear(7, 33), nn.ReLU(), nn.Linear(33, 5)), (4, 7)),
    "linear, no bias": Case(lambda: nn.Linear(7, 5, bias=False), (4, 7)),
    "linear on 3-d": Case(
        lambda: nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 4), nn.Flatten()), (3, 5, 6)
    ),
    "linear, residual": Case(
        lambda: nn.Sequential(nn.Linear(6, 6), Two(torch.add, nn.Linear(6, 6), nn.Identity())),
        (4, 6),
    ),
    "linear, shared": Case(lambda: nn.Sequential(pointwise, nn.ReLU(), pointwise), (4, 6)),
    "products": Case(
        lambda: nn.Sequential(
            nn.Linear(6, 8),
            Function(lambda x: torch.bmm(torch.bmm(x, x.transpose(1, 2)), x)),
            nn.Flatten(),
        ),
        (3, 5, 6),
    ),
    "product with a parameter": Case(lambda: Scaled((6, 5), torch.mm), (4, 6)),
    "product of transposed": Case(
        lambda: nn.Sequential(nn.Linear(6, 8), Scaled((5, 8), lambda x, w: torch.mm(x, w.t()))),
        (4, 6),
    ),
    # residuals
    "residual that dies": after_conv(nn.ReLU(), Two(torch.add, nn.Identity(), same())),
    "residual, then relu": after_conv(
        Two(torch.add, nn.Sequential(same(), nn.ReLU(), same()), nn.Identity()), nn.ReLU()
    ),
    "residual that lives on": after_conv(Kept(Two(torch.add, same(), nn.Identity()))),
    "residual of two convolutions": after_conv(
        Two(torch.add, same(), nn.Conv2d(16, 16, 1)), nn.ReLU(), same()
    ),
    "residual in odd channels": after_conv(Two(torch.add, same(20), nn.Identity()), width=20),
    "residual that is the input": Case(
        lambda: nn.Sequential(Two(torch.add, same(3), nn.Identity()), nn.Flatten()), (4, 3, 5, 6)
    ),
    "residual after batch norm": after_conv(
        Two(torch.add, nn.Sequential(same(bias=False), nn.BatchNorm2d(16)), nn.Identity()),
        nn.ReLU(),
        same(),
    ),
    "residual of a view": after_conv(
        Two(torch.add, same(), Function(lambda x: x.flatten(2).view(x.shape))), size=(4, 4)
    ),
    "twice itself": after_conv(Two(torch.add, nn.Identity(), nn.Identity()), same()),
    "shared layer": after_conv(twice, nn.Tanh(), twice),
    "shared layer that adds": after_conv(Two(torch.add, twice, nn.Sequential(nn.ReLU(), twice))),
    "shared weight": after_conv(SharedWeight()),
    "shared batch norm": after_conv(norm := nn.BatchNorm2d(16), same(), norm),
    # concatenation
    "concatenation": after_conv(
        Two(lambda a, b: torch.cat([a, b], 1), same(), nn.Tanh()), same(32)
    ),
    "concatenation, odd": after_conv(
        Two(lambda a, b: torch.cat([a, b, a], 1), nn.Conv2d(20, 12, 1), nn.Conv2d(20, 7, 1)),
        width=20,
    ),
    "concatenation of rows": after_conv(Two(lambda a, b: torch.cat([a, b], 2), same(), same())),
    # batch norm
    "batch norm": after_conv(nn.BatchNorm2d(16), nn.ReLU(), same()),
    "batch norm first": Case(
        lambda: nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 8, 3), nn.Flatten()), (4, 3, 7, 6)
    ),
    "batch norm after pooling": after_conv(nn.MaxPool2d(2), nn.BatchNorm2d(16), same()),
    "batch norm without affine": after_conv(nn.BatchNorm2d(16, affine=False), nn.ReLU(), same()),
    "batch norm, relu read twice": after_conv(nn.BatchNorm2d(16), nn.ReLU(), Kept(same())),
    "batch norm read beside relu": after_conv(nn.BatchNorm2d(20), Kept(nn.ReLU()), width=20),
    "batch norm, own momentum": after_conv(nn.BatchNorm2d(16, eps=1e-2, momentum=0.3)),
    "batch norm in one dimension": Case(
        lambda: nn.Sequential(nn.Linear(6, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 4)),
        (8, 6),
    ),
    # activations
    **{str(layer): act(layer) for layer in ACTIVATION_LAYERS},
    "relu in place": after_conv(nn.ReLU(inplace=True), same(), nn.ReLU(inplace=True)),
    "sigmoid on odd channels": after_conv(nn.Sigmoid(), same(20), nn.Sigmoid(), width=20),
    "softmax": after_conv(nn.Flatten(), nn.Softmax(1)),
    "log-softmax": after_conv(nn.Flatten(), nn.LogSoftmax(1)),
    "softmax over channels": after_conv(nn.Softmax(1), same()),
    # views
    "views": after_conv(
        Function(lambda x: x.flatten(2).transpose(1, 2)), nn.Linear(16, 12),
        Function(lambda x: x.permute(0, 2, 1).reshape(4, 12, 9, 11)), same(12),
    ),
    "shuffled channels": after_conv(
        Function(lambda x: x.view(4, 2, 8, 9, 11).transpose(1, 2).reshape(4, 16, 9, 11)), same()
    ),
    "permuted images": after_conv(Function(lambda x: x.permute(0, 1, 3, 2)), same()),
    "permuted arithmetic": after_conv(
        Two(torch.mul, nn.Identity(), Function(lambda x: x.permute(0, 1, 3, 2))), size=(6, 6)
    ),
    "squeezed": after_conv(
        Function(lambda x: x.mean((2, 3), keepdim=True).squeeze(3).squeeze(2).unsqueeze(2))
    ),
    # arithmetic
    "numbers": after_conv(Function(lambda x: ((x + 1.5) * 0.5 - 0.25) / 3), same()),
    "numbers on odd channels": after_conv(Function(lambda x: (x + 1) * 2), same(20), width=20),
    "difference": after_conv(Two(torch.sub, same(), nn.Identity())),
    "product": after_conv(Two(torch.mul, same(), nn.Sigmoid())),
    "quotient": after_conv(Two(lambda a, b: a / (b + 2), same(), nn.Sigmoid())),
    "square": after_conv(Function(lambda x: x * x), same()),
    "by channel": after_conv(Scaled((16, 1, 1), torch.mul), same()),
    "by channel, from the left": after_conv(Scaled((16, 1, 1), lambda x, w: w * x), same()),
    "by column": after_conv(Scaled((11,), torch.add), same()),
    "by one number": after_conv(Scaled((), torch.mul), same()),
    "by sample": after_conv(
        Two(torch.mul, nn.Identity(), Function(lambda x: x.mean((1, 2, 3), keepdim=True))), same()
    ),
    "gated": after_conv(
        Two(
            torch.mul, nn.Identity(),
            nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(16, 16, 1), nn.Sigmoid()),
        ),
        same(),
    ),
    "by what the state indexes": after_conv(nn.BatchNorm2d(16), Looked()),
    # values that live on
    "kept over relu": after_conv(Kept(nn.ReLU())),
    "kept over a view and relu": after_conv(
        Kept(nn.Sequential(Function(lambda x: x.flatten(1)), nn.ReLU()))
    ),
    "kept over batch norm": after_conv(nn.MaxPool2d(2), Kept(nn.BatchNorm2d(16))),
    "kept over an idle pooling": after_conv(Kept(nn.AdaptiveAvgPool2d((9, 11)))),
    "kept over an idle mean": after_conv(
        nn.AdaptiveAvgPool2d(1), Kept(Function(lambda x: x.mean((2, 3), keepdim=True)))
    ),
    "kept over arithmetic": after_conv(Kept(Function(lambda x: x * 2))),
    "kept over idle dropout": after_conv(Kept(nn.Dropout(0.5))),
}  # fmt: skip
