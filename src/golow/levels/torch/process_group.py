"""A rank's place in PyTorch: its process group, its device, its random numbers."""

from __future__ import annotations

import atexit
import hashlib
import os
from pathlib import Path

import torch
import torch.distributed as dist

from golow.levels.torch.program import TorchProgram
from golow.records.workload import Device, Workload
from golow.worker.ranks import Place

LOOPBACK = "lo"  # all ranks are on one host


class InRanks(TorchProgram):
    """A training step that all ranks make together, each on its own samples."""

    place: Place

    def meet(self) -> None:
        """Wait until every rank is here and its device has finished."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        dist.barrier()
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def digest(self) -> str:
        """SHA-256 of the parameters."""
        found = hashlib.sha256()
        for parameter in self.module.parameters():
            held = parameter.detach().cpu().contiguous().view(-1)
            found.update(held.view(torch.uint8).numpy().tobytes())
        return found.hexdigest()

    def _set_up(self, workload: Workload) -> None:
        self.place = join(workload.device)
        # As users do: with one seed, all ranks would drop the same elements.
        torch.manual_seed(workload.seed + self.place.rank)
        super()._set_up(workload)


def join(device: Device) -> Place:
    """Join the process group of this worker's level, unless that is done. On a GPU, rank r uses
    device r from now on."""
    place = Place.of_worker()
    if device == "cuda":
        torch.cuda.set_device(place.rank)
    if dist.is_initialized():
        return place
    os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        init_method=f"file://{Path(place.meeting) / 'store'}",
        rank=place.rank,
        world_size=place.ranks,
        device_id=torch.device("cuda", place.rank) if device == "cuda" else None,
    )
    atexit.register(dist.destroy_process_group)
    return place
