"""How the GPU itself is set. Its administrator decides that; golow reports it."""

from __future__ import annotations

from typing import Any

from golow.levels.choices import cuda_driver
from golow.levels.choices.choice import WITH_TORCH, Choice

ON_A_GPU = (*WITH_TORCH, "cudnn")


def persistence(program: Any) -> str:
    """Report whether the driver stays loaded between programs."""
    found = cuda_driver.persistence()
    return cuda_driver.UNKNOWN if found is None else "on" if found else "off"


def clocks(program: Any) -> str:
    """The highest clocks that the GPU may take."""
    kinds = {"processors": cuda_driver.SM_CLOCK, "memory": cuda_driver.MEMORY_CLOCK}
    found = {name: cuda_driver.clock(kind) for name, kind in kinds.items()}
    if None in found.values():
        return cuda_driver.UNKNOWN
    return ", ".join(f"{name} up to {megahertz} MHz" for name, megahertz in found.items())


CHOICES = (
    Choice(
        name="gpu_persistence",
        summary="whether the driver stays loaded while no program uses the GPU",
        made_by="the GPU's administrator",
        where="nvidia-smi -pm; NVML, nvmlDeviceGetPersistenceMode",
        levels=ON_A_GPU,
        devices=("cuda",),
        read=persistence,
        costs="off: the first program waits a second or more for the driver",
        alternatives=(),
    ),
    Choice(
        name="gpu_clocks",
        summary="the clock rates that the GPU may use",
        made_by="the GPU's administrator",
        where="nvidia-smi -q -d CLOCK; NVML, nvmlDeviceGetMaxClockInfo",
        levels=ON_A_GPU,
        devices=("cuda",),
        read=clocks,
        alternatives=(),
    ),
)
