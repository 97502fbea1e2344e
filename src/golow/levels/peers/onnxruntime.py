"""ONNX Runtime: the model as torch.onnx exports it, run without PyTorch on the CPU or, by the CUDA
provider, on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from golow.levels.level import Launch, Level, python_worker
from golow.levels.peers.onnxruntime_session import (
    MODEL,
    import_onnxruntime,
    open_session,
    session_options,
)
from golow.levels.probe import Probe
from golow.records.workload import Workload
from golow.workload.bundle import Bundle

if TYPE_CHECKING:
    from torch import Tensor, nn

    from golow.levels.peers.array_program import Array, ArrayProgram

PACKAGES = ("onnxruntime", "onnx", "onnxscript")
# Distributions: both builds of the runtime are the module onnxruntime.
CUDA_PACKAGES = ("onnxruntime-gpu", "cuda-core", "cuda-bindings")


def probe() -> Probe:
    """The runtime must be installed, and the packages that torch's exporter needs."""
    from golow.levels.peers import exported_program

    return exported_program.probe(PACKAGES, "onnxruntime")


def probe_on_cuda() -> Probe:
    """The build of the runtime with its CUDA provider, and NVIDIA's bindings, must be installed."""
    from golow.levels import gpu
    from golow.levels.peers import exported_program

    if not gpu.has_gpu():
        return Probe(False, "there is no NVIDIA GPU", "run it on a machine with one")
    return exported_program.probe_distributions(CUDA_PACKAGES, "onnxruntime-gpu")


def prepare(bundle: Bundle, variant: str, cache: Path) -> Launch:
    """Export the model, unless the cache has it."""
    from golow.levels.peers import exported_program

    exported_program.require_float32(bundle, "onnxruntime")
    launch = exported_program.prepare(bundle, "onnxruntime", PACKAGES, cache)
    if bundle.workload.device == "cuda":
        return launch._replace(command=python_worker("golow.levels.peers.onnxruntime", "cuda"))
    return launch


def export(module: nn.Module, inputs: tuple[Tensor, ...], workload: Workload, folder: Path) -> None:
    """Export, inside the exporting process, with the exporter that PyTorch and the runtime
    recommend."""
    from golow.levels.peers.onnx_export import write_onnx

    write_onnx("onnxruntime", module, inputs, folder / MODEL)


def program(variant: str) -> ArrayProgram:
    """The worker's side: on the CPU, or as the variant ``cuda``."""
    if variant == "cuda":
        from golow.levels.peers.onnxruntime_device import OnnxRuntimeOnDevice

        return OnnxRuntimeOnDevice()
    onnxruntime = import_onnxruntime()

    from golow.levels.peers.array_program import ArrayProgram

    class OnnxRuntime(ArrayProgram):
        @property
        def opened(self) -> Any:
            return self.session

        def settings_for(self, contexts: int, threads: int) -> dict[str, Any]:
            # Calls share the session's threads, and each brings the thread that makes it.
            if contexts == 1:
                return {}
            return {"intra_op_num_threads": contexts * (threads - 1) + 1}

        def open(self, folder: Path, workload: Workload) -> None:
            self.bindings: dict[int, Any] = {}
            options = session_options(onnxruntime, workload, self.settings)
            providers = ["CPUExecutionProvider"]
            self.session = open_session(onnxruntime, folder / MODEL, options, providers)

        def bind(self, index: int, inputs: list[Array]) -> None:
            # Bound once to the arrays: run() with a dictionary costs 1.6 us more per iteration.
            binding = self.session.io_binding()
            for node, array in zip(self.session.get_inputs(), inputs, strict=True):
                binding.bind_cpu_input(node.name, array)
            for node in self.session.get_outputs():
                binding.bind_output(node.name)
            self.bindings[index] = binding

        def run(self, index: int) -> None:
            self.session.run_with_iobinding(self.bindings[index])

        def results(self, index: int) -> list[Array]:
            found: list[Array] = self.bindings[index].copy_outputs_to_cpu()
            return found

    return OnnxRuntime()


LEVEL = Level(
    name="onnxruntime",
    summary="ONNX Runtime on the model that torch.onnx exports",
    needs="onnxruntime, onnx, onnxscript",
    probe=probe,
    prepare=prepare,
    modes=("infer",),
    devices=("cpu", "cuda"),
    exports=True,
    on_device={"cuda": probe_on_cuda},
    unseen=("cuda",),
)
