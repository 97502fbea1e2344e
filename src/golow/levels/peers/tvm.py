"""TVM: the module compiled for this CPU by Apache TVM, with or without tuning, and run without
PyTorch."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from golow.levels import compiler
from golow.levels.level import Launch, Level, Variant
from golow.levels.probe import Probe
from golow.records.errors import Unsupported
from golow.records.workload import Workload
from golow.workload.bundle import Bundle

if TYPE_CHECKING:
    from torch import Tensor, nn

    from golow.levels.peers.array_program import Array, ArrayProgram

PACKAGES = ("tvm",)
MODEL = "model.so"
TUNING = "golow.levels.peers.tvm_tuning"
EXPORTERS = {"": "", "tuned": TUNING, "tuned-brief": f"{TUNING}:export_briefly"}
CRASHING_FFI = "0.1.15"  # with TVM 0.27.0.post1, when it makes the context of a kernel's trials
TUNING_LIMIT = 6 * 3600.0  # seconds after which an exporter that tunes is considered hung


def probe() -> Probe:
    """The package must be installed, and a compiler, which links the library."""
    from golow.levels.peers import exported_program

    if compiler.compiler_command() is None:
        return Probe(False, compiler.NO_COMPILER, compiler.INSTALL_COMPILER)
    return exported_program.probe(PACKAGES, "tvm")


def prepare(bundle: Bundle, variant: str, cache: Path) -> Launch:
    """Compile the model for this machine, unless the cache has it."""
    from golow.levels.peers import exported_program

    machine = exported_program.instruction_sets()
    if not variant:
        return exported_program.prepare(bundle, "tvm", ("apache-tvm",), cache, machine)
    if exported_program.version_of("apache-tvm-ffi").startswith(CRASHING_FFI):
        reason = f"its tuner crashes with apache-tvm-ffi {CRASHING_FFI}"
        raise Unsupported("tvm", f"{reason}; pip install 'apache-tvm-ffi!={CRASHING_FFI}.*'")
    return exported_program.prepare(
        bundle,
        "tvm",
        ("apache-tvm", "xgboost"),
        cache,
        f"{machine} {bundle.workload.threads}",
        variant=variant,
        exporter=EXPORTERS[variant],
        limit=TUNING_LIMIT,
    )


def export(module: nn.Module, inputs: tuple[Tensor, ...], workload: Workload, folder: Path) -> None:
    """Compile the module, inside the exporting process: TVM's pipeline for fixed shapes, without
    the trials that would choose schedules."""
    import tvm
    from tvm import relax

    machine = target(workload)
    with TemporaryDirectory() as records:
        pipeline = relax.get_pipeline(
            "static_shape_tuning", total_trials=0, target=machine, work_dir=records
        )
        compiled = tvm.compile(pipeline(translated(module, inputs)), target=machine)
    compiled.export_library(str(folder / MODEL))


def translated(module: nn.Module, inputs: tuple[Tensor, ...]) -> Any:
    """TVM's module of it. Raises `Unsupported` if it cannot be captured or translated."""
    from tvm.relax.frontend.torch import from_exported_program

    from golow.levels.peers.captured_module import captured, first_line

    program = captured("tvm", module, inputs)
    try:
        return from_exported_program(program)
    except Exception as error:  # its errors have no common class
        raise Unsupported("tvm", f"its frontend refuses it: {first_line(error)}") from error


def target(workload: Workload) -> Any:
    """This CPU, with the workload's threads."""
    import tvm

    host = tvm.target.Target.from_device("cpu")
    return tvm.target.Target({**host.export(), "num-cores": workload.threads})


def program(variant: str) -> ArrayProgram:
    """The worker's side."""
    # It imports PyTorch where that is installed, for tensors that are shared with it.
    sys.modules["torch"] = None  # type: ignore[assignment]
    import numpy as np
    import tvm
    from tvm import relax

    from golow.levels.peers.array_program import ArrayProgram

    class Tvm(ArrayProgram):
        def open(self, folder: Path, workload: Workload) -> None:
            self.bound: dict[int, Any] = {}
            self.found: dict[int, Any] = {}
            library = tvm.runtime.load_module(str(folder / MODEL))
            self.machine = relax.VirtualMachine(library, tvm.cpu())
            if workload.threads > 1 and not variant:
                self.notes.append(f"without tuning TVM uses 1 of {workload.threads} threads")

        def bind(self, index: int, inputs: list[Array]) -> None:
            # Its memory takes the place of NumPy's, which is not aligned to 64 bytes.
            tensors = [tvm.runtime.tensor(array) for array in inputs]
            inputs[:] = [np.from_dlpack(tensor) for tensor in tensors]
            self.machine.save_function("main", f"batch_{index}", *tensors)
            self.bound[index] = self.machine[f"batch_{index}"]

        def run(self, index: int) -> None:
            self.found[index] = self.bound[index]()

        def results(self, index: int) -> list[Array]:
            return [np.from_dlpack(tensor) for tensor in self.found[index]]

    return Tvm()


LEVEL = Level(
    name="tvm",
    summary="the module compiled for this CPU by TVM, without tuning",
    variants={
        "tuned": Variant("tuned here by MetaSchedule, 64 trials per kernel", ("infer",), ("cpu",)),
        "tuned-brief": Variant("the same with 8 trials per kernel", ("infer",), ("cpu",)),
    },
    needs="tvm, C++ compiler",
    probe=probe,
    prepare=prepare,
    modes=("infer",),
    exports=True,
)
