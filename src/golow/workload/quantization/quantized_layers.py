"""Quantised layers in PyTorch: the definition of what every level computes.

They compute with whole numbers that are held as floating point, which is exact in float64: the
reference of a comparison is the module itself in float64. In float32 a sum is exact up to 2^24,
and rounded like any other sum beyond.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.records.errors import GolowError
from golow.records.quantization import QuantizedLayer


class Quantized(nn.Module):
    """A layer with weights in whole numbers.

    weight: int8, of the shape of the original. output_scale: [outputs], what a unit of a sum is
    worth in the output. input_scale: a number, by which activations are multiplied before they are
    rounded; None if they stay as they are. bias: the original's.
    """

    input_scale: Tensor | None
    output_scale: Tensor
    weight: Tensor
    bias: nn.Parameter | None

    def __init__(self, original: nn.Conv2d | nn.Linear, rule: QuantizedLayer) -> None:
        super().__init__()
        weight = original.weight
        self.rule = rule
        self.register_buffer("weight", torch.zeros_like(weight, dtype=torch.int8))
        self.register_buffer("output_scale", torch.ones_like(weight.detach().flatten(1)[:, 0]))
        activations = rule.rule == "int8"
        one = torch.ones((), dtype=weight.dtype, device=weight.device)
        self.register_buffer("input_scale", one if activations else None)
        self.bias = original.bias  # type: ignore[assignment]  # PyTorch says Tensor

    def activations(self, x: Tensor) -> Tensor:
        """The activations as the layer multiplies them: whole numbers, unless they are kept."""
        if self.input_scale is None:
            return x
        rounded = torch.round(x * self.input_scale)
        return torch.clamp(rounded, self.rule.lowest, self.rule.highest)

    def extra_repr(self) -> str:
        """The rule, as in a printed module."""
        signed = ", signed" if self.rule.signed and self.input_scale is not None else ""
        return f"{list(self.weight.shape)}, {self.rule.rule}{signed}"


class QuantizedConvolution(Quantized):
    """A convolution of images, with zero padding."""

    def __init__(self, original: nn.Conv2d, rule: QuantizedLayer) -> None:
        super().__init__(original, rule)
        self.stride, self.padding = original.stride, original.padding
        self.dilation, self.groups = original.dilation, original.groups

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] -> [N, K, P, Q]"""
        numbers = self.activations(x)
        sums = functional.conv2d(
            numbers, self.weight.to(numbers.dtype), None, self.stride, self.padding,
            self.dilation, self.groups,
        )  # fmt: skip
        y = sums * self.output_scale.reshape(-1, 1, 1)
        return y if self.bias is None else y + self.bias.reshape(-1, 1, 1)


class QuantizedLinear(Quantized):
    """A linear layer."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., C] -> [..., K]"""
        numbers = self.activations(x)
        y = functional.linear(numbers, self.weight.to(numbers.dtype)) * self.output_scale
        return y if self.bias is None else y + self.bias


KINDS: dict[type[nn.Module], type[Quantized]] = {
    nn.Conv2d: QuantizedConvolution,
    nn.Linear: QuantizedLinear,
}


def as_quantized(module: nn.Module, layers: Sequence[QuantizedLayer]) -> nn.Module:
    """Replace these layers by quantised ones without numbers, which a state dict gives them. A
    layer that is quantised already stays. Raises `GolowError` if the module has no such layer."""
    for rule in layers:
        original = found_layer(module, rule.path)
        if isinstance(original, Quantized):
            continue
        kind = KINDS.get(type(original))
        if kind is None:
            raise GolowError(
                f"the quantised network has {rule.path}, where the model has a "
                f"{type(original).__name__}",
                "name the model that was quantised.",
            )
        replace_layer(module, original, kind(original, rule))  # type: ignore[arg-type]
    share_scales(module, layers)
    return module


def share_scales(module: nn.Module, layers: Sequence[QuantizedLayer]) -> None:
    """Give layers that read the same tensor one scale in memory, so that a level sees that they
    read the same whole numbers. Raises `GolowError` if there is no such layer."""
    for rule in layers:
        first = found_layer(module, rule.like) if rule.like else None
        layer = found_layer(module, rule.path)
        if isinstance(first, Quantized) and isinstance(layer, Quantized):
            layer.input_scale = first.input_scale


def found_layer(module: nn.Module, path: str) -> nn.Module:
    """The layer at the path. Raises `GolowError` if there is none."""
    try:
        return module.get_submodule(path)
    except AttributeError:
        raise GolowError(
            f"the quantised network has the layer {path}, which the model lacks",
            "name the model that was quantised.",
        ) from None


def replace_layer(module: nn.Module, original: nn.Module, layer: nn.Module) -> None:
    """Put a layer wherever the module has the original, which may be at several paths."""
    layer.train(original.training)
    for path, found in list(module.named_modules(remove_duplicate=False)):
        if found is original:
            parent, _, name = path.rpartition(".")
            setattr(module.get_submodule(parent), name, layer)


def parameter_count(module: nn.Module) -> int:
    """How many numbers the module's parameters have, weights in whole numbers included."""
    whole = (layer.weight for layer in module.modules() if isinstance(layer, Quantized))
    return sum(tensor.numel() for tensor in (*module.parameters(), *whole))
