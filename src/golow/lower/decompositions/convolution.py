"""Convolutions of signals and volumes, and transposed ones, by convolutions of images.

A signal is an image of one row. A volume is a sum of images' convolutions, one for each plane of
the kernel. A transposed convolution is the gradient of one with regard to its input; its own
gradients are a convolution and the gradient of the weight with the two images exchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from golow.lower.decompositions.planes import planes_of, volume_of

aten = torch.ops.aten


def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    """``convolution`` of anything but batched images, or transposed."""
    if input.dim() == 3 and weight.dim() == 3:
        wide = convolution(
            input.unsqueeze(2), weight.unsqueeze(2), bias, [1, *stride], [0, *padding],
            [1, *dilation], transposed, [0, *output_padding], groups,
        )  # fmt: skip
        return wide.squeeze(2)
    if not transposed:
        if input.dim() == 5:
            return _of_volume(input, weight, bias, stride, padding, dilation, groups)
        return aten.convolution.default(
            input, weight, bias, stride, padding, dilation, False, [0, 0], groups
        )
    sizes = [
        (n - 1) * s - 2 * p + d * (k - 1) + o + 1
        for n, s, p, d, k, o in zip(
            input.shape[2:], stride, padding, dilation, weight.shape[2:], output_padding,
            strict=True,
        )
    ]  # fmt: skip
    like = torch.zeros([input.shape[0], weight.shape[1] * groups, *sizes], dtype=input.dtype)
    result, _ = _backward(
        input, like, weight, stride, padding, dilation, groups, [True, False, False]
    )
    return result if bias is None else result + bias.reshape(1, -1, *(1 for _ in sizes))


def _of_volume(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    count = input.shape[0]
    padded = _padded(input, padding[0])
    planes = padded.shape[0] // count
    depth = (planes - dilation[0] * (weight.shape[2] - 1) - 1) // stride[0] + 1
    total: Any = None
    for plane in range(weight.shape[2]):
        images = _planes(padded, count, plane * dilation[0], depth, stride[0])
        part = aten.convolution.default(
            images, weight[:, :, plane], bias if plane == 0 else None, stride[1:], padding[1:],
            dilation[1:], False, [0, 0], groups,
        )  # fmt: skip
        total = part if total is None else total + part
    return volume_of(total, count).clone()


def _padded(volume: Tensor, sides: int) -> Tensor:
    """The planes of volumes, and planes of zeros before and after them."""
    planes = planes_of(volume)
    more = sides * volume.shape[0]
    return aten.constant_pad_nd.default(planes, [0, 0, 0, 0, 0, 0, more, more], 0.0)


def _planes(planes: Tensor, count: int, start: int, depth: int, step: int) -> Tensor:
    """Every plane of this many volumes that one plane of the kernel meets. They are adjacent for a
    step of one."""
    end = start + (depth - 1) * step + 1
    if step == 1:
        return aten.slice.Tensor(planes, 0, start * count, end * count, 1)
    apart = planes.reshape(-1, count, *planes.shape[1:])
    return aten.slice.Tensor(apart, 0, start, end, step).reshape(-1, *planes.shape[1:])


def backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> Any:
    """The gradients of input, weight and bias."""
    if input.dim() == 3:
        found = backward(
            grad_output.unsqueeze(2), input.unsqueeze(2), weight.unsqueeze(2), bias_sizes,
            [1, *stride], [0, *padding], [1, *dilation], transposed, [0, *output_padding], groups,
            output_mask,
        )  # fmt: skip
        of_input, of_weight, of_bias = found
        return (
            None if of_input is None else of_input.squeeze(2),
            None if of_weight is None else of_weight.squeeze(2),
            of_bias,
        )
    images = planes_of(grad_output) if input.dim() == 5 else grad_output
    of_bias = images.sum([0, 2, 3]) if output_mask[2] else None
    if not transposed:
        found = _backward(
            grad_output, input, weight, stride, padding, dilation, groups, output_mask
        )
        return (*found, of_bias)
    of_input = of_weight = None
    if output_mask[0]:
        of_input = aten.convolution.default(
            grad_output, weight, None, stride, padding, dilation, False, [0] * len(stride), groups
        )
        for axis in range(2, input.dim()):
            of_input = aten.slice.Tensor(of_input, axis, 0, input.shape[axis])
    if output_mask[1]:
        _, of_weight = _backward(
            input, grad_output, weight, stride, padding, dilation, groups, [False, True, False]
        )
    return of_input, of_weight, of_bias


def _backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Any, Any]:
    """The gradients of input and weight of a convolution of images or volumes."""
    geometry = (stride, padding, dilation)
    if input.dim() == 5:
        return _backward_of_volume(grad_output, input, weight, *geometry, groups, output_mask)
    found = aten.convolution_backward.default(
        grad_output, input, weight, None, *geometry, False, [0, 0], groups,
        [output_mask[0], output_mask[1], False],
    )  # fmt: skip
    return found[0] if output_mask[0] else None, found[1] if output_mask[1] else None


def _backward_of_volume(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Any, Any]:
    count, _, depth, _, _ = grad_output.shape
    g, padded, step = planes_of(grad_output), _padded(input, padding[0]), stride[0]
    geometry = (stride[1:], padding[1:], dilation[1:], False, [0, 0], groups)
    of_planes = []
    for plane in range(weight.shape[2] if output_mask[1] else 0):
        images = _planes(padded, count, plane * dilation[0], depth, step)
        _, of_weight, _ = aten.convolution_backward.default(
            g, images, weight[:, :, plane], None, *geometry, [False, True, False]
        )
        of_planes.append(of_weight.unsqueeze(2))
    of_input = None
    if output_mask[0]:
        each = (input.shape[2], dilation[0], padding[0])
        given = (g, padded[: input.shape[2] * count], weight, count)
        found = (
            _beside(*given, each, geometry) if step == 1 else _spread(*given, each, geometry, step)
        )
        of_input = volume_of(found, count).clone()
    return of_input, torch.cat(of_planes, 2) if of_planes else None


def _beside(
    g: Tensor,
    like: Tensor,
    weight: Tensor,
    count: int,
    each: tuple[int, int, int],
    geometry: tuple[Any, ...],
) -> Tensor:
    """The gradient of the planes of the input, for a step of one: those of the gradient that one
    plane of the kernel meets are adjacent. like: has planes as the input's. each: planes of a
    volume, between those of the kernel, and added on each side."""
    size, apart, sides = each
    reach = apart * (weight.shape[2] - 1)
    before = (reach - sides) * count
    more = size * count + reach * count - before - g.shape[0]
    padded = aten.constant_pad_nd.default(g, [0, 0, 0, 0, 0, 0, before, more], 0.0)
    total: Any = None
    for plane in range(weight.shape[2]):
        images = _planes(padded, count, reach - plane * apart, size, 1)
        part, _, _ = aten.convolution_backward.default(
            images, like[: size * count], weight[:, :, plane], None, *geometry, [True, False, False]
        )
        total = part if total is None else total + part
    return total


def _spread(
    g: Tensor,
    like: Tensor,
    weight: Tensor,
    count: int,
    each: tuple[int, int, int],
    geometry: tuple[Any, ...],
    step: int,
) -> Tensor:
    """Gradient for any stride: the gradients of each plane of the kernel are spread over those of
    the input and its padding, and added."""
    (size, apart, sides), depth = each, g.shape[0] // count
    whole = [size + 2 * sides, count, *like.shape[1:]]
    total: Any = None
    for plane in range(weight.shape[2]):
        part, _, _ = aten.convolution_backward.default(
            g, like[: depth * count], weight[:, :, plane], None, *geometry, [True, False, False]
        )
        first = plane * apart
        part = aten.slice_backward.default(
            part.reshape(depth, count, *part.shape[1:]), whole, 0, first,
            first + (depth - 1) * step + 1, step,
        )  # fmt: skip
        total = part if total is None else total + part
    return aten.slice.Tensor(total, 0, sides, sides + size).reshape(-1, *like.shape[1:])


DEFINITIONS = {
    "aten.convolution.default": convolution,
    "aten.convolution_backward.default": backward,
}
