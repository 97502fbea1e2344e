"""How far correct float32 levels are from gradients that cancel in part, in roundings of what they
sum and of their own size: the table of docs/understand/check_experiments.md.

    python benchmarks/cancelling_gradients.py
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from golow.check.rounding import FLOAT32
from golow.levels.torch.gradient_terms import SUMMATION, move

SHAPES = ((8, 3, 16, 16), (2, 3, 64, 64))
Gradients = dict[str, Tensor]


class Network(nn.Module):
    """Three convolutions with biases before batch norm, a mean over the image, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for channels in (3, 16, 16):
            layers += [nn.Conv2d(channels, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
        self.body, self.head = nn.Sequential(*layers), nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 3, height, width] -> [batch, 10]"""
        return self.head(self.body(x).mean((2, 3)))


def size(tensor: Tensor) -> float:
    """The root mean square."""
    return float(tensor.double().square().mean().sqrt())


def gradients(network: Network, x: Tensor, target: Tensor, *, moved: bool = False) -> Gradients:
    """Of one step, in double precision."""
    network.zero_grad()
    loss = nn.functional.cross_entropy(network(x), target)
    if moved:
        move(loss, torch.Generator().manual_seed(0))
    loss.backward()
    found = {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
    return {name: gradient.double().clone() for name, gradient in found.items()}


def main() -> None:
    """Print a row for each parameter."""
    torch.set_num_threads(1)
    for shape in SHAPES:
        torch.manual_seed(0)
        network, x = Network(), torch.randn(shape)
        target = torch.randint(0, 10, shape[:1])
        exact = copy.deepcopy(network).double()
        wanted = gradients(exact, x.double(), target)
        there = gradients(exact, x.double(), target, moved=True)
        eager = gradients(network, x, target)
        turned = network.to(memory_format=torch.channels_last)
        last = gradients(turned, x.contiguous(memory_format=torch.channels_last), target)
        print(f"\n{'x'.join(map(str, shape)):20}{'terms/own':>12}{'eager':>10}", end="")
        print(f"{'channels_last':>15}{'of own':>12}")
        for name, gradient in wanted.items():
            terms, own = size(there[name] - gradient) / (SUMMATION / 2), size(gradient)
            errors = [size(found[name] - gradient) / FLOAT32.size for found in (eager, last)]
            print(
                f"{name:20}{terms / own:12.2g}{errors[0] / terms:10.2g}{errors[1] / terms:15.3g}"
                f"{errors[1] / own:12.3g}"
            )


if __name__ == "__main__":
    main()
