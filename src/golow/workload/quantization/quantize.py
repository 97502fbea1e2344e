"""From a module and samples to its quantised form."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

import torch
from torch import nn

from golow.records.errors import GolowError
from golow.records.quantization import (
    OF_ACTIVATIONS,
    KeptLayer,
    QuantizationRule,
    QuantizedLayer,
)
from golow.workload.quantization.calibration import Range, Samples, calibrated, moments
from golow.workload.quantization.fp8_linear import Fp8Linear
from golow.workload.quantization.int4_weights import Int4Linear
from golow.workload.quantization.quantized_layers import Quantized
from golow.workload.quantization.replacing import (
    LINEAR,
    found_form,
    replace_layer,
    share_scales,
)
from golow.workload.quantization.transposed_linear import as_linear

GROUPS = (32, 64, 128)
"""Inputs that may share a scale of ``int4-weights``."""
GROUP = 64
IN_8_BITS: QuantizationRule = "int8-weights"
"""Rule of layers that ``int4-weights`` leaves to 8 bits."""
KINDS = "golow quantises nn.Conv2d and nn.Linear."
CHOSEN = "it is to be kept"
NOT_REACHED = "it does not run during calibration"
NOT_FLOAT32 = "its weights are "


class QuantizedModule(NamedTuple):
    """A quantised module, the rule of each of its quantised layers, and the layers with weights
    that are kept."""

    module: nn.Module
    layers: tuple[QuantizedLayer, ...]
    kept: tuple[KeptLayer, ...]


def quantized(
    module: nn.Module,
    rule: QuantizationRule,
    samples: Samples,
    share: float = 1.0,
    keep: Sequence[str] = (),
    group: int = GROUP,
    in_8_bits: Sequence[str] = (),
) -> QuantizedModule:
    """A copy of the module with its convolutions and linear layers quantised by the rule.

    samples: for the ranges of activations, and for the rounding of weights to 4 bits or to e4m3,
    which without them gives the nearest numbers. share: of the values that a range must hold. keep:
    layers, or modules with layers, that stay as they are. group: inputs that share a scale of
    ``int4-weights``. in_8_bits: layers, or modules with layers, that are quantised by
    ``int8-weights`` instead. Raises `GolowError` if there is no layer to quantise or to keep, and
    for weights or activations that are not finite.
    """
    whole, module = module, copy.deepcopy(module)
    rules = dict.fromkeys(_paths(module), rule)
    rules |= dict.fromkeys(_within(rules, in_8_bits), IN_8_BITS)
    reasons = {path: _unfit(module, path, rules[path], group) for path in rules}
    reasons |= dict.fromkeys(_within(rules, keep), CHOSEN)
    fitting = [path for path, reason in reasons.items() if not reason]
    if rule in OF_ACTIVATIONS:
        ranges = calibrated(module, fitting, samples, share)
        reasons |= {path: NOT_REACHED for path in fitting if path not in ranges}
    else:
        ranges = dict.fromkeys(fitting, Range(signed=True, size=0.0))
    layers = []
    for path, found in ranges.items():
        described = QuantizedLayer(
            path=path,
            rule=rules[path],
            signed=found.signed,
            like=found.like,
            group=group if rules[path] == "int4-weights" else 0,
        )
        original = module.get_submodule(path)
        replace_layer(module, original, quantized_layer(original, described, found.size))
        layers.append(described)
    share_scales(module, layers)
    _compensate(module, whole, samples)
    if not layers:
        raise _nothing(module, rule, reasons)
    kept = tuple(KeptLayer(path=p, reason=why) for p, why in reasons.items() if why)
    return QuantizedModule(module, tuple(layers), kept)


def _nothing(module: nn.Module, rule: QuantizationRule, reasons: Mapping[str, str]) -> GolowError:
    if any(isinstance(layer, Quantized) for layer in module.modules()):
        return GolowError("the model is quantised already", "leave out the precision.")
    if not reasons:
        return GolowError(
            "the model has no convolution of images and no linear layer to quantise", KINDS
        )
    # A linear layer that does not fit says more than one of another kind.
    path, why = min(reasons.items(), key=lambda item: item[1].startswith("a "))
    return GolowError(
        f"no layer of the model can be quantised by {rule}; {path}: {why}",
        "convert it first: module.float()." if why.startswith(NOT_FLOAT32) else "",
    )


def _compensate(module: nn.Module, original: nn.Module, samples: Samples) -> None:
    """Let rounding errors of weights make up for one another in what samples show to be read."""
    layers = {
        path: layer
        for path, layer in module.named_modules()
        if isinstance(layer, Int4Linear | Fp8Linear)
    }
    for path, products in moments(original, list(layers), samples):
        weight = as_linear(original.get_submodule(path)).get_parameter("weight")
        layers[path].take(weight.detach(), products)


def quantized_layer(original: nn.Module, rule: QuantizedLayer, size: float) -> Quantized:
    """The layer in whole numbers. size: of the largest activation that is not clipped; 0 if it
    reads only zeros. Raises `GolowError` for weights that are not finite."""
    layer = found_form(original, rule)
    weight = as_linear(original).get_parameter("weight").detach()
    if not bool(torch.isfinite(weight).all()):
        raise GolowError(
            f"the weights of {rule.path} are not finite", "check the weights of the model."
        )
    if layer.input_scale is not None:
        layer.input_scale.fill_(_input_scale(rule, size))
    layer.take(weight)
    return layer


def kept_form(original: nn.Module, rule: QuantizedLayer) -> nn.Module:
    """The form in which a layer of this rule loses less: 8 bits instead of 4, otherwise the
    original itself."""
    if rule.rule != "int4-weights":
        return original
    wider = QuantizedLayer(path=rule.path, rule=IN_8_BITS)
    return quantized_layer(original, wider, 0.0)


def _input_scale(rule: QuantizedLayer, size: float) -> float:
    """Factor by which activations are multiplied. Sizes so small that the scale would not be a
    float32 are zero."""
    scale = rule.highest / size if size > 0 else 1.0
    return scale if scale < torch.finfo(torch.float32).max / 2**10 else 1.0


def _paths(module: nn.Module) -> Iterator[str]:
    """The path of each layer with weights that is a convolution or a linear layer."""
    for path, layer in module.named_modules():
        if isinstance(as_linear(layer), nn.Linear | nn.modules.conv._ConvNd) and path:
            yield path


def _unfit(module: nn.Module, path: str, rule: QuantizationRule, group: int) -> str:
    """Return why a layer cannot be quantised by this rule; empty if it can."""
    layer = as_linear(module.get_submodule(path))
    return _by_none(module, path, layer) or _not_by(rule, layer, group)


def _not_by(rule: QuantizationRule, layer: nn.Module, group: int) -> str:
    """Return why this rule cannot quantise a layer that other rules can."""
    if rule not in LINEAR:
        return ""
    if not isinstance(layer, nn.Linear):
        return f"a {type(layer).__name__}; {rule} quantises only Linear"
    inputs = layer.in_features
    fits = rule != "int4-weights" or inputs % group == 0
    return "" if fits else f"its {inputs} inputs cannot be divided into groups of {group}"


def _within(paths: Iterable[str], names: Sequence[str]) -> Iterator[str]:
    """Yield the paths that are one of the names, or inside of one. Raises `GolowError` for a name
    without any."""
    known = list(paths)
    for name in names:
        found = [path for path in known if path == name or path.startswith(f"{name}.")]
        if not found:
            near = get_close_matches(name, known, 2)
            raise GolowError(
                f"the model has no convolution and no linear layer in {name!r}",
                f"did you mean {' or '.join(near)}?" if near else "name layers of the model.",
            )
        yield from found


def _by_none(module: nn.Module, path: str, layer: nn.Module) -> str:
    """Return why no rule can quantise a layer."""
    if type(layer) not in (nn.Conv2d, nn.Linear):
        return f"a {type(layer).__name__}; only Conv2d and Linear are quantised"
    if getattr(layer, "padding_mode", "zeros") != "zeros":
        return f"its padding is {layer.padding_mode}"
    if layer.weight.dtype != torch.float32:
        return f"{NOT_FLOAT32}{str(layer.weight.dtype)[6:]}"
    parent = module.get_submodule(path.rpartition(".")[0])
    containers = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
    if type(parent).__module__.startswith("torch.nn.") and not isinstance(parent, containers):
        return f"{type(parent).__name__} of PyTorch reads its weights itself"
    return ""
