"""Layers with e4m3 weights, an 8-bit floating-point format.

weight: float8_e4m3fn [outputs, inputs]. Both weight_scale and weight_scale_inv name the factor by
which numbers are multiplied: one number, [outputs], [outputs, 1], or a number for each block, such
as 128 outputs by 128 inputs; the last block may have fewer outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from golow.records.quantization import QuantizedLayer
from golow.workload.quantization.foreign.foreign_layer import ForeignLayer, refused
from golow.workload.quantization.fp8_weights import E4M3

SCALES = ("weight_scale", "weight_scale_inv")
OF_ACTIVATIONS = ("input_scale", "activation_scale")


def fp8_layer(path: str, given: Mapping[str, Tensor], block: Sequence[int]) -> ForeignLayer:
    """Return the layer. block: outputs and inputs that share a scale, if scales are per block.
    Raises `GolowError` for another 8-bit type, for weights that are not finite, for activations
    that are rounded as well, and for blocks that do not fit."""
    weight = given["weight"]
    if weight.dtype != E4M3:
        raise refused(path, f"its weights are {str(weight.dtype)[6:]}, and golow reads only e4m3fn")
    if any(name in given for name in OF_ACTIVATIONS):
        raise refused(
            path, "its activations are rounded to fp8 as well, for which golow has no rule"
        )
    scale = next((given[name].float() for name in SCALES if name in given), None)
    if scale is None:
        raise refused(path, "its weights are fp8 and have no weight_scale")
    if weight.dim() != 2:
        raise refused(
            path, f"its weight has {weight.dim()} axes, and golow reads fp8 only in linear layers"
        )
    return e4m3_layer(path, weight, _of_blocks(path, scale, block, weight.shape))


def e4m3_layer(path: str, weight: Tensor, scale: Tensor) -> ForeignLayer:
    """Return the layer of a weight [outputs, inputs] and scales of groups, [outputs, groups]."""
    if not bool(torch.isfinite(weight.float()).all()):
        raise refused(path, "its weights are not finite")
    (outputs, inputs), groups = weight.shape, scale.shape[1]
    group = 0 if groups == 1 else inputs // groups
    return ForeignLayer(
        QuantizedLayer(path=path, rule="fp8-weights", group=group),
        lambda: {
            "weight": weight.contiguous().view(torch.uint8).reshape(outputs, groups, -1),
            "output_scale": scale[:, :, None].float().contiguous(),
        },
    )


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
