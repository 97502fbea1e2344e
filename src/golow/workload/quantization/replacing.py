"""Replacement of a module's layers by quantised ones."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from torch import nn

from golow.records.errors import GolowError
from golow.records.quantization import QuantizedLayer
from golow.records.workload import ModelSource
from golow.workload.quantization.fp8_linear import Fp8Linear
from golow.workload.quantization.int4_weights import Int4Linear
from golow.workload.quantization.quantized_layers import (
    Quantized,
    QuantizedConvolution,
    QuantizedLinear,
)
from golow.workload.quantization.transposed_linear import as_linear

LINEAR = {"int4-weights": Int4Linear, "fp8": Fp8Linear, "fp8-weights": Fp8Linear}
"""Forms of the rules that quantise linear layers alone."""


def quantized_form(original: nn.Module, rule: QuantizedLayer) -> Quantized | None:
    """The layer's quantised form, without numbers; None if it has none."""
    original = as_linear(original)
    kind = type(original)  # a subclass may compute something else
    if isinstance(original, nn.Linear) and kind is nn.Linear:
        return LINEAR.get(rule.rule, QuantizedLinear)(original, rule)
    if isinstance(original, nn.Conv2d) and kind is nn.Conv2d and rule.rule not in LINEAR:
        return QuantizedConvolution(original, rule)
    return None


def found_form(original: nn.Module, rule: QuantizedLayer) -> Quantized:
    """Return the layer's quantised form, without numbers. The layer must have one."""
    form = quantized_form(original, rule)
    if form is None:
        raise TypeError(f"{rule.path}, a {type(original).__name__}, has no form of {rule.rule}")
    return form


def as_quantized(module: nn.Module, layers: Sequence[QuantizedLayer]) -> nn.Module:
    """Replace these layers with quantised ones without numbers, which a state dict gives them. A
    layer that is quantised already stays. Raises `GolowError` if the module has no such layer."""
    for rule in layers:
        original = found_layer(module, rule.path)
        if isinstance(original, Quantized):
            continue
        form = quantized_form(original, rule)
        if form is None:
            raise GolowError(
                f"the quantised network has {rule.path}, where the model has a "
                f"{type(original).__name__}",
                "name the model that was quantised.",
            )
        replace_layer(module, original, form)
    share_scales(module, layers)
    return module


def with_rules_of(source: ModelSource, module: nn.Module) -> ModelSource:
    """Return the source of a module, with the rules of layers that any tool quantised."""
    rules = tuple(
        msgspec.structs.replace(layer.rule, path=path)
        for path, layer in module.named_modules()
        if isinstance(layer, Quantized)
    )
    return msgspec.structs.replace(source, quantized=rules)


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
    """Return the number of parameters, the weights of quantised layers included."""
    return sum(tensor.numel() for tensor in module.parameters()) + quantized_count(module)


def quantized_count(module: nn.Module) -> int:
    """Return the number of weights in quantised layers."""
    return sum(layer.numbers for layer in module.modules() if isinstance(layer, Quantized))
