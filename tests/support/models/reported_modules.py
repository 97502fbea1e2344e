"""Small modules after public bug reports: on each of them another compiler, exporter or tracer gave
a wrong result or an unclear error. The reports' own code is not copied; what it is about is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PYTORCH = "https://github.com/pytorch/pytorch/issues/"


class Reported(NamedTuple):
    """source: of the report. module: builds it. shapes: of the inputs, which are random; a number
    is that of classes of integers."""

    source: str
    module: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Tensor, ...]]


class Calls(nn.Module):
    """A function of a weighted input and of further ones: so that it can be trained."""

    def __init__(self, function: Callable[..., Any], features: int) -> None:
        super().__init__()
        self.function, self.weight = function, nn.Parameter(1 + torch.rand(features))

    def forward(self, x: Tensor, *others: Tensor) -> Any:
        return self.function(x * self.weight, *others)


class Plain(nn.Module):
    """A function of the inputs as they are."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


def numbers(*shapes: tuple[int, ...]) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: tuple(torch.randn(shape) for shape in shapes)


def calls(source: str, function: Callable[..., Any], *shapes: tuple[int, ...]) -> Reported:
    return Reported(source, lambda: Calls(function, shapes[0][-1]), numbers(*shapes))


# ---------------------------------------------------------------- indices and slices


def adds_at_rows(x: Tensor) -> Tensor:
    y, rows = x.clone(), torch.zeros(2, dtype=torch.int64)
    y[rows] += y[rows]
    return y


def sets_positions(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, torch.tensor([2, 0])] = torch.tensor([1.0, -1.0])
    return y


def sets_slice(x: Tensor) -> Tensor:
    y = torch.sigmoid(x)
    y[:, 0:2] = torch.sigmoid(y[:, 0:2])
    return y


def adds_to_a_column_twice(x: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    y[:, 0] += x[:, 2].abs()
    y[:, 0] += x[:, 2].abs()
    return y


def adds_at_indices_of_input(x: Tensor, update: Tensor) -> Tensor:
    x[..., torch.tensor([2, 1, 3]), 2:4] += update
    return x


def marks_ends(x: Tensor, lengths: Tensor) -> Tensor:
    x[:, :, 2] = torch.arange(x.shape[1]).eq(lengths[:, None]).float()
    return x


def doubles_last(x: Tensor) -> Tensor:
    x[..., -1] *= 2.0
    return x


def swaps_data(x: Tensor) -> Tensor:
    first, second = x * 0, x * 1
    first.data = second
    return first


def diagonal(x: Tensor) -> Tensor:
    return torch.diagonal_scatter(x, torch.zeros(x.shape[0])) * 2


def segments(x: Tensor) -> Tensor:
    ids = torch.tensor([0, 2, 2, 1, 0])[:, None].expand(5, x.shape[1])
    return torch.zeros(3, x.shape[1]).scatter_add(0, ids, x[:5])


def masks_in_place(x: Tensor) -> Tensor:
    y = x * 2
    return y.masked_fill_(x > 0.5, -1.0)


def boxes(deltas: Tensor, regions: Tensor) -> Tensor:
    regions = regions.unsqueeze(2)
    low, high = regions[..., :2], regions[..., 2:]
    return (low + high) * 0.5 + (high - low) * deltas[..., :2]


# ---------------------------------------------------------------- functions


class Scaled:
    """Python's own operators beside a tensor's."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __mul__(self, other: Tensor) -> Tensor:
        return self.tensor * other


def fuzzed(x: Tensor) -> Tensor:
    turned = (x / 1.5).transpose(2, 4)
    floor = torch.floor(turned * 3)
    found = x / 1.5, floor.mean(4), F.interpolate(floor, size=(1, 2, 6), mode="trilinear")
    return torch.cat([part.flatten(1) for part in found], 1)


def tangents(a: Tensor, b: Tensor) -> Tensor:
    return torch.tan(torch.cat((a, b), 1).clamp(-0.7, 0.7)) + torch.max(a, b).repeat(1, 2)


class Modulated(nn.Module):
    """Two layer norms in a row with one table of scales and shifts."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8, elementwise_affine=False)
        self.table = nn.Parameter(torch.randn(4, 8) / 4)

    def forward(self, x: Tensor) -> Tensor:
        for shift, scale in (self.table[:2], self.table[2:]):
            x = self.norm(x) * (1 + scale) + shift
        return x


class PooledSum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(self.layer(x), 3).flatten(1).sum(-1)


class MeanOfImages(nn.Module):
    """A mean over all axes but the batch's."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(self.first(x))
        return found.mean(dim=(1, 2, 3))


class Encoder(nn.Module):
    """Transformer layers on ids, a short sequence alone in its batch."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(15, 24)
        layer = nn.TransformerEncoderLayer(24, 4, 24, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids: Tensor) -> Tensor:
        found: Tensor = self.layers(self.table(ids))
        return found


class Derivative(nn.Module):
    """The gradient of a norm, a root or an exponential, in the forward pass."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function, self.weight = function, nn.Parameter(1 + torch.rand(5))

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            found = self.function(x * self.weight)
            (gradient,) = torch.autograd.grad(found, x, create_graph=self.training)
        return gradient


MODULES: dict[str, Reported] = {
    "rows added twice": calls(f"{PYTORCH}138908", adds_at_rows, (3, 5)),
    "positions set": calls(
        "https://github.com/apple/coremltools/issues/2188", sets_positions, (4, 5)
    ),
    "slice set": calls(
        "https://github.com/NVIDIA-AI-IOT/torch2trt/issues/480", sets_slice, (4, 5)
    ),
    "column added to twice": calls(f"{PYTORCH}136662", adds_to_a_column_twice, (2, 3)),
    "added at indices of an input": Reported(
        f"{PYTORCH}29008",
        lambda: Plain(adds_at_indices_of_input),
        numbers((3, 4, 6, 7), (3, 1, 3, 2)),
    ),
    "ends marked in an input": Reported(
        f"{PYTORCH}43548",
        lambda: Plain(marks_ends),
        lambda: (torch.randn(2, 4, 3), torch.tensor([1, 3])),
    ),
    "last column doubled in an input": Reported(
        "https://github.com/openvinotoolkit/nncf/pull/1639",
        lambda: Plain(doubles_last),
        numbers((4, 5)),
    ),
    "data swapped": calls(f"{PYTORCH}48477", swaps_data, (4, 5)),
    "diagonal": calls(f"{PYTORCH}182012", diagonal, (6, 6)),
    "segments summed": calls(f"{PYTORCH}91357", segments, (5, 4)),
    "masked in place": calls(f"{PYTORCH}11555", masks_in_place, (4, 5)),
    "boxes": calls(
        "https://github.com/openvinotoolkit/openvino/issues/16872",
        boxes, (2, 10, 1, 4), (2, 10, 4),
    ),
    "indexed by a row's number": Reported(
        f"{PYTORCH}182345",
        lambda: Plain(lambda x, index: x[:, index[0]]),
        lambda: (torch.randn(4, 5), torch.arange(4) % 3),
    ),
    "unfolded": calls(f"{PYTORCH}69889", lambda x: x.unfold(1, 3, 2), (2, 9)),
    "cumulative product": calls(f"{PYTORCH}102948", lambda x: torch.cumprod(x, -1), (3, 6)),
    "Python's operators": calls(
        f"{PYTORCH}136757", lambda x: Scaled(torch.ones_like(x)) * x, (3, 4)
    ),
    "resized to a pixel": calls(
        f"{PYTORCH}183523",
        lambda x: F.interpolate(x, size=(1, 1), mode="bilinear", align_corners=False),
        (2, 3, 5, 6),
    ),
    "resized with aligned corners": calls(
        f"{PYTORCH}150165",
        lambda x: F.interpolate(x, size=(8, 8), mode="bilinear", align_corners=True),
        (1, 3, 4, 4),
    ),
    "padded by its edge": calls(
        f"{PYTORCH}115157", lambda x: F.pad(x.abs(), (0, 2, 3, 0), "replicate") * 2, (2, 3, 4, 5)
    ),
    "tangents": calls(f"{PYTORCH}115260", tangents, (3, 4), (3, 4)),
    "fuzzed volumes": calls(f"{PYTORCH}114223", fuzzed, (2, 1, 4, 3, 6)),
    "transposed convolution with output padding": Reported(
        f"{PYTORCH}184026",
        lambda: nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1),
        numbers((2, 3, 5, 4)),
    ),
    "adaptive maximum of uneven windows": calls(
        f"{PYTORCH}190064", lambda x: F.adaptive_max_pool2d(x, (3, 3)), (2, 2, 5, 5)
    ),
    "adaptive maximum of more windows than pixels": calls(
        f"{PYTORCH}190064", lambda x: F.adaptive_max_pool2d(x, (4, 4)), (2, 2, 2, 2)
    ),
    "pooled and summed": Reported(f"{PYTORCH}179931", PooledSum, numbers((2, 3, 7, 7))),
    "mean of images": Reported(
        "https://github.com/microsoft/onnxruntime/issues/20357", MeanOfImages, numbers((2, 3, 4, 4))
    ),
    "volumes and their norm": Reported(
        "https://github.com/openvinotoolkit/openvino/issues/1275",
        lambda: nn.Sequential(nn.Conv3d(3, 8, (1, 3, 3), (1, 2, 2), (0, 1, 1)), nn.BatchNorm3d(8)),
        numbers((2, 3, 2, 6, 6)),
    ),
    "encoder": Reported(f"{PYTORCH}110557", Encoder, lambda: (torch.tensor([[1, 2, 3]]),)),
    "modulated norms": Reported(f"{PYTORCH}193061", Modulated, numbers((6, 8))),
    "derivative of a root": Reported(
        f"{PYTORCH}146719", lambda: Derivative(lambda x: x.square().sum().sqrt()), numbers((4, 5))
    ),
    "derivative of an exponential": Reported(
        f"{PYTORCH}146719", lambda: Derivative(lambda x: x.square().mean().exp()), numbers((4, 5))
    ),
    "derivative of a norm": Reported(
        f"{PYTORCH}146719",
        lambda: Derivative(lambda x: torch.linalg.norm(x, dim=-1).sum()),
        numbers((4, 5)),
    ),
}  # fmt: skip
