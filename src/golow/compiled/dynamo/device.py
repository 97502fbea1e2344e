"""Device of the backend's graphs: its level, precision and random generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from golow.levels.called.gpu import OneGpu
from golow.levels.called.processor import Processor
from golow.levels.called.target import Target
from golow.levels.direct.cudnn import level as cudnn
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.direct.onednn import level as onednn
from golow.levels.probe import Probe
from golow.records.workload import Precision

ATEN = torch.ops.aten
CPU = torch.device("cpu")
CONVOLUTIONS = (ATEN.convolution.default, ATEN.convolution_backward.default)
PRODUCTS = (
    ATEN.mm.default, ATEN.addmm.default, ATEN.bmm.default, ATEN.baddbmm.default,
    ATEN.mv.default, ATEN.addmv.default, ATEN.dot.default,
)  # fmt: skip


def device_of(given: Sequence[Any]) -> torch.device:
    """Return the device of a graph's inputs: that of the first input not on the CPU, if any."""
    found = (item.device for item in given if isinstance(item, Tensor))
    return next((device for device in found if device.type != "cpu"), CPU)


def probed(device: torch.device) -> Probe:
    """Probe of the level of a device."""
    return cudnn.probe() if device.type == "cuda" else onednn.probe()


def target_on(device: torch.device) -> Target:
    """The level of a device, in PyTorch's present precision there."""
    if device.type == "cuda":
        return _gpu(device, _precision())
    return Processor(nn.Module(), "default", None, False)


@cache
def _gpu(device: torch.device, precision: Precision) -> OneGpu:
    return OneGpu(nn.Module(), device, precision)


def _precision() -> Precision:
    """Precision of PyTorch's convolutions and products. If only products are in TF32, golow
    computes them in float32, which is at least as exact."""
    try:
        convolutions = torch.backends.cudnn.allow_tf32
        products = torch.backends.cuda.matmul.allow_tf32
    except RuntimeError:  # PyTorch has other settings, which these two do not tell
        return "ieee"
    if not convolutions:
        return "ieee"
    return "tf32" if products else "default"


def in_tf32(device: torch.device) -> frozenset[Any]:
    """ATen operations that plans on the device now compute in TF32, as PyTorch may."""
    if device.type != "cuda":
        return frozenset()
    types = TYPES[_precision()]
    return frozenset(
        (CONVOLUTIONS if types.convolutions == "tf32" else ())
        + (PRODUCTS if types.products == "tf32" else ())
    )


def traced_for(device: torch.device) -> AbstractContextManager[Any]:
    """Let AOTAutograd record operations that levels know. On a GPU PyTorch would record calls of
    fused attention, whose results contain values that only its own backward pass reads. cuDNN stays
    on, because a convolution's strides depend on it: with strides other than those Dynamo saw, a
    view may be impossible. AOTAutograd itself records cuDNN's batch norm as ATen's."""
    return sdpa_kernel(SDPBackend.MATH) if device.type == "cuda" else nullcontext()


def _sampled(x: Tensor, grid: Tensor) -> Tensor:
    found: Tensor = ATEN.grid_sampler_2d(x, grid, BILINEAR, ZEROS, True)
    return found


def _sampled_backward(x: Tensor, grid: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    found: tuple[Tensor, Tensor] = ATEN.grid_sampler_2d_backward(
        gradient, x, grid, BILINEAR, ZEROS, True, [True, True]
    )
    return found


BILINEAR, ZEROS = 0, 0  # of interpolation and of padding
OF_CUDNN: dict[Any, Callable[..., Any]] = {
    ATEN.cudnn_grid_sampler.default: _sampled,
    ATEN.cudnn_grid_sampler_backward.default: _sampled_backward,
}
"""Operations that PyTorch records only on a GPU, expressed by those of every device."""


def random_state(device: torch.device) -> Tensor:
    """Return the state of PyTorch's generator on the device."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def set_random_state(device: torch.device, state: Tensor) -> None:
    """Set the state of PyTorch's generator, from which it continues to draw."""
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
