"""What tests of `golow.compile` share: a small network, its compilation, and the comparison."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import golow
from golow.compiled.compiled_module import CompiledModule


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    layers = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 5),
    )  # fmt: skip
    return layers.eval()


def compiled(module: nn.Module, inputs: object, **options: object) -> CompiledModule:
    return golow.compile(module, inputs, quiet=True, threads=1, **options)  # type: ignore[arg-type]


def close(found: Tensor, wanted: Tensor) -> bool:
    return found.shape == wanted.shape and torch.allclose(found, wanted.detach(), atol=1e-5)


X = torch.randn(4, 3, 12, 12, generator=torch.Generator().manual_seed(1))
