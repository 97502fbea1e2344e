"""Builds the levels inside PyTorch in the caller's process, by the code of their workers."""

from __future__ import annotations

from torch import Tensor, nn

from golow.compiled.handed_over import Built
from golow.compiled.surroundings import as_in_a_worker
from golow.levels.named_level import ChosenLevel
from golow.levels.torch import compile as compile_level
from golow.levels.torch import cudagraph, eager, torchscript
from golow.records.errors import GolowError, Unsupported
from golow.records.workload import Workload

PROGRAMS = {
    "eager": eager.program,
    "torchscript": torchscript.program,
    "compile": compile_level.program,
    "cudagraph": cudagraph.program,
}


def built_in_torch(
    chosen: ChosenLevel, module: nn.Module, inputs: tuple[Tensor, ...], workload: Workload
) -> Built:
    """Lower the module for inputs like these; the level takes ownership of it and converts its
    tensors in place. Raises `GolowError` for a module that PyTorch refuses."""
    program = PROGRAMS[chosen.level.name](chosen.variant)
    try:
        with as_in_a_worker(workload):
            program.adopt(module, inputs, workload)
    except Exception as error:  # of PyTorch's tracers, which have no common class
        first = str(error).strip().partition("\n")[0]
        words = (
            error.words if isinstance(error, Unsupported) else f"{type(error).__name__}: {first}"
        )
        raise GolowError(
            f"{chosen.name} cannot run it: {words}",
            "golow.compare tries it at every level.",
        ) from error
    return Built(program.infer, program.call)
