"""Activations of a quantised network that rounding may decide about: those nearly half way between
two whole numbers, or two numbers of e4m3, of which they may become either.

A level whose float32 is as good as eager's may round such an activation to the other side. That
moves the outputs by far more than a rounding of float32, so neither eager's error nor its size
states by how much. The reference shows it: it runs once with those activations flipped.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from golow.workload.quantization.quantized_layers import Rounding

NEARLY_FLIPPED = "flipped-near"
"""A file of a bundle whose reference flips the activations that rounding may decide here."""
FLIPPED = "flipped"
"""A file of a bundle whose reference flips one activation at least in each layer and sample, as
other inputs may."""

UNROUNDED = "unrounded"
"""A file of a bundle whose reference neither rounds nor clips activations: another network, that of
the original activations."""

NEAR = 64 * 2.0**-24
"""How near to the middle, as a share of the tensor's root mean square, rounding may decide: what
layers before it have gathered in roundings."""


def flip_activations(module: nn.Module, *, each: bool) -> None:
    """Let quantised layers round activations that are nearly half way to the other side. each: also
    the one nearest to that in each sample, however far it is."""
    for layer in module.modules():
        if isinstance(layer, Rounding) and layer.input_scale is not None:
            layer.activations = partial(flipped, layer, each=each)  # type: ignore[method-assign]


def leave_unrounded(module: nn.Module) -> None:
    """Let quantised layers take activations as they are."""
    for layer in module.modules():
        if isinstance(layer, Rounding) and layer.input_scale is not None:
            layer.activations = partial(torch.mul, layer.input_scale)  # type: ignore[method-assign]


def flipped(layer: Rounding, x: Tensor, *, each: bool) -> Tensor:
    """The activations of a layer, some of them flipped."""
    if layer.input_scale is None or not x.numel():
        return x
    lowest, highest = layer.rule.lowest, layer.rule.highest
    scaled = x * layer.input_scale
    unit = layer.unit(scaled)
    in_units = scaled / unit
    below = torch.floor(in_units)
    distance = (in_units - below - 0.5).abs()
    # Where both neighbours are clipped to the same number there is nothing to flip.
    clipped = (below * unit < lowest) | (below * unit >= highest)
    distance = distance.masked_fill(clipped, torch.inf)
    turned = distance * unit <= NEAR * scaled.square().mean().sqrt()
    if each:
        by_sample = distance.reshape(len(x), -1)
        least = by_sample.amin(1, keepdim=True).expand_as(by_sample).reshape(x.shape)
        turned |= (distance == least) & distance.isfinite()
    rounded = torch.round(in_units)
    other = torch.where(rounded == below, below + 1, below)
    return torch.clamp(torch.where(turned, other, rounded) * unit, lowest, highest)
