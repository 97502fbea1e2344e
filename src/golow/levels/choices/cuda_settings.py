"""Choices of CUDA's driver for every program: when it loads kernels, how many queues it has, and
whether a launch waits for its kernel."""

from __future__ import annotations

import os
from typing import Any

from golow.levels.choices import cuda_driver
from golow.levels.choices.choice import WITH_TORCH, Alternative, Choice

ON_A_GPU = (*WITH_TORCH, "cudnn")
MODULES, CONNECTIONS, BLOCKING = (
    "CUDA_MODULE_LOADING",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
)
MANUAL = "CUDA C++ Programming Guide, CUDA Environment Variables"
LOADING = {cuda_driver.EAGER_LOADING: "at the start", cuda_driver.LAZY_LOADING: "at the first use"}
DEFAULT_CONNECTIONS = "8"
RETURNS, WAITS = "launches return", "launches wait"
SLEEP_CYCLES = 1_000_000  # half a millisecond or more


def modules(program: Any) -> str:
    """When the driver loads kernels, as it states."""
    return LOADING.get(cuda_driver.module_loading() or 0, cuda_driver.UNKNOWN)


def connections(program: Any) -> str:
    """The queues between host and GPU that the environment asks for: the driver reads the variable
    when it starts, and no function returns the number."""
    return os.environ.get(CONNECTIONS) or DEFAULT_CONNECTIONS


def launches(program: Any) -> str:
    """Report whether a long kernel has ended when its launch returns."""
    import torch

    torch.cuda.synchronize()
    torch.cuda._sleep(SLEEP_CYCLES)  # type: ignore[no-untyped-call]
    ended = torch.cuda.current_stream().query()
    torch.cuda.synchronize()
    return WAITS if ended else RETURNS


def _connections(count: int) -> Alternative:
    return Alternative(
        name=f"cuda_connections_{count}",
        summary=f"{count} queue{'s' if count > 1 else ''} between host and GPU",
        value=str(count),
        environment={CONNECTIONS: str(count)},
        shell=f"{CONNECTIONS}={count}",
    )


CHOICES = (
    Choice(
        name="cuda_modules",
        summary="when the driver loads a library's kernels onto the GPU",
        made_by="CUDA's driver",
        where=f"{MANUAL}, {MODULES}: LAZY since 12.2",
        levels=ON_A_GPU,
        devices=("cuda",),
        read=modules,
        costs="eager: start and the GPU's memory; lazy: the first iteration",
        alternatives=(
            Alternative(
                name="eager_modules",
                summary="all kernels of a library when it is loaded",
                value=LOADING[cuda_driver.EAGER_LOADING],
                environment={MODULES: "EAGER"},
                shell=f"{MODULES}=EAGER",
            ),
        ),
    ),
    Choice(
        name="cuda_connections",
        summary="how many queues the driver has between host and GPU",
        made_by="CUDA's driver",
        where=f"{MANUAL}, {CONNECTIONS}: {DEFAULT_CONNECTIONS}",
        levels=ON_A_GPU,
        devices=("cuda",),
        read=connections,
        alternatives=(_connections(1), _connections(32)),
    ),
    Choice(
        name="cuda_launches",
        summary="whether a launch returns before its kernel has run",
        made_by="CUDA's driver",
        where=f"{MANUAL}, {BLOCKING}: 0; meant for debugging",
        levels=WITH_TORCH,
        devices=("cuda",),
        read=launches,
        costs="the host never runs ahead of the GPU",
        alternatives=(
            Alternative(
                name="launch_blocking",
                summary="every launch waits until its kernel has ended",
                value=WAITS,
                environment={BLOCKING: "1"},
                shell=f"{BLOCKING}=1",
            ),
        ),
    ),
)
