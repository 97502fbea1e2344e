"""The library of PyTorch's matrix products on a GPU, and the workspace that it may use."""

from __future__ import annotations

import os
from typing import Any

from golow.levels.choices.choice import WITH_TORCH, Alternative, Choice

CUBLASLT = "cublaslt"
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
PYTORCHS = "PyTorch's size"


def library(program: Any) -> str:
    """The library that PyTorch prefers."""
    import torch

    return str(torch.backends.cuda.preferred_blas_library()).rpartition(".")[2].lower()


def workspace(program: Any) -> str:
    """The sizes that the environment asks for: PyTorch reads them at its first product and has no
    function that returns them."""
    return os.environ.get(WORKSPACE) or PYTORCHS


def _prefer(program: Any) -> None:
    import torch

    torch.backends.cuda.preferred_blas_library(CUBLASLT)


def _workspace(name: str, summary: str, value: str) -> Alternative:
    return Alternative(
        name=name,
        summary=summary,
        value=value,
        environment={WORKSPACE: value},
        shell=f"{WORKSPACE}={value}",
    )


CHOICES = (
    Choice(
        name="blas_library",
        summary="the library that computes PyTorch's matrix products",
        made_by="PyTorch",
        where="torch.backends.cuda.preferred_blas_library, cuBLAS",
        levels=WITH_TORCH,
        devices=("cuda",),
        read=library,
        likely=True,
        changes_results=True,
        alternatives=(
            Alternative(
                name="cublaslt",
                summary="cuBLASLt wherever PyTorch can use it",
                value=CUBLASLT,
                call=_prefer,
                shell="TORCH_BLAS_PREFER_CUBLASLT=1",
                python='torch.backends.cuda.preferred_blas_library("cublaslt")',
                cpp="at::globalContext().setBlasPreferredBackend(at::BlasBackend::Cublaslt);",
            ),
        ),
    ),
    Choice(
        name="cublas_workspace",
        summary="the memory in which cuBLAS may keep partial sums",
        made_by="PyTorch",
        where="aten/src/ATen/cuda/CublasHandlePool.cpp: 8 MiB, on Hopper 32 MiB",
        levels=WITH_TORCH,
        devices=("cuda",),
        read=workspace,
        changes_results=True,
        costs="memory for each handle and stream; a small workspace rules out fast kernels",
        alternatives=(
            # The two with which cuBLAS gives the same bits on several streams (its manual, Results
            # Reproducibility).
            _workspace("cublas_workspace_32m", "eight buffers of 4 MiB", ":4096:8"),
            _workspace("cublas_workspace_128k", "eight buffers of 16 KiB", ":16:8"),
        ),
    ),
)
