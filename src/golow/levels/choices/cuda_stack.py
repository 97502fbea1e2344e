"""The stacks that a CUDA context reserves for all threads that can run at once: 1 KiB each, 264 MiB
on an H200 (docs/understand/cudnn.md)."""

from __future__ import annotations

from typing import Any

from golow.levels.choices import cuda_driver
from golow.levels.choices.choice import WITH_TORCH, Alternative, Choice

DRIVERS = 1024  # bytes; the driver's own
RESERVED, AS_NEEDED = "1 KiB or more for each thread", "as much as the kernels need"


def read(program: Any) -> str:
    """Report the stack that the context reserves, by the driver. It raises the limit for a kernel
    that needs more, so a limit below the kernel's was lowered by a program."""
    size = cuda_driver.stack_bytes()
    if size is None:
        return cuda_driver.UNKNOWN
    return RESERVED if size >= DRIVERS else AS_NEEDED


def _none(program: Any) -> None:
    """The context must be there before it can be told; in LibTorch's worker it is."""
    import torch

    torch.zeros(1, device="cuda")
    cuda_driver.set_stack_bytes(0)


def _reserved(program: Any) -> None:
    """For `golow.levels.direct.cudnn.run.program`, which reserves none by itself."""
    program.stack_bytes = DRIVERS


CPP = "cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 0);"
CHOICES = (
    Choice(
        name="cuda_stack",
        summary="the GPU memory that a context reserves for stacks",
        made_by="CUDA's driver",
        where="CUDA driver API, cuCtxSetLimit, CU_LIMIT_STACK_SIZE",
        levels=(*WITH_TORCH, "cudnn"),
        devices=("cuda",),
        read=read,
        costs="none reserved: the first kernel that needs a stack waits until it is allocated",
        alternatives=(
            Alternative(
                name="no_cuda_stack",
                summary="no stacks are reserved, which frees 264 MiB on an H200",
                value=AS_NEEDED,
                call=_none,
                levels=WITH_TORCH,
                python='ctypes.CDLL("libcuda.so.1").cuCtxSetLimit(0, ctypes.c_size_t(0))',
                cpp=CPP,
            ),
            Alternative(
                name="cuda_stack",
                summary="the driver's default stacks, which golow's cudnn level releases",
                value=RESERVED,
                call=_reserved,
                levels=("cudnn",),
            ),
        ),
    ),
)
