"""A small network of linear layers, quantised by a rule: all that a plan does with such layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.records.quantization import QuantizationRule
from golow.workload.quantization.quantize import quantized
from support.models.quantized_networks import samples_of

WIDTH, INNER, CLASSES = 32, 48, 7


class Gated(nn.Module):
    """Norms, one of which a residual reads, too; two layers of one input, one with an activation;
    residuals; two layers after one another; and one whose outputs are odd."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.root = nn.LayerNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.gate, self.inner = nn.Linear(WIDTH, INNER), nn.Linear(WIDTH, INNER)
        self.back = nn.Linear(INNER, WIDTH, bias=False)
        self.wide, self.narrow = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """[..., WIDTH] -> [..., CLASSES]"""
        x = self.norm(x)
        x = x + self.back(functional.silu(self.gate(x)) * self.inner(x))
        x = x + self.narrow(functional.gelu(self.wide(self.root(x)), approximate="tanh"))
        return self.head(functional.relu(x))


def rows(*before: int) -> Tensor:
    """An input with these axes before the last."""
    return torch.randn(*before, WIDTH, generator=torch.Generator().manual_seed(0))


def gated(rule: QuantizationRule, x: Tensor) -> nn.Module:
    """The network, quantised on these inputs."""
    torch.manual_seed(0)
    return quantized(Gated().eval(), rule, samples_of(x)).module
