"""More modules after public bug reports, most of them of exporters: layers and their settings that
another program got wrong or refused. The reports' own code is not copied; what it is about is."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from support.models.reported_modules import PYTORCH, Plain, Reported, calls, numbers

TENSORRT = "https://github.com/pytorch/TensorRT/issues/"
COREML = "https://github.com/apple/coremltools/issues/"


def sine_in_place(x: Tensor) -> Tensor:
    return x.clone().sin_().t()


def padded_to_pairs(x: Tensor, lengths: Tensor) -> Tensor:
    """Time in pairs of frames, the last one padded, times the number of pairs."""
    rows = F.pad(x, [0, 0, 0, (-x.shape[1]) % 2, 0, 0])
    pairs = rows.reshape(rows.shape[0], rows.shape[1] // 2, rows.shape[2] * 2)
    return pairs * torch.ceil(lengths.float() / 2).int()[:, None, None]


def with_zeros(x: Tensor) -> Tensor:
    return torch.where(torch.arange(x.shape[1]) % 4 == 1, 0.0, x)


def shifted_windows(x: Tensor) -> Tensor:
    """Windows of 2x2 of an image that was padded and rolled, as shifted attention takes them."""
    x = F.pad(x, (0, 0, 0, 1, 0, 1))
    x = torch.roll(x, shifts=(-1, -1), dims=(1, 2))
    count, height, width, channels = x.shape
    x = x.view(count, height // 2, 2, width // 2, 2, channels)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, channels)


def sets_row(x: Tensor) -> Tensor:
    x[:, 1, 1, :] = torch.zeros(1, 1, x.shape[3])
    return x


def bilinear_by_hand(image: Tensor, places: Tensor) -> Tensor:
    """Samples of images at places in pixels, read by an index for each corner."""
    count, channels, height, width = image.shape
    x, y = places.unbind(-1)
    left, top = x.floor(), y.floor()
    flat = image.flatten(2)
    found = torch.zeros(count, channels, *x.shape[1:])
    for across, down in ((0, 0), (1, 0), (0, 1), (1, 1)):
        at_x, at_y = left + across, top + down
        share = (1 - (x - at_x).abs()) * (1 - (y - at_y).abs())
        place = at_y.clamp(0, height - 1).long() * width + at_x.clamp(0, width - 1).long()
        corner = flat.gather(2, place.flatten(1)[:, None].expand(-1, channels, -1))
        found = found + corner.view_as(found) * share[:, None]
    return found


class Tied(nn.Module):
    """A decoder that is the encoder's weight transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(5, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.encoder(x), self.encoder.weight.t())


class Passes(nn.Module):
    """A buffer of the root that it passes to layers, which are a slice of a list."""

    constant: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("constant", torch.randn(4, 6))
        self.layers = nn.ModuleList(nn.Bilinear(6, 6, 6) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers[0](x, x)
        for layer in cast(nn.ModuleList, self.layers[1:]):
            x = layer(x, self.constant)
        return x


class Cache(nn.Module):
    """Writes a projection at a position of a buffer, as a decoder's cache does."""

    cache: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(1, 4, 6, 8))
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        self.cache.index_copy_(2, position, self.layer(x).unsqueeze(2))
        return self.cache.sum(dim=2)


class Adaptive(nn.Module):
    """Instance norm by a batch norm over samples and channels, whose scale and shift are tensors in
    attributes."""

    mean: Tensor
    variance: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3, padding=1)
        self.scale, self.shift = torch.rand(8), torch.rand(8)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("variance", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x)
        count, channels = x.shape[:2]
        mean, variance = self.mean.repeat(count), self.variance.repeat(count)
        joined = x.contiguous().view(1, count * channels, *x.shape[2:])
        found = F.batch_norm(joined, mean, variance, self.scale, self.shift, True, 0.1, 1e-5)
        return found.view_as(x)


class Packed(nn.Module):
    """A recurrent layer between packing and padding."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(4, 3, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True)
        found, _ = pad_packed_sequence(self.layer(packed)[0], batch_first=True)
        return found


class SortedByLength(nn.Module):
    """A bidirectional layer on texts in the order of their lengths, with given first states."""

    states: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(4, 3, batch_first=True, bidirectional=True)
        self.register_buffer("states", torch.zeros(2 * 8 * 3))

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        order = lengths.argsort(descending=True)
        first = self.states[: 2 * x.shape[0] * 3].view(2, x.shape[0], 3)
        found, _ = self.layer(x[order], (first, first))
        return cast(Tensor, found)[order.argsort()]


def grid(rows: int, columns: int) -> Tensor:
    return torch.rand(2, rows, columns, 2) * 2 - 1


LAYERS: dict[str, Reported] = {
    "reciprocal in place": calls(
        f"{PYTORCH}93824", lambda x: (x.abs() + 1).reciprocal_() * x, (4, 5)
    ),
    "index add with a factor": calls(
        f"{PYTORCH}108963",
        lambda x: torch.zeros_like(x).index_add(0, torch.tensor([2, 0, 2]), x[:3], alpha=2) / 2,
        (4, 5),
    ),
    "smallest after a sine in place": calls(
        f"{PYTORCH}183894", lambda x: sine_in_place(x) + sine_in_place(x).argmin(), (5, 7)
    ),
    "largest after a sine in place": calls(
        f"{PYTORCH}183082", lambda x: sine_in_place(x) + sine_in_place(x).argmax(), (5, 7)
    ),
    "largest of a transposed sum": calls(
        f"{PYTORCH}178964",
        lambda x, y: torch.add(*(x.transpose(0, 1) + y).max(dim=1)),
        (8, 8),
        (8, 8),
    ),
    "places of maxima of transposed images": calls(
        f"{PYTORCH}197434",
        lambda x: torch.add(*F.adaptive_max_pool2d(x.transpose(2, 3), (2, 2), return_indices=True)),
        (2, 4, 12, 12),
    ),
    "circular padding": calls(
        f"{PYTORCH}86690", lambda x: F.pad(x, (1, 1, 2, 2), "circular"), (1, 2, 4, 4)
    ),
    "even kernel with circular padding": Reported(
        f"{PYTORCH}100160",
        lambda: nn.Sequential(
            nn.Conv2d(3, 10, 6, padding="same", padding_mode="circular"), nn.Flatten()
        ),
        numbers((2, 3, 8, 8)),
    ),
    "padded around, then with zeros": calls(
        f"{PYTORCH}108401",
        lambda x: F.pad(F.pad(x, (1, 1, 0, 0), mode="circular"), (0, 0, 1, 1)),
        (1, 2, 4, 5),
    ),
    "frames in pairs": Reported(
        f"{PYTORCH}60179",
        lambda: Plain(padded_to_pairs),
        lambda: (torch.randn(2, 7, 4), torch.tensor([7, 4])),
    ),
    "cumulative product with zeros": calls(
        f"{PYTORCH}174016", lambda x: with_zeros(x).cumprod(dim=1), (3, 8)
    ),
    "running maxima": calls(
        "https://github.com/pytorch/pytorch/pull/26637", lambda x: x.cummax(dim=1).values, (3, 10)
    ),
    "tied to its transpose": Reported(f"{PYTORCH}127357", Tied, numbers((1, 5))),
    "a buffer passed to layers": Reported(f"{PYTORCH}127643", Passes, numbers((4, 6))),
    "a cache written at a position": Reported(
        f"{TENSORRT}4161", Cache, lambda: (torch.randn(1, 4, 8), torch.tensor([2]))
    ),
    "elements chosen by a mask": calls(f"{TENSORRT}2024", lambda x: x[x > 0.25], (4, 5)),
    "nearest samples": Reported(
        "https://github.com/pytorch/TensorRT/pull/3340",
        lambda: Plain(lambda x, at: F.grid_sample(x, at, mode="nearest", align_corners=False)),
        lambda: (torch.randn(2, 3, 6, 5), grid(4, 3)),
    ),
    "samples of a line": Reported(
        "https://github.com/NVIDIA/TensorRT/issues/4646",
        lambda: Plain(lambda x, at: F.grid_sample(x, at, align_corners=False)),
        lambda: (torch.randn(2, 1, 1, 64), grid(1, 9)),
    ),
    "samples by hand": Reported(
        "https://github.com/openvinotoolkit/openvino/issues/3659",
        lambda: Plain(bilinear_by_hand),
        lambda: (torch.randn(2, 3, 6, 5), torch.rand(2, 4, 3, 2) * 3.9),
    ),
    "adaptive instance norm": Reported(f"{COREML}1357", Adaptive, numbers((2, 3, 6, 6))),
    "pixels unshuffled": calls(f"{COREML}1321", lambda x: F.pixel_unshuffle(x, 2), (2, 3, 4, 6)),
    "spectral norm": Reported(
        f"{COREML}778", lambda: spectral_norm(nn.Conv2d(3, 4, 3)).eval(), numbers((2, 3, 6, 6))
    ),
    "weight norm of a transposed convolution": Reported(
        "https://github.com/pytorch/executorch/issues/3946",
        lambda: weight_norm(nn.ConvTranspose1d(6, 3, 8, 4, padding=2)),
        numbers((2, 6, 7)),
    ),
    "a row of an input set": Reported(
        "https://github.com/pytorch/TensorRT/pull/1338",
        lambda: Plain(sets_row),
        numbers((2, 3, 4, 5)),
    ),
    "shifted windows": calls(f"{PYTORCH}56355", shifted_windows, (1, 5, 5, 4)),
    "volumes with output padding": Reported(
        "https://github.com/apache/tvm/issues/19524",
        lambda: nn.ConvTranspose2d(16, 3, 3, stride=2, padding=1, output_padding=1),
        numbers((1, 16, 7, 7)),
    ),
    "texts packed by length": Reported(
        f"{PYTORCH}62240", Packed, lambda: (torch.randn(2, 5, 4), torch.tensor([5, 3]))
    ),
    "texts in order of length": Reported(
        f"{PYTORCH}91526", SortedByLength, lambda: (torch.randn(3, 5, 4), torch.tensor([2, 5, 4]))
    ),
    "convolution with circular padding": Reported(
        f"{PYTORCH}95229",
        lambda: nn.Conv2d(3, 4, 3, padding=(2, 1), padding_mode="circular"),
        numbers((2, 3, 5, 5)),
    ),
    "convnext's stem around": Reported(
        "https://github.com/pytorch/vision/issues/7541",
        lambda: nn.Conv2d(3, 6, 3, 2, padding=1, padding_mode="circular"),
        numbers((1, 3, 8, 8)),
    ),
}
