"""How far the outputs move if one layer's weights do: what a check of the outputs can see of it.

With each weight of a layer moved by the share x of itself, at random, an output moves by x times
sqrt(sum over weights of (weight x d output / d weight)^2), in the first order. The sum over all
elements of an output comes from one backward pass for a random direction v, since for normal v the
mean of (v . d)^2 is the sum of d^2 (Hutchinson, https://doi.org/10.1080/03610918908812806).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from golow.lower.capture.module_outputs import leaves_of

RESPONSE = "response"
"""Name of a file in a bundle: the reference writes responses instead of outputs."""
DRAWS = 3


def layer_responses(module: nn.Module, call: Callable[[], Any]) -> dict[str, Tensor]:
    """For each output and each weight with two axes or more that it depends on: the root mean
    square over the output's elements of how far they move, for weights moved by all of themselves.

    call: the module's forward pass. Keys are ``0/response/OUTPUT/WEIGHT``.
    """
    weights = {n: p for n, p in module.named_parameters() if p.dim() > 1 and p.is_floating_point()}
    trained = {name: weight.requires_grad for name, weight in weights.items()}
    found: dict[str, Tensor] = {}
    try:
        for weight in weights.values():
            weight.requires_grad_(True)
        with torch.inference_mode(False), torch.enable_grad():
            outputs = [leaf for leaf in leaves_of(call()) if leaf.is_floating_point()]
            for place, output in enumerate(outputs):
                if output.requires_grad:
                    found |= _of_output(place, output, weights)
    finally:
        for name, weight in weights.items():
            weight.requires_grad_(trained[name])
    return found


def _of_output(place: int, output: Tensor, weights: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    squares: dict[str, Tensor] = {}
    for _ in range(DRAWS):
        direction = torch.randn(output.shape, generator=generator, dtype=torch.float64)
        slopes = torch.autograd.grad(
            output,
            list(weights.values()),
            direction.to(output),
            retain_graph=True,
            allow_unused=True,
        )
        for (name, weight), slope in zip(weights.items(), slopes, strict=True):
            if slope is not None:
                moved = (weight.detach() * slope).double().square().sum()
                squares[name] = squares.get(name, torch.zeros_like(moved)) + moved
    count = DRAWS * max(1, output.numel())
    return {
        f"0/response/{place}/{name}": (total / count).sqrt().cpu()
        for name, total in squares.items()
    }
