"""Norms with the functions around them, gates of channels and norms of whole images, by golow's
kernels on a GPU: each operation and the network against float64, in both modes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from golow.levels.direct.cudnn.level import probe
from golow.records.workload import Mode, Precision

if not probe().available:
    pytest.skip(probe().missing, allow_module_level=True)

from support.direct.cudnn_in_process import OnGpu, compute, lowered
from support.direct.in_process import assert_right

pytestmark = pytest.mark.gpu


class Inverted(nn.Module):
    """An inverted bottleneck with a gate, as in EfficientNet."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Sequential(nn.Conv2d(3, 48, 1), nn.BatchNorm2d(48), nn.SiLU())
        self.depthwise = nn.Sequential(
            nn.Conv2d(48, 48, 3, padding=1, groups=48), nn.BatchNorm2d(48), nn.SiLU()
        )
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(48, 8, 1), nn.SiLU(), nn.Conv2d(8, 48, 1),
            nn.Sigmoid(),
        )  # fmt: skip
        self.after = nn.Sequential(nn.Conv2d(48, 48, 1), nn.BatchNorm2d(48))
        self.last = nn.Linear(48, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.before(x)
        inner = self.depthwise(x)
        y = x + self.after(inner * self.gate(inner))
        return self.last(nn.functional.hardswish(y).mean((2, 3)))


class Pooled(nn.Module):
    """A mixer of tokens by pooling after a norm of whole images, as in PoolFormer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 64, 1), nn.GroupNorm(1, 64)
        self.pool, self.last = nn.AvgPool2d(3, 1, 1, count_include_pad=False), nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        normed = self.norm(x)
        return self.last((x + self.pool(normed) - normed).mean((2, 3)))


class Written(nn.Module):
    """A layer norm in a network's own words, as in DeBERTa."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(24, 64), nn.Linear(64, 5)
        self.weight, self.bias = (nn.Parameter(torch.randn(64)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)
        return self.last(self.weight * centred / (variance + 1e-7).sqrt() + self.bias)


SUBJECTS = {
    "inverted": (Inverted, (4, 3, 56, 56)),
    "pooled": (Pooled, (2, 3, 56, 56)),
    "written": (Written, (70, 24)),
}


@pytest.fixture(scope="module")
def on(tmp_path_factory: pytest.TempPathFactory) -> OnGpu:
    return OnGpu(tmp_path_factory.mktemp("cudnn"))


@pytest.mark.parametrize("precision", ["ieee", "tf32", "bf16", "fp16"])
@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("name", SUBJECTS)
def test_each_operation_and_the_network(
    name: str, mode: Mode, precision: Precision, on: OnGpu
) -> None:
    torch.manual_seed(0)
    make, shape = SUBJECTS[name]
    network = lowered(make(), torch.randn(shape), mode, precision=precision)
    found = compute(network, on, precision)  # judges the operations
    if precision == "ieee":
        assert_right(network, found)
