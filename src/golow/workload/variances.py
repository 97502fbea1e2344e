"""Variances for batch norms that have seen no batch.

In inference such norms pass their input on unchanged. After a few of them a network with new
weights gives the same output whatever its input is, up to rounding: with PyTorch's own initial
weights, outputs of two images differ by 6e-8 of their size in EfficientNet-B0, 7e-8 in MobileNetV2.
An error in any layer but the last would not show in them. A network that was trained a little has
no such norms.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from golow.workload.batch import Batch

SAMPLES = 8
ELEMENTS = 2**21  # of all samples together, some more than ten images of 3x224x224


def measure_variances(module: nn.Module, batches: Sequence[Batch]) -> int:
    """Give norms that have seen no batch, as the variance of every channel, the mean square of what
    they get from these batches' first samples, in place; returns the number of samples, 0 if
    nothing was changed.

    So each norm hands on numbers of size one. With a mean and a variance for each channel, as
    training would measure them, a channel that hardly varies in so few samples would grow without
    bounds for others, and rounding with it: in EfficientNet-B0 ten thousand times.

    All is computed in float64 on the CPU, where the module is, so that it is the same on other
    machines. A module that cannot run so is left as it is.
    """
    fresh = [name for name, layer in module.named_modules() if _is_fresh(layer)]
    if not fresh:
        return 0
    inputs = _samples(batches)
    try:
        measured = _measured(module, inputs)
    except Exception:  # a module of the user's may raise anything where it is not float32
        return 0
    for name in fresh:
        module.get_submodule(name).load_state_dict(measured.get_submodule(name).state_dict())
    return len(inputs[0])


@torch.no_grad()
def _measured(module: nn.Module, inputs: tuple[Tensor, ...]) -> nn.Module:
    """A copy of the module whose fresh norms have the variances of these inputs."""
    twin = copy.deepcopy(module).double()
    for layer in twin.modules():
        if _is_fresh(layer):
            layer.register_forward_pre_hook(_take_variance)
    twin(*inputs)
    return twin


def _take_variance(layer: nn.Module, given: tuple[Tensor, ...]) -> None:
    size = given[0].square().mean()
    if isinstance(layer, _NormBase) and layer.running_var is not None and size > 0:
        layer.running_var.fill_(size)


def _is_fresh(layer: nn.Module) -> bool:
    """True if it is a norm whose running statistics are those that it was made with."""
    if not isinstance(layer, _NormBase) or layer.running_mean is None or layer.running_var is None:
        return False
    return bool((layer.running_mean == 0).all() and (layer.running_var == 1).all())


def _samples(batches: Sequence[Batch]) -> tuple[Tensor, ...]:
    """The inputs of as many samples as are wanted, from several batches if one is smaller; floats
    in float64. What is not one for each sample is the first batch's."""
    first = batches[0].inputs
    size = len(first[0])
    wanted = max(1, min(SAMPLES, ELEMENTS // max(1, math.prod(first[0].shape[1:]))))
    taken = batches[: -(-wanted // size)]
    found = []
    for position, tensor in enumerate(first):
        if tensor.dim() and len(tensor) == size:
            tensor = torch.cat([batch.inputs[position] for batch in taken])[:wanted]
        found.append(tensor.double() if tensor.is_floating_point() else tensor)
    return tuple(found)
