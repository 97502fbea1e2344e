"""What float32 costs in models that amplify rounding, and what the check measures of that: the
table of docs/understand/check_experiments.md.

    python benchmarks/rounded_operations.py
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.check.moved_bundle import moved
from golow.check.reference import DRAWS
from golow.check.rounding import FLOAT32
from golow.levels.torch.in_double import InDouble
from golow.levels.torch.rounded_operations import RoundedOperations


class After(nn.Module):
    """A function of what a layer returns."""

    def __init__(self, layer: nn.Module, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.function = layer, function

    def forward(self, x: Tensor) -> Tensor:
        """Any shape that the layer takes."""
        return self.function(self.layer(x))


def pixels_mean(y: Tensor) -> Tensor:
    """[batch, channels, height, width] -> [batch, channels]: what a norm leaves of the mean."""
    return functional.instance_norm(y).mean((2, 3))


def one_pass_variance(y: Tensor) -> Tensor:
    """[rows, columns] -> [rows]"""
    y = y + 1000
    return (y * y).mean(-1) - y.mean(-1) ** 2


def chaotic() -> nn.Module:
    """Forty layers whose weights are too large."""
    layers = [nn.Linear(32, 32) for _ in range(40)]
    for layer in layers:
        nn.init.normal_(layer.weight, std=0.35)
    return nn.Sequential(*(part for layer in layers for part in (layer, nn.Tanh())))


def plain() -> nn.Module:
    """Three layers."""
    layers = [nn.Linear(*sizes) for sizes in pairwise((16, 32, 32, 10))]
    return nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])


def linear(function: Callable[[Tensor], Tensor], width: int = 16) -> nn.Module:
    """A function of a linear layer's results."""
    return After(nn.Linear(16, width), function)


def models() -> dict[str, tuple[nn.Module, Tensor]]:
    """Each with its input."""
    images, rows = torch.randn(4, 3, 32, 32), torch.randn(8, 16)
    return {
        "three layers": (plain(), rows),
        "instance norm, mean": (After(nn.Conv2d(3, 8, 3), pixels_mean), images),
        "the same, 100 added": (After(nn.Conv2d(3, 8, 3), pixels_mean), images + 100),
        "variance in one pass": (linear(one_pass_variance, 64), rows),
        "(x + 10000) - 10000": (linear(lambda y: (y + 1e4) - 1e4), rows),
        "sine of 1e4 x": (linear(lambda y: torch.sin(1e4 * y)), rows),
        "forty layers of tanh": (chaotic(), torch.randn(8, 32)),
    }


def draw(module: nn.Module, x: Tensor, seed: int, *, rounded: bool) -> Tensor:
    """The float64 output for weights and inputs moved by a few roundings."""
    generator = torch.Generator().manual_seed(seed)
    double = copy.deepcopy(module).double()
    state = {name: moved(t, FLOAT32, generator).double() for name, t in module.state_dict().items()}
    double.load_state_dict(state)
    with ExitStack() as stack:
        stack.enter_context(InDouble())
        if rounded:
            stack.enter_context(RoundedOperations(FLOAT32.grid._replace(seed=seed)))
        output: Tensor = double(moved(x, FLOAT32, generator).double())
    return output


def main() -> None:
    """Print the table."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    print(f"{'model':24} {'eager':>9} {'d':>9} {'p':>9} {'size':>9}")
    with torch.no_grad():
        for name, (module, x) in models().items():
            exact = copy.deepcopy(module).double()(x.double())
            spreads = [
                max(_rms(draw(module, x, n, rounded=rounded) - exact) for n in range(DRAWS))
                for rounded in (False, True)
            ]
            figures = (_rms(module(x).double() - exact), *spreads, _rms(exact))
            print(f"{name:24} {' '.join(f'{figure:9.1e}' for figure in figures)}")


def _rms(tensor: Tensor) -> float:
    return float(tensor.square().mean().sqrt())


if __name__ == "__main__":
    main()
