"""Data-parallel training by PyTorch's FSDP2: each rank holds a part of every parameter, of its
gradient and of what the optimizer keeps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from golow.levels.level import Launch, Level, python_worker
from golow.levels.torch import eager
from golow.workload.bundle import Bundle

if TYPE_CHECKING:
    from golow.levels.torch.program import TorchProgram


def prepare(bundle: Bundle, variant: str, cache: Path) -> Launch:
    """Nothing to build."""
    return Launch(python_worker(__name__, variant))


def program(variant: str) -> TorchProgram:
    """The worker's side."""
    import torch
    from torch import Tensor, nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    from golow.levels.torch.parts_of_ranks import fill, sharding_units
    from golow.levels.torch.process_group import InRanks
    from golow.records.errors import Unsupported

    class Fsdp(InRanks):
        def _take(self, module: nn.Module) -> None:
            super()._take(module)
            mesh = init_device_mesh(self.device.type, (self.place.ranks,))
            for unit in (*sharding_units(module), module):
                fully_shard(unit, mesh=mesh)

        def digest(self) -> str:
            raise Unsupported("", "each rank holds different parts of the parameters")

        def _write_weights(self, weights: dict[str, Tensor]) -> None:
            with torch.no_grad():
                for name, held in self.module.state_dict().items():
                    fill(held, weights[name])

    return Fsdp()


LEVEL = Level(
    name="fsdp",
    summary="eager's step in several ranks, each with a part of the parameters, FSDP2",
    needs="torch",
    probe=eager.probe,
    prepare=prepare,
    served_by=__name__,
    modes=("train",),
    devices=("cpu", "cuda"),
    ranked="only",
)
