"""How far correct float32 levels are from a gradient whose exact value is zero, in roundings of
what it sums: the table of docs/understand/check_experiments.md.

    python benchmarks/zero_gradients.py
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from golow.check.rounding import FLOAT32
from golow.levels.torch.gradient_terms import SUMMATION, cancelled, watch

Gradients = dict[str, Tensor]


class Network(nn.Module):
    """Convolutions with biases before batch norm; 0 is a max pool, -w a convolution of stride 2."""

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for width in widths:
            if width == 0:
                layers.append(nn.MaxPool2d(2))
                continue
            stride = 2 if width < 0 else 1
            layers.append(nn.Conv2d(channels, abs(width), 3, stride, padding=1))
            layers += [nn.BatchNorm2d(abs(width)), nn.ReLU()]
            channels = abs(width)
        self.features, self.head = nn.Sequential(*layers), nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 3, height, width] -> [batch, 10]"""
        return self.head(self.features(x).mean((2, 3)))


NETWORKS = {
    "3 convolutions": (16, -32, -64),
    "8 convolutions": (16, 16, 0, 32, 32, 0, 64, 64, 64, 64),
}
CASES = (
    ("3 convolutions", 8, 32),
    ("3 convolutions", 64, 32),
    ("3 convolutions", 2, 128),
    ("3 convolutions", 16, 128),
    ("8 convolutions", 8, 32),
    ("8 convolutions", 32, 64),
)


def size(tensor: Tensor) -> float:
    """The root mean square."""
    return float(tensor.double().square().mean().sqrt())


def loss_of(network: nn.Module, x: Tensor, labels: Tensor) -> Tensor:
    """The loss that the gradients are of."""
    return nn.functional.cross_entropy(network(x), labels)


def gradients(
    network: nn.Module, x: Tensor, labels: Tensor, order: torch.memory_format
) -> Gradients:
    """In float32, with weights and activations in that order."""
    own = copy.deepcopy(network).to(memory_format=order)
    loss_of(own, x.contiguous(memory_format=order), labels).backward()
    return {name: p.grad for name, p in own.named_parameters() if p.grad is not None}


def main() -> None:
    """Print a line for each gradient that is exactly zero."""
    torch.set_num_threads(1)
    print(f"{'network':<16}{'batch':>6}{'pixels':>7}  {'bias':<17}", end="")
    print(f"{'Z/S':>6}{'eager':>8}{'channels_last':>15}{'limit without Z':>17}{'limit':>8}")
    for name, batch, pixels in CASES:
        torch.manual_seed(0)
        network = Network(NETWORKS[name])
        x, labels = torch.randn(batch, 3, pixels, pixels), torch.randint(0, 10, (batch,))
        exact = copy.deepcopy(network).double()
        loss = loss_of(exact, x.double(), labels)
        watched = watch(loss)
        loss.backward()  # type: ignore[no-untyped-call]
        terms = cancelled(watched)
        orders = (torch.contiguous_format, torch.channels_last)
        found = [gradients(network, x, labels, order) for order in orders]
        all_gradients = torch.cat(
            [p.grad.flatten() for p in exact.parameters() if p.grad is not None]
        )
        neighbours = size(all_gradients)
        for bias, parameter in exact.named_parameters():
            if parameter not in terms or parameter.grad is None:
                continue
            unit = FLOAT32.size * terms[parameter]
            eager, other = (size(each[bias] - parameter.grad) / unit for each in found)
            limit = 3 * eager + FLOAT32.group * neighbours / terms[parameter]
            print(f"{name:<16}{batch:>6}{pixels:>7}  {bias:<17}", end="")
            print(f"{terms[parameter] / neighbours:>6.0f}{eager:>8.2f}{other:>15.2f}", end="")
            print(f"{limit:>17.1f}{limit + SUMMATION / FLOAT32.size:>8.1f}")


if __name__ == "__main__":
    main()
