"""Layers with e4m3 weights, an 8-bit floating-point format.

weight: float8_e4m3fn [outputs, inputs]. Both weight_scale and weight_scale_inv name the factor by
which numbers are multiplied: one number, [outputs], [outputs, 1], or a number for each block, such
as 128 outputs by 128 inputs; the last block may have fewer outputs. input_scale and
activation_scale name one number, if activations are e4m3 as well: they are multiplied by its
reciprocal and rounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from golow.records.quantization import QuantizedLayer
from golow.workload.quantization.foreign.foreign_layer import ForeignLayer, refused
from golow.workload.quantization.fp8_linear import E4M3

SCALES = ("weight_scale", "weight_scale_inv")
OF_ACTIVATIONS = ("input_scale", "activation_scale")


def fp8_layer(path: str, given: Mapping[str, Tensor], block: Sequence[int]) -> ForeignLayer:
    """Return the layer. block: outputs and inputs that share a scale, if scales are per block.
    Raises `GolowError` for another 8-bit type, for weights or scales that are not finite, for
    several scales of activations, and for blocks that do not fit."""
    weight = given["weight"]
    if weight.dtype != E4M3:
        raise refused(path, f"its weights are {str(weight.dtype)[6:]}, and golow reads only e4m3fn")
    scale = _first(given, SCALES)
    if scale is None:
        raise refused(path, "its weights are fp8 and have no weight_scale")
    if weight.dim() != 2:
        raise refused(
            path, f"its weight has {weight.dim()} axes, and golow reads fp8 only in linear layers"
        )
    if not bool(torch.isfinite(scale).all()):
        raise refused(path, "its weight_scale is not finite")
    scales = _of_blocks(path, scale, block, weight.shape)
    activations = _first(given, OF_ACTIVATIONS)
    if activations is None:
        return e4m3_layer(path, weight, scales)
    return _with_activations(path, weight, scales, activations)


def e4m3_layer(path: str, weight: Tensor, scale: Tensor) -> ForeignLayer:
    """Return the layer of a weight [outputs, inputs] and scales of groups, [outputs, groups]."""
    _require_finite(path, weight)
    (outputs, inputs), groups = weight.shape, scale.shape[1]
    group = 0 if groups == 1 else inputs // groups
    return ForeignLayer(
        QuantizedLayer(path=path, rule="fp8-weights", group=group),
        lambda: {
            "weight": weight.contiguous().view(torch.uint8).reshape(outputs, groups, -1),
            "output_scale": scale[:, :, None].float().contiguous(),
        },
    )


def _with_activations(
    path: str, weight: Tensor, scale: Tensor, activations: Tensor
) -> ForeignLayer:
    """Return the layer whose activations are divided by this scale and rounded."""
    _require_finite(path, weight)
    if activations.numel() != 1 or scale.shape[1] != 1:
        raise refused(
            path,
            "its activations are rounded to fp8 with a scale for each block; golow reads one scale "
            "for all activations, and one for each output of the weight",
        )
    one = activations.reshape(())
    if not 0 < float(1 / one) < torch.inf:
        raise refused(path, f"the scale of its activations is {float(one)}")
    return ForeignLayer(
        QuantizedLayer(path=path, rule="fp8"),
        lambda: {
            "weight": weight.contiguous().view(torch.uint8)[:, None],
            "output_scale": (scale.double() * one.double()).float()[:, :, None].contiguous(),
            "input_scale": 1 / one,
        },
    )


def _first(given: Mapping[str, Tensor], names: Sequence[str]) -> Tensor | None:
    return next((given[name].float() for name in names if name in given), None)


def _require_finite(path: str, weight: Tensor) -> None:
    if not bool(torch.isfinite(weight.float()).all()):
        raise refused(path, "its weights are not finite")


def _of_blocks(path: str, scale: Tensor, block: Sequence[int], shape: Sequence[int]) -> Tensor:
    """Return the scale of each group of each output, [outputs, groups]."""
    outputs, inputs = shape
    if scale.numel() == 1:
        return scale.reshape(1, 1).expand(outputs, 1)
    if tuple(scale.shape) in ((outputs,), (outputs, 1)):
        return scale.reshape(outputs, 1)
    high, wide = block
    if scale.shape != (-(-outputs // high), -(-inputs // wide)):
        found = "x".join(map(str, scale.shape))
        raise refused(
            path, f"{found} scales do not fit {outputs}x{inputs} weights in blocks of {high}x{wide}"
        )
    if inputs % wide:
        raise refused(
            path, f"its {inputs} inputs are not a multiple of {wide}, the size of a block"
        )
    return scale.repeat_interleave(high, 0)[:outputs]
