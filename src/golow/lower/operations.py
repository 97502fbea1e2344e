"""golow's own operations: what fused nodes of a graph mean, written in PyTorch.

A pass that fuses nodes replaces them by one of these, so that the verifier can still derive every
shape and the interpreter can still run the graph. They define the meaning; the levels execute them
by other means. In a graph they are called ``golow.NAME``.

An activation is a tuple: empty for none, else its name and numbers, as ``("relu",)``,
``("clip", 0.0, 6.0)``. Padding is given as (top, left, bottom, right).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Activation = Sequence[Any]

_ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    "relu": torch.relu,
    "clip": functional.hardtanh,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "silu": functional.silu,
    "hardswish": functional.hardswish,
    "hardsigmoid": functional.hardsigmoid,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "elu": functional.elu,
}


def activate(x: Tensor, activation: Activation) -> Tensor:
    """The activation of x; x itself where there is none."""
    if not activation:
        return x
    name, *numbers = activation
    result: Tensor = _ACTIVATIONS[name](x, *numbers)
    return result


def activation_backward(gradient: Tensor, result: Tensor, activation: Activation) -> Tensor:
    """The gradient of the argument, from the activation's result alone."""
    name, *numbers = activation
    if name == "relu":
        return gradient * (result > 0)
    if name == "clip":
        low, high = numbers
        inside: Tensor = (result > low) & (result < high)
        return gradient * inside
    if name == "tanh":
        return gradient * (1 - result * result)
    if name == "sigmoid":
        return gradient * result * (1 - result)
    raise ValueError(f"{name} has no gradient from its result")


def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    activation: Activation,
) -> Tensor:
    """activation(convolution(x) + bias + residual), zero padding on four sides.

    x: [N, C, H, W]; weight: [K, C / groups, R, S]; residual: as the result.
    """
    top, left, bottom, right = padding
    padded = functional.pad(x, (left, right, top, bottom))
    y = functional.conv2d(padded, weight, bias, list(stride), 0, list(dilation), groups)
    return activate(y if residual is None else y + residual, activation)


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, activation: Activation
) -> Tensor:
    """activation(x weight^T + bias + residual); x: [..., C], weight: [K, C]."""
    y = functional.linear(x, weight, bias)
    return activate(y if residual is None else y + residual, activation)


def add(a: Tensor, b: Tensor, activation: Activation) -> Tensor:
    """activation(a + b)."""
    return activate(a + b, activation)


def folded_weight(weight: Tensor, scale: Tensor | None, variance: Tensor, epsilon: float) -> Tensor:
    """The weight of a convolution that a batch norm follows, with the norm's scale in it.

    Computed in float64 and rounded once. The method is that of
    ``torch.nn.utils.fusion.fuse_conv_bn_weights``.
    """
    factor = _factor(scale, variance, epsilon)
    return (weight.double() * factor.reshape(-1, *[1] * (weight.dim() - 1))).to(weight.dtype)


def folded_bias(
    bias: Tensor | None,
    scale: Tensor | None,
    shift: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    epsilon: float,
) -> Tensor:
    """The bias that belongs to `folded_weight`."""
    centred = -mean.double() if bias is None else bias.double() - mean.double()
    result = centred * _factor(scale, variance, epsilon)
    return (result if shift is None else result + shift.double()).to(mean.dtype)


def _factor(scale: Tensor | None, variance: Tensor, epsilon: float) -> Tensor:
    factor = torch.rsqrt(variance.double() + epsilon)
    return factor if scale is None else factor * scale.double()


def trimmed(weight: Tensor, rows: Sequence[int], columns: Sequence[int]) -> Tensor:
    """The taps of a kernel in these half-open ranges of rows and columns."""
    return weight[:, :, rows[0] : rows[1], columns[0] : columns[1]].clone()


def blocked_weight(weight: Tensor, top: int, left: int) -> Tensor:
    """The weights of a convolution with stride 2 for an image in blocks of 2x2 pixels, channels in
    the order of ``pixel_unshuffle``: [K, C, R, S] -> [K, 4 C, R', S'].

    top, left: its padding; `golow.lower.stem` has the arithmetic. Taps that no tap of the kernel
    fills are zero.
    """
    rows, columns = weight.shape[2:]
    # In front so many taps that the first block begins with the first of two pixels.
    before = [top % 2, left % 2]
    after = [(before[0] + rows) % 2, (before[1] + columns) % 2]
    padded = functional.pad(weight, (before[1], after[1], before[0], after[0]))
    return functional.pixel_unshuffle(padded, 2)


def batch_norm_relu(
    x: Tensor,
    scale: Tensor | None,
    shift: Tensor | None,
    running_mean: Tensor,
    running_variance: Tensor,
    momentum: float,
    epsilon: float,
) -> tuple[Tensor, ...]:
    """Batch norm in training and relu: (result, mean, inverse deviation, new running mean, new
    running variance)."""
    normed, *statistics = torch.ops.aten._native_batch_norm_legit_functional.default(
        x, scale, shift, running_mean, running_variance, True, momentum, epsilon
    )
    return torch.relu(normed), *statistics


def batch_norm_relu_backward(
    gradient: Tensor,
    result: Tensor,
    x: Tensor,
    scale: Tensor | None,
    mean: Tensor,
    inverse_deviation: Tensor,
    epsilon: float,
    wanted: Sequence[bool],
) -> tuple[Tensor, ...]:
    """Gradients of x, scale and shift of `batch_norm_relu`, which gave ``result``."""
    found = torch.ops.aten.native_batch_norm_backward.default(
        gradient * (result > 0), x, scale, None, None, mean, inverse_deviation, True, epsilon,
        list(wanted),
    )  # fmt: skip
    return tuple(found)


def batch_norm_activated(
    x: Tensor,
    residual: Tensor | None,
    scale: Tensor | None,
    shift: Tensor | None,
    running_mean: Tensor,
    running_variance: Tensor,
    momentum: float,
    epsilon: float,
    activation: Activation,
) -> tuple[Tensor, ...]:
    """Batch norm in training, plus a residual, and an activation: (result, mean, inverse deviation,
    new running mean, new running variance)."""
    normed, *statistics = torch.ops.aten._native_batch_norm_legit_functional.default(
        x, scale, shift, running_mean, running_variance, True, momentum, epsilon
    )
    return activate(normed if residual is None else normed + residual, activation), *statistics


def batch_norm_activated_backward(
    gradient: Tensor,
    result: Tensor,
    x: Tensor,
    scale: Tensor | None,
    mean: Tensor,
    inverse_deviation: Tensor,
    epsilon: float,
    activation: Activation,
    wanted: Sequence[bool],
    second: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Gradients of x, scale, shift and residual of `batch_norm_activated`. second: what is to be
    added to the gradient first."""
    *of_norm, _ = wanted
    total = gradient if second is None else gradient + second
    inner = activation_backward(total, result, activation)
    found = torch.ops.aten.native_batch_norm_backward.default(
        inner, x, scale, None, None, mean, inverse_deviation, True, epsilon, of_norm
    )
    return *found, inner


def new_momentum(
    momentum: Tensor, gradient: Tensor, parameter: Tensor, factor: float, weight_decay: float
) -> Tensor:
    """The first line of SGD: factor * momentum + gradient + weight_decay * parameter."""
    decayed = gradient if weight_decay == 0 else gradient + weight_decay * parameter
    return factor * momentum + decayed


def new_parameter(parameter: Tensor, momentum: Tensor, learning_rate: Tensor) -> Tensor:
    """The second line of SGD: parameter - learning_rate * momentum."""
    return parameter - learning_rate * momentum
