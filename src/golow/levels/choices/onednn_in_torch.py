"""PyTorch's use of oneDNN on a CPU, and oneDNN's defaults."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from golow.levels.choices.choice import IN_PYTORCH, WITH_TORCH, Alternative, Choice
from golow.levels.choices.process_libraries import mapped

CAPACITY, FPMATH = "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "ONEDNN_DEFAULT_FPMATH_MODE"
DEFAULT_CAPACITY = "1024"
MODES = {0: "strict", 1: "bf16", 2: "fp16", 3: "any", 4: "tf32"}  # dnnl_fpmath_mode_t
DEVELOPER_GUIDE = "oneDNN's developer guide"


def used(program: Any) -> str:
    """Report whether PyTorch's operations may call oneDNN."""
    import torch

    return "on" if torch._C._get_mkldnn_enabled() else "off"


def precision(program: Any) -> str:
    """The precision in which PyTorch lets oneDNN multiply float32 numbers."""
    import torch

    flags: Any = torch.backends.mkldnn
    found = {flags.matmul.fp32_precision, flags.conv.fp32_precision}
    return " and ".join(sorted("ieee" if one == "none" else one for one in found))


def capacity(program: Any) -> str:
    """The number of kernels that oneDNN keeps: its own word where it is a separate library. That
    in PyTorch's does not export the function; there, what its environment states."""
    if file := mapped("libdnnl"):
        found = ctypes.c_int()
        ctypes.CDLL(file).dnnl_get_primitive_cache_capacity(ctypes.byref(found))
        return str(found.value)
    return os.environ.get(CAPACITY) or DEFAULT_CAPACITY


def fpmath(program: Any) -> str:
    """The precision that oneDNN itself may use for float32."""
    found = ctypes.c_int()
    ctypes.CDLL(mapped("libdnnl")).dnnl_get_default_fpmath_mode(ctypes.byref(found))
    return MODES.get(found.value, "unknown")


def _off(program: Any) -> None:
    import torch

    torch.backends.mkldnn.enabled = False  # type: ignore[assignment, unused-ignore]


def _bf16(program: Any) -> None:
    import torch

    torch.backends.mkldnn.fp32_precision = "bf16"  # type: ignore[attr-defined, unused-ignore]


CHOICES = (
    Choice(
        name="onednn_used",
        summary="whether PyTorch's convolutions and matrix products on a CPU call oneDNN",
        made_by="PyTorch",
        where="torch.backends.mkldnn.enabled",
        levels=WITH_TORCH,
        devices=("cpu",),
        read=used,
        likely=True,
        changes_results=True,
        alternatives=(
            Alternative(
                name="onednn_off",
                summary="PyTorch's native kernels and its BLAS",
                value="off",
                call=_off,
                rebuilds=True,
                built_by=("compile",),
                python="torch.backends.mkldnn.enabled = False",
                cpp="at::globalContext().setUserEnabledMkldnn(false);",
            ),
        ),
    ),
    Choice(
        name="onednn_precision",
        summary="the precision in which oneDNN may multiply float32 numbers for PyTorch",
        made_by="PyTorch",
        where="torch.backends.mkldnn.fp32_precision",
        levels=IN_PYTORCH,
        devices=("cpu",),
        read=precision,
        changes_results=True,
        alternatives=(
            Alternative(
                name="onednn_bf16",
                summary="bfloat16, where the CPU has instructions for it",
                value="bf16",
                call=_bf16,
                rebuilds=True,
                built_by=("compile",),
                python='torch.backends.mkldnn.fp32_precision = "bf16"',
            ),
        ),
    ),
    Choice(
        name="onednn_kernel_cache",
        summary="how many kernels oneDNN keeps instead of generating them again",
        made_by="oneDNN",
        where=f"{DEVELOPER_GUIDE}, Primitive Cache: {CAPACITY}",
        levels=(*WITH_TORCH, "onednn"),
        devices=("cpu",),
        read=capacity,
        costs="memory of the kernels",
        alternatives=(
            Alternative(
                name="onednn_cache_off",
                summary="none: shows the benefit of the cache",
                value="0",
                environment={CAPACITY: "0"},
                shell=f"{CAPACITY}=0",
            ),
        ),
    ),
    Choice(
        name="onednn_fpmath",
        summary="the precision that oneDNN, called directly, may use for float32",
        made_by="oneDNN",
        where=f"{DEVELOPER_GUIDE}, Floating-point Math Mode: {FPMATH}",
        levels=("onednn",),
        devices=("cpu",),
        read=fpmath,
        changes_results=True,
        alternatives=(
            Alternative(
                name="fpmath_bf16",
                summary="bfloat16, where the CPU has instructions for it",
                value="bf16",
                environment={FPMATH: "BF16"},
                rebuilds=True,
                shell=f"{FPMATH}=BF16",
            ),
        ),
    ),
)
