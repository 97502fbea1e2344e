"""Conversion of linear layers with torchao weights to golow's layers with the same numbers.

torchao replaces the parameter with a subclass of `torch.Tensor` whose parts have fixed names. golow
reads the parts by these names, so that it need not import torchao.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from golow.records.quantization import QuantizedLayer
from golow.workload.quantization.foreign.foreign_layer import ForeignLayer, refused
from golow.workload.quantization.foreign.fp8 import e4m3_layer
from golow.workload.quantization.foreign.words import MIDDLE, int4_tensors
from golow.workload.quantization.fp8_linear import E4M3

READ = "Int8Tensor, IntxUnpackedToInt8Tensor and Float8Tensor"
LEAST, MOST = -MIDDLE, 15 - MIDDLE
"""Numbers that golow's layers of 4 bits hold, less 8."""


def has_torchaos(module: nn.Module) -> bool:
    """True if any weight is a torchao tensor."""
    return any(_is_torchaos(getattr(layer, "weight", None)) for layer in module.modules())


def torchao_layers(module: nn.Module) -> Iterator[ForeignLayer]:
    """Return the layers with torchao weights. Raises `GolowError` for weights that none of golow's
    rules expresses, and for activations that are quantised at run time."""
    for path, layer in module.named_modules():
        weight = getattr(layer, "weight", None)
        if _is_torchaos(weight):
            if type(layer) is not nn.Linear:
                kind = type(layer).__name__
                raise refused(path, f"it is a {kind}; golow reads torchao weights only in Linear")
            yield _layer(path, weight)


def _is_torchaos(weight: object) -> bool:
    return isinstance(weight, Tensor) and type(weight).__module__.startswith("torchao.")


def _layer(path: str, weight: Any) -> ForeignLayer:
    kind = type(weight).__name__
    for name in ("act_quant_kwargs", "activation_quantization", "act_pre_scale"):
        if getattr(weight, name, None) is not None:
            raise refused(
                path,
                "torchao rounds its activations with scales that it computes at run time; golow's "
                "scales are fixed",
                "use torchao's weight-only configuration, or golow quantize.",
            )
    match kind:
        case "Float8Tensor":
            return _fp8(path, weight)
        case "Int8Tensor" | "IntxUnpackedToInt8Tensor":
            return _whole_numbers(path, weight)
    raise refused(path, f"its weight is torchao's {kind}", f"golow reads {READ}.")


def _fp8(path: str, weight: Any) -> ForeignLayer:
    if weight.qdata.dtype != E4M3 or weight.scale.shape[0] not in (1, len(weight.qdata)):
        raise refused(path, "its fp8 weights are not e4m3 with a scale for each output")
    return e4m3_layer(path, weight.qdata, weight.scale.expand(len(weight.qdata), -1))


def _whole_numbers(path: str, weight: Any) -> ForeignLayer:
    """Return a layer of 8 bits with a scale per output, or of 4 bits with a scale per group."""
    numbers, scale, zeros = weight.qdata, weight.scale, weight.zero_point
    outputs, inputs = numbers.shape
    groups = inputs // weight.block_size[-1]
    moved = zeros is not None and bool((zeros != 0).any())
    if weight.block_size[0] != 1 or scale.numel() != outputs * groups:
        raise refused(path, f"its scales are for blocks of {tuple(weight.block_size)} weights")
    group = inputs // groups
    of_4_bits = bool(((numbers >= LEAST) & (numbers <= MOST)).all())
    if of_4_bits and group % 2 == 0:
        rule = QuantizedLayer(path=path, rule="int4-weights", group=group, zeros=moved)
        return ForeignLayer(
            rule,
            lambda: int4_tensors(
                (numbers + MIDDLE).to(torch.uint8),
                scale.reshape(outputs, groups).T,
                zeros.reshape(outputs, groups).T + MIDDLE if moved else None,
            ),
        )
    if of_4_bits and groups != 1:
        raise refused(path, f"its 4-bit weights have groups of {group} inputs, an odd number")
    if groups != 1 or moved:
        raise refused(
            path,
            "its 8-bit weights have "
            + ("zero points" if moved else f"a scale for each {group} inputs"),
            "golow's have one scale for each output: granularity=PerRow().",
        )
    return ForeignLayer(
        QuantizedLayer(path=path, rule="int8-weights"),
        lambda: {"weight": numbers, "output_scale": scale.reshape(outputs).float()},
    )
