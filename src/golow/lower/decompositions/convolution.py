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
    padded = aten.constant_pad_nd.default(input, [0, 0, 0, 0, padding[0], padding[0]], 0.0)
    depth = (padded.shape[2] - dilation[0] * (weight.shape[2] - 1) - 1) // stride[0] + 1
    total: Any = None
    for plane in range(weight.shape[2]):
        images = _planes(padded, plane * dilation[0], depth, stride[0])
        part = aten.convolution.default(
            images, weight[:, :, plane], None, stride[1:], padding[1:], dilation[1:], False,
            [0, 0], groups,
        )  # fmt: skip
        total = part if total is None else total + part
    volume = total.reshape(input.shape[0], depth, *total.shape[1:]).transpose(1, 2)
    return volume.clone() if bias is None else volume + bias.reshape(1, -1, 1, 1, 1)


def _planes(volume: Tensor, start: int, count: int, step: int) -> Tensor:
    """Every plane of [N, C, D, H, W] that one plane of the kernel meets: [N D, C, H, W]."""
    part = aten.slice.Tensor(volume, 2, start, start + (count - 1) * step + 1, step)
    n, c, d, h, w = part.shape
    return part.transpose(1, 2).reshape(n * d, c, h, w)


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
    others = [0, *range(2, input.dim())]
    of_bias = grad_output.sum(others) if output_mask[2] else None
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
    n, filters, depth, height, width = grad_output.shape
    g = grad_output.transpose(1, 2).reshape(n * depth, filters, height, width)
    padded = aten.constant_pad_nd.default(input, [0, 0, 0, 0, padding[0], padding[0]], 0.0)
    of_padded: Any = None
    of_planes = []
    for plane in range(weight.shape[2]):
        start = plane * dilation[0]
        images = _planes(padded, start, depth, stride[0])
        of_images, of_weight, _ = aten.convolution_backward.default(
            g, images, weight[:, :, plane], None, stride[1:], padding[1:], dilation[1:], False,
            [0, 0], groups, [output_mask[0], output_mask[1], False],
        )  # fmt: skip
        if output_mask[1]:
            of_planes.append(of_weight.unsqueeze(2))
        if output_mask[0]:
            part = of_images.reshape(n, depth, *images.shape[1:]).transpose(1, 2)
            end = start + (depth - 1) * stride[0] + 1
            spread = aten.slice_backward.default(part, list(padded.shape), 2, start, end, stride[0])
            of_padded = spread if of_padded is None else of_padded + spread
    of_input = None
    if output_mask[0]:
        of_input = aten.slice.Tensor(of_padded, 2, padding[0], padding[0] + input.shape[2]).clone()
    return of_input, torch.cat(of_planes, 2) if of_planes else None


DEFINITIONS = {
    "aten.convolution.default": convolution,
    "aten.convolution_backward.default": backward,
}
