"""What rounding may do to a quantised network: an activation that is nearly half way between two
whole numbers becomes the other one.

A level whose float32 is as good as eager's may round such an activation to the other side. That
moves the outputs by far more than a rounding of float32, so neither eager's error nor its size
states by how much. The reference shows it: it runs once with those activations flipped.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from golow.workload.quantization.quantized_layers import Quantized

FLIPPED = "flipped"
"""A file of a bundle whose reference flips activations."""

NEAR = 64 * 2.0**-24
"""How near to the middle, as a share of the tensor's root mean square, rounding may decide: what
layers before it have gathered in roundings."""


def flip_activations(module: nn.Module) -> None:
    """Let each quantised layer round activations that are nearly half way to the other side: at
    least the one nearest to that in each sample."""
    for layer in module.modules():
        if isinstance(layer, Quantized) and layer.input_scale is not None:
            layer.activations = partial(flipped, layer)  # type: ignore[method-assign]


def flipped(layer: Quantized, x: Tensor) -> Tensor:
    """The activations of a layer, some of them flipped."""
    if layer.input_scale is None or not x.numel():
        return x
    lowest, highest = layer.rule.lowest, layer.rule.highest
    scaled = x * layer.input_scale
    below = torch.floor(scaled)
    distance = (scaled - below - 0.5).abs()
    # Where both neighbours are clipped to the same number there is nothing to flip.
    fixed = (below < lowest) | (below >= highest)
    distance = distance.masked_fill(fixed, torch.inf)
    each = distance.reshape(len(x), -1)
    nearest = torch.zeros_like(each, dtype=torch.bool)
    nearest.scatter_(1, each.argmin(1, keepdim=True), True)
    near = each <= NEAR * scaled.square().mean().sqrt()
    turned = (nearest | near).reshape(x.shape) & ~fixed
    rounded = torch.round(scaled)
    other = torch.where(rounded == below, below + 1, below)
    return torch.clamp(torch.where(turned, other, rounded), lowest, highest)
