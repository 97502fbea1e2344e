"""Eager's step captured once as a CUDA graph and replayed: the host no longer launches kernels.

Training differs from eager in one point: it uses those kernels of PyTorch's optimizers that read
the learning rate from the device, so that the graph serves every rate.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from golow.levels import gpu
from golow.levels.level import Launch, Level, Variant, python_worker
from golow.workload.bundle import Bundle

if TYPE_CHECKING:
    from golow.levels.torch.program import TorchProgram


def prepare(bundle: Bundle, variant: str, cache: Path) -> Launch:
    """Nothing is built ahead: a graph contains addresses of the process that captured it."""
    return Launch(python_worker(__name__, variant))


def program(variant: str) -> TorchProgram:
    """The worker's side."""
    import torch

    from golow.levels.torch.graph import CapturedProgram

    if variant == "channels_last":

        class ChannelsLast(CapturedProgram):
            memory_format = torch.channels_last

        return ChannelsLast()
    return CapturedProgram()


LEVEL = Level(
    name="cudagraph",
    summary="eager's step captured as one CUDA graph and replayed",
    needs="torch, GPU",
    probe=gpu.probe,
    prepare=prepare,
    served_by=__name__,
    devices=("cuda",),
    variants={"channels_last": Variant("weights and activations in NHWC order")},
)
