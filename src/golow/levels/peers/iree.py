"""IREE: the model that torch.onnx exports, compiled for this CPU through MLIR, and run without
PyTorch."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from golow.levels.level import Launch, Level
from golow.levels.probe import Probe
from golow.records.errors import Unsupported
from golow.records.workload import Workload
from golow.workload.bundle import Bundle

if TYPE_CHECKING:
    from torch import Tensor, nn

    from golow.levels.peers.array_program import Array, ArrayProgram

PACKAGES = ("iree", "onnx", "onnxscript")
DISTRIBUTIONS = ("iree-base-compiler", "iree-base-runtime")  # both are in the package iree
MODEL = "model.vmfb"
FUNCTION = "main_graph"  # the name that torch.onnx gives the graph

OPTIONS = (
    "--iree-llvmcpu-target-cpu=host",
    "--iree-opt-level=O2",  # the default level, O0, leaves out most rewrites of the graph
)


def probe() -> Probe:
    """Compiler and runtime must be installed, and the packages that torch's exporter needs."""
    from golow.levels.peers import exported_program

    found = exported_program.probe(PACKAGES, "iree")
    return exported_program.probe_distributions(DISTRIBUTIONS, "iree") if found.available else found


def prepare(bundle: Bundle, variant: str, cache: Path) -> Launch:
    """Compile the model for this machine, unless the cache has it."""
    from golow.levels.peers import exported_program

    exported_program.require_float32(bundle, "iree")
    machine = exported_program.instruction_sets()
    packages = (*DISTRIBUTIONS, "onnx", "onnxscript")
    return exported_program.prepare(bundle, "iree", packages, cache, machine)


def export(module: nn.Module, inputs: tuple[Tensor, ...], workload: Workload, folder: Path) -> None:
    """Export to ONNX, import that and compile it, inside the exporting process."""
    from iree.compiler import CompilerToolError, compile_file
    from iree.compiler.tools.import_onnx import __main__ as importer

    from golow.levels.peers.captured_module import first_line
    from golow.levels.peers.onnx_export import write_onnx

    with TemporaryDirectory() as made:
        given, imported = Path(made, "model.onnx"), Path(made, "model.mlir")
        write_onnx("iree", module, inputs, given)
        try:
            importer.main(importer.parse_arguments([str(given), "-o", str(imported)]))
        except Exception as error:  # its errors have no common class
            raise Unsupported("iree", f"its importer refuses it: {first_line(error)}") from error
        try:
            compile_file(
                str(imported),
                output_file=str(folder / MODEL),
                target_backends=["llvm-cpu"],
                input_type="onnx",
                extra_args=list(OPTIONS),
            )
        except CompilerToolError as error:
            reason = f"its compiler refuses it: {_first_error(str(error))}"
            raise Unsupported("iree", reason) from error


def _first_error(text: str) -> str:
    """The first diagnosis in the compiler's output, without the place in a temporary file, and with
    the name of the ONNX operator if it is about one."""
    found = re.search(r"error: (.*)", text)
    if found is None:
        return text.strip().splitlines()[-1]
    operator = re.search(r'torch\.operator "onnx\.(\w+)"', text[found.end() :])
    return found[1] + (f" ({operator[1]})" if operator else "")


def program(variant: str) -> ArrayProgram:
    """The worker's side."""
    import iree.runtime as runtime
    from iree.runtime.array_interop import map_dtype_to_element_type

    from golow.levels.peers.array_program import ArrayProgram

    class Iree(ArrayProgram):
        def open(self, folder: Path, workload: Workload) -> None:
            # Before the driver exists, which then has that many threads besides the caller's.
            runtime.flags.parse_flags(f"--task_topology_group_count={workload.threads}")
            self.device = runtime.get_device(
                "local-sync" if workload.threads == 1 else "local-task"
            )
            instance = runtime.VmInstance()
            modules = [
                runtime.create_hal_module(instance, self.device),
                runtime.VmModule.mmap(instance, str(folder / MODEL)),
            ]
            self.context = runtime.VmContext(instance, modules)
            self.function = modules[-1].lookup_function(FUNCTION)
            self.bound: dict[int, Any] = {}
            self.found: dict[int, Any] = {}

        def bind(self, index: int, inputs: list[Array]) -> None:
            # Its memory takes the place of NumPy's: calls with arrays would copy them.
            views = [self._placed(array) for array in inputs]
            inputs[:] = [_array(view) for view in views]
            self.bound[index] = runtime.VmVariantList(len(views))
            for view in views:
                self.bound[index].push_ref(view)

        def _placed(self, array: Array) -> Any:
            return self.device.allocator.allocate_buffer_copy(
                memory_type=runtime.MemoryType.HOST_LOCAL | runtime.MemoryType.DEVICE_VISIBLE,
                allowed_usage=runtime.BufferUsage.DEFAULT | runtime.BufferUsage.MAPPING,
                device=self.device,
                buffer=array,
                element_type=map_dtype_to_element_type(array.dtype),
            )

        def run(self, index: int) -> None:
            self.found[index] = found = runtime.VmVariantList(1)
            self.context.invoke(self.function, self.bound[index], found)

        def results(self, index: int) -> list[Array]:
            found = self.found[index]
            views = (found.get_as_object(i, runtime.HalBufferView) for i in range(found.size))
            return [_array(view) for view in views]

    def _array(view: Any) -> Array:
        """The memory of a view, not a copy of it."""
        kind = runtime.HalElementType.map_to_dtype(runtime.HalElementType(view.element_type))
        array: Array = view.map().asarray(view.shape, kind)
        return array

    return Iree()


LEVEL = Level(
    name="iree",
    summary="the module compiled for this CPU by IREE, from the model that torch.onnx exports",
    needs="iree-base-compiler, iree-base-runtime, onnx, onnxscript",
    probe=probe,
    prepare=prepare,
    modes=("infer",),
    exports=True,
)
