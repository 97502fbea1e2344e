"""Networks with linear recurrences: loops over their steps, and PyTorch's scan."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

STEPS, WIDTH, STATES = 6, 8, 4
Loop = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def selective(decay: Tensor, x: Tensor, c: Tensor, out: Tensor) -> Tensor:
    """As Mamba without its kernels: [B, D, L, N], read by a product in each step."""
    state, found = torch.zeros_like(x[:, :, 0]), []
    for step in range(x.shape[2]):
        state = decay[:, :, step] * state + x[:, :, step]
        found.append((state @ c[:, step].unsqueeze(-1))[:, :, 0])
    return torch.stack(found, -1).transpose(1, 2) @ out


def scanned(decay: Tensor, x: Tensor, c: Tensor, out: Tensor) -> Tensor:
    """The same by PyTorch's scan."""
    scan: Any = import_module("torch._higher_order_ops.associative_scan")

    def combine(left: Any, right: Any) -> Any:
        return left[0] * right[0], right[0] * left[1] + right[1]

    _, states = scan.associative_scan(combine, (decay, x), dim=2, combine_mode="generic")
    return (states.transpose(1, 2) @ c.unsqueeze(-1))[..., 0] @ out


def shared(decay: Tensor, x: Tensor, c: Tensor, out: Tensor) -> Tensor:
    """One decay for all steps, terms that each step computes, and a layer that all steps share."""
    state, found = torch.zeros_like(x[:, :, 0]), []
    for step in range(x.shape[2]):
        state = x[:, :, step] * c[:, None, step] + state * decay[:, :, 0]
        found.append(torch.tanh(state.sum(-1) @ out))
    return torch.stack(found, 1)


def not_linear(decay: Tensor, x: Tensor, c: Tensor, out: Tensor) -> Tensor:
    """The next decay depends on the state."""
    state = torch.zeros_like(x[:, :, 0])
    for step in range(x.shape[2]):
        state = (decay[:, :, step] + state) * state + x[:, :, step]
    return state.sum(-1) @ out


class Network(nn.Module):
    """x: [B, STEPS, WIDTH]."""

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self.loop = loop
        self.of_c = nn.Linear(WIDTH, STATES)
        self.rate = nn.Parameter(torch.rand(WIDTH, STATES))
        self.out = nn.Parameter(torch.randn(WIDTH, 2))

    def forward(self, x: Tensor) -> Tensor:
        c = self.of_c(x)
        step = nn.functional.softplus(x).transpose(1, 2)[..., None]
        decay = torch.exp(-self.rate[None, :, None] * step)
        y = self.loop(decay, step * c[:, None], c, self.out)
        return y if y.dim() == 2 else y.flatten(1)


def network(loop: Loop) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return Network(loop), torch.randn(3, STEPS, WIDTH)
