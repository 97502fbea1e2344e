"""Batch norm of signals and volumes, as that of images; and batch norm by running statistics in
training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

OTHERS = (3, 5)  # axes of a batch of signals, and of volumes


def _image(x: Tensor) -> Tensor:
    """A signal as one row, as a convolution has it; the planes of a volume below one another."""
    wide = x.shape[3:] if x.dim() == 5 else x.shape[2:]
    return x.reshape(*x.shape[:2], x.shape[2] * wide[0] if x.dim() == 5 else 1, wide[-1])


def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Any:
    """``batch_norm`` in inference."""
    if training or input.dim() not in OTHERS or running_mean is None or running_var is None:
        return NotImplemented
    found = aten._native_batch_norm_legit_no_training.default(
        _image(input), weight, bias, running_mean, running_var, momentum, eps
    )
    return found[0].reshape(input.shape)


def with_given_statistics(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """``native_batch_norm`` by the batch's own statistics, in inference, whose outputs do not show
    what it does to the running ones."""
    if not training:
        return NotImplemented
    return aten._native_batch_norm_legit.no_stats(input, weight, bias, True, momentum, eps)


def by_the_batch(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """``_native_batch_norm_legit_functional``: also the statistics."""
    if not training or input.dim() not in OTHERS:
        return NotImplemented
    result, *statistics = aten._native_batch_norm_legit_functional.default(
        _image(input), weight, bias, running_mean, running_var, training, momentum, eps
    )
    return result.reshape(input.shape), *statistics


def frozen_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Batch norm by running statistics, in training; it keeps nothing for its gradient."""
    wide = [1, -1] + [1] * (input.dim() - 2)
    scale = torch.rsqrt(running_var + eps)
    scale = scale if weight is None else scale * weight
    result = (input - running_mean.reshape(wide)) * scale.reshape(wide)
    result = result if bias is None else result + bias.reshape(wide)
    nothing = torch.zeros([0], dtype=input.dtype)
    return result, nothing, nothing


def batch_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_invstd: Tensor | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> Any:
    """Its gradients of the input, the weight and the bias; with the batch's own statistics, those
    of an image."""
    if train and input.dim() in OTHERS:
        found = aten.native_batch_norm_backward.default(
            _image(grad_out), _image(input), weight, running_mean, running_var, save_mean,
            save_invstd, train, eps, output_mask,
        )  # fmt: skip
        return found[0].reshape(input.shape) if output_mask[0] else None, *found[1:]
    if train or running_mean is None or running_var is None:
        return NotImplemented
    wide, others = [1, -1] + [1] * (input.dim() - 2), [0, *range(2, input.dim())]
    deviation = torch.rsqrt(running_var + eps)
    scale = deviation if weight is None else deviation * weight
    normed = (input - running_mean.reshape(wide)) * deviation.reshape(wide)
    return (
        grad_out * scale.reshape(wide) if output_mask[0] else None,
        (grad_out * normed).sum(others) if output_mask[1] else None,
        grad_out.sum(others) if output_mask[2] else None,
    )


DEFINITIONS = {
    "aten.batch_norm.default": batch_norm,
    "aten.native_batch_norm.default": with_given_statistics,
    "aten._native_batch_norm_legit_functional.default": by_the_batch,
    "aten._native_batch_norm_legit_no_training.default": frozen_batch_norm,
    "aten.native_batch_norm_backward.default": batch_norm_backward,
}
