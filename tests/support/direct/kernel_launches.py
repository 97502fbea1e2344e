"""Launches of golow's own CUDA kernels, and comparisons of what they give."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from golow.levels.direct.cudnn.shared_kernels import Kernel

TYPES = ("float32", "bfloat16", "float16")
ROUNDING = {"float32": 2.0**-23, "bfloat16": 2.0**-8, "float16": 2.0**-10}


@pytest.fixture
def gpu(tmp_path: Path) -> Any:
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    device = pytest.importorskip("golow.levels.direct.cudnn.bindings.device")
    return device.Gpu(tmp_path)


def torch_type(name: str) -> torch.dtype:
    return getattr(torch, name)


def run(
    gpu: Any,
    kernel: Kernel,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    scratch: Sequence[Tensor] = (),
) -> None:
    """Launch on copies; all tensors then hold what the device has. Outputs start as 0xff, so that
    an element left out is seen. A tensor without elements stands for an absent argument. scratch:
    behind the outputs, with what an earlier kernel left there."""
    from golow.levels.nvidia.memory import Region

    tensors = (*inputs, *outputs, *scratch)
    for tensor in outputs:
        tensor.view(-1).view(torch.uint8).fill_(255)
    guard = 64  # bytes behind each tensor that nobody may write
    regions = [Region(tensor.nbytes + guard) for tensor in tensors]
    for region, tensor in zip(regions, tensors, strict=True):
        raw = np.full(tensor.nbytes + guard, 90, np.uint8)
        raw[: tensor.nbytes] = tensor.reshape(-1).view(torch.uint8).numpy()
        gpu.upload(region.address, raw)
    addresses = [
        region.address if tensor.numel() else 0
        for region, tensor in zip(regions, tensors, strict=True)
    ]
    gpu.launch(kernel, addresses)
    for region, tensor in zip(regions, tensors, strict=True):
        raw = gpu.download(region.address, (tensor.nbytes + guard,), np.uint8)
        assert (raw[tensor.nbytes :] == 90).all(), "written behind the end"
        tensor.view(-1).view(torch.uint8).copy_(torch.from_numpy(raw[: tensor.nbytes]))


def on_host(
    kernel: Kernel,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    scratch: Sequence[Tensor] = (),
) -> None:
    """Launch on this processor, on copies at multiples of 64 bytes."""
    from support.direct import cuda_host

    tensors = (*inputs, *outputs, *scratch)
    arrays = [_aligned(tensor) if tensor.numel() else None for tensor in tensors]
    cuda_host.run(kernel, arrays)
    for tensor, array in zip(tensors, arrays, strict=True):
        if array is not None:
            tensor.view(-1).view(torch.uint8).copy_(torch.from_numpy(array))


def _aligned(tensor: Tensor) -> np.ndarray:
    memory = np.empty(tensor.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    memory = memory[start : start + tensor.nbytes]
    memory[:] = tensor.reshape(-1).view(torch.uint8).numpy()
    return memory


def result(gpu: Any, kernel: Kernel, inputs: Sequence[Tensor], like: Tensor, dtype: str) -> Tensor:
    """The one output of a kernel."""
    output = torch.empty(like.shape, dtype=torch_type(dtype))
    run(gpu, kernel, inputs, [output])
    return output


def drawn(*shape: int, dtype: str = "float32", seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator).to(torch_type(dtype))


def assert_close(found: Tensor, expected: Tensor, slack: float = 4) -> None:
    """Equal but for a few roundings of the type that was stored; NaN only where it belongs."""
    name = str(found.dtype).removeprefix("torch.")
    limit = slack * ROUNDING[name]
    torch.testing.assert_close(
        found.double(), expected.double(), rtol=limit, atol=limit, equal_nan=True
    )


def channels_last(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1).contiguous()


def channels_first(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2)
