"""Data-parallel training by PyTorch's DistributedDataParallel: eager's step in every rank, whose
gradients are averaged in buckets while the backward pass makes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from golow.levels.level import Launch, Level, Variant, python_worker
from golow.levels.probe import Probe
from golow.levels.torch import compile as compile_level
from golow.levels.torch import eager
from golow.workload.bundle import Bundle

if TYPE_CHECKING:
    from golow.levels.torch.program import TorchProgram


def probe() -> Probe:
    """torch; every build of it has gloo, those for CUDA have NCCL."""
    return eager.probe()


def prepare(bundle: Bundle, variant: str, cache: Path) -> Launch:
    """Nothing to build; Inductor builds when the worker loads."""
    command = python_worker(__name__, variant)
    if variant == "compile":
        return compile_level.prepare(bundle, "ddp", cache)._replace(command=command)
    return Launch(command)


def program(variant: str) -> TorchProgram:
    """The worker's side."""
    from torch import Tensor, nn
    from torch.nn.parallel import DistributedDataParallel

    from golow.levels.torch.process_group import InRanks
    from golow.levels.torch.step import Lowered
    from golow.records.errors import Unsupported
    from golow.workload.trial import give_back_memory

    class Ddp(InRanks):
        indivisible = "its layers run inside DistributedDataParallel"

        def lower(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> Lowered:
            on_gpu = self.device.type == "cuda"
            distributed: Lowered = DistributedDataParallel(
                module,
                device_ids=[self.place.rank] if on_gpu else None,
                # Each rank keeps its own running statistics, as at the other levels.
                broadcast_buffers=False,
                find_unused_parameters=self._leaves_parameters_out(module),
            )
            return distributed

        def outputs(self, batches: list[int], learning_rate: float, file: Path) -> None:
            super().outputs(batches, learning_rate, file)
            give_back_memory(self.workload.device)  # the reference runs on rank 0's GPU, too

        def _leaves_parameters_out(self, module: nn.Module) -> bool:
            """True if the loss does not depend on some parameters: without being told,
            DistributedDataParallel would wait for their gradients."""
            self.call = module
            loss, _ = self._loss_and_output(self.inputs[0], self.targets[0])
            loss.backward()  # type: ignore[no-untyped-call]
            left_out = any(p.requires_grad and p.grad is None for p in module.parameters())
            self.optimizer.zero_grad(set_to_none=True)
            return left_out

    if variant != "compile":
        return Ddp()

    class Compiled(compile_level.program_class("ddp"), Ddp):  # type: ignore[misc]
        def lower(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> Lowered:
            if self.workload.draws:
                raise Unsupported("", "a model that draws is exported before it is compiled")
            compiled: Lowered = self._compiled(Ddp.lower(self, module, inputs))
            return compiled

    program: TorchProgram = Compiled()
    return program


LEVEL = Level(
    name="ddp",
    summary="eager's step in several ranks, DistributedDataParallel",
    needs="torch",
    probe=probe,
    prepare=prepare,
    modes=("train",),
    devices=("cpu", "cuda"),
    ranked="only",
    variants={"compile": Variant("the same under torch.compile", modes=("train",))},
)
