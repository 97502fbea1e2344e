"""ExecuTorch: the module as a program of its runtime, with XNNPACK's kernels where they fit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from golow.levels.level import Launch, Level
from golow.levels.probe import Probe
from golow.records.errors import Unsupported
from golow.records.workload import Workload
from golow.workload.bundle import Bundle

if TYPE_CHECKING:
    from torch import Tensor, nn

    from golow.levels.peers.array_program import Array, ArrayProgram

PACKAGES = ("executorch",)
MODEL = "model.pte"


def probe() -> Probe:
    """The package must be installed; it includes its exporter, its runtime and XNNPACK."""
    from golow.levels.peers import exported_program

    return exported_program.probe(PACKAGES, "executorch")


def prepare(bundle: Bundle, variant: str, cache: Path) -> Launch:
    """Lower the model to a program, unless the cache has it."""
    from golow.levels.peers import exported_program

    return exported_program.prepare(bundle, "executorch", PACKAGES, cache)


def export(module: nn.Module, inputs: tuple[Tensor, ...], workload: Workload, folder: Path) -> None:
    """Lower the module, inside the exporting process. XNNPACK gets every part that it has kernels
    for; ExecuTorch's own operators run what is left."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from torch._export.verifier import SpecViolationError

    from golow.levels.peers.captured_module import captured, first_line

    program = captured("executorch", module, inputs)
    try:
        edge = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    except SpecViolationError as error:
        what = first_line(error).partition(" (")[0]  # before the address of a page
        raise Unsupported("executorch", f"its exporter refuses it: {what}") from error
    lowered = edge.to_executorch()
    with (folder / MODEL).open("wb") as file:
        lowered.write_to_file(file)
    _require_kernels(lowered)
    _try(folder / MODEL, inputs)


def _require_kernels(lowered: Any) -> None:
    """Refuse a program with operators that the runtime does not have, by their names."""
    from executorch.runtime import Runtime

    [plan] = lowered.executorch_program.execution_plan
    called = {f"{one.name}.{one.overload}".rstrip(".") for one in plan.operators}
    missing = sorted(called - Runtime.get().operator_registry.operator_names)
    if missing:
        raise Unsupported("executorch", f"its runtime has no {', '.join(missing)}")


def _try(file: Path, inputs: tuple[Tensor, ...]) -> None:
    """Run the program once: kernels tell only then that they do not take their arguments, as the
    convolution that takes no volumes."""
    from executorch.runtime import Runtime

    try:
        Runtime.get().load_program(file).load_method("forward").execute(inputs)
    except RuntimeError as error:
        raise Unsupported("executorch", f"its runtime refuses it: {error}") from error


def program(variant: str) -> ArrayProgram:
    """The worker's side."""
    import torch
    from executorch.extension.pybindings import portable_lib
    from executorch.runtime import Runtime

    from golow.levels.peers.array_program import ArrayProgram

    class ExecuTorch(ArrayProgram):
        def open(self, folder: Path, workload: Workload) -> None:
            self.tensors: dict[int, list[Tensor]] = {}
            # The runtime's only function for this; unsafe while a program runs.
            portable_lib._unsafe_reset_threadpool(workload.threads)
            taken = portable_lib._threadpool_get_thread_count()
            if taken != workload.threads:
                self.notes.append(f"ExecuTorch uses {taken} of {workload.threads} threads")
            loaded = Runtime.get().load_program(folder / MODEL)
            self.method: Any = loaded.load_method("forward")

        def bind(self, index: int, inputs: list[Array]) -> None:
            self.tensors[index] = [torch.from_numpy(array) for array in inputs]

        def run(self, index: int) -> None:
            # It copies inputs into the program's memory, and outputs out of it.
            self.found = self.method.execute(self.tensors[index])

        def results(self, index: int) -> list[Array]:
            return [tensor.numpy() for tensor in self.found]

    return ExecuTorch()


LEVEL = Level(
    name="executorch",
    summary="ExecuTorch's runtime on the program that it lowers, with XNNPACK",
    needs="executorch",
    probe=probe,
    prepare=prepare,
    modes=("infer",),
    exports=True,
)
