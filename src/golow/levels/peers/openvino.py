"""OpenVINO: the model from OpenVINO's own converter, run on the CPU without PyTorch."""

from __future__ import annotations

import sys
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

PACKAGES = ("openvino",)
MODEL = "model.xml"

# float32 on every processor: on one with bfloat16 the default would use that, and differ from eager
# in the third digit.
SETTINGS = {
    "INFERENCE_PRECISION_HINT": "f32",
    "EXECUTION_MODE_HINT": "ACCURACY",
    "PERFORMANCE_HINT": "LATENCY",
    "NUM_STREAMS": "1",
}


def probe() -> Probe:
    """The runtime must be installed; it includes its converter."""
    from golow.levels.peers import exported_program

    return exported_program.probe(PACKAGES, "openvino")


def prepare(bundle: Bundle, variant: str, cache: Path) -> Launch:
    """Convert the model, unless the cache has it."""
    from golow.levels.peers import exported_program

    return exported_program.prepare(bundle, "openvino", PACKAGES, cache)


def export(module: nn.Module, inputs: tuple[Tensor, ...], workload: Workload, folder: Path) -> None:
    """Export, inside the exporting process, with the runtime's own converter, which traces the
    module. What it refuses then, it may still take from torch.export, which unfolds more."""
    openvino = import_openvino()
    from openvino.frontend import NotImplementedFailure, OpConversionFailure

    # Without the shapes every dimension would be dynamic, and kernels would be chosen again.
    shapes = [tuple(tensor.shape) for tensor in inputs]
    try:
        model = openvino.convert_model(module, example_input=inputs, input=shapes)
    except (OpConversionFailure, NotImplementedFailure) as error:
        try:
            model = openvino.convert_model(_exported(module, inputs), input=shapes)
        except Exception:  # whatever that is, the reason is why it did not take the module itself
            raise Unsupported("openvino", f"its converter refuses it: {_missing(error)}") from error
    except RuntimeError as error:
        if (reason := _tracing_failure(error)) is None:
            raise
        raise Unsupported("openvino", f"its converter cannot trace it: {reason}") from error
    if len(model.inputs) != len(inputs):
        reason = f"its converter keeps {len(model.inputs)} of {len(inputs)} inputs"
        raise Unsupported("openvino", reason)
    openvino.save_model(model, folder / MODEL, compress_to_fp16=False)


def converter_reason(error: Exception) -> str:
    """Why the converter did not take a module, in a line."""
    tracing = _tracing_failure(error) if isinstance(error, RuntimeError) else None
    if tracing is not None:
        return f"its converter cannot trace it: {tracing}"
    return f"its converter refuses it: {_missing(error)}"


def _exported(module: nn.Module, inputs: tuple[Tensor, ...]) -> Any:
    import torch

    return torch.export.export(module, inputs, strict=False)


def _missing(error: Exception) -> str:
    """The operations that have no rule; else the last line."""
    lines = [line.removeprefix("-- ") for line in str(error).strip().splitlines()]
    return next((line for line in lines if line.startswith("No conversion rule")), lines[-1])


def _tracing_failure(error: RuntimeError) -> str | None:
    """Why the module cannot be traced; None for any other failure of the converter."""
    if not str(error).startswith("Couldn't get TorchScript module"):
        return None
    cause = error.__cause__ or error
    return next(iter(str(cause).strip().splitlines()), type(cause).__name__)


def import_openvino() -> Any:
    """Import the package without its telemetry, which reports conversions over the network: golow
    sends no information about a user's work. The package also runs if it cannot import its
    telemetry."""
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
    import openvino

    return openvino


def program(variant: str) -> ArrayProgram:
    """The worker's side."""
    openvino = import_openvino()

    from golow.levels.peers.array_program import ArrayProgram

    class OpenVino(ArrayProgram):
        @property
        def opened(self) -> Any:
            return self.compiled

        def settings_for(self, contexts: int, threads: int) -> dict[str, Any]:
            if contexts == 1:
                return {}
            streams, every = str(contexts), str(contexts * threads)
            return {"NUM_STREAMS": streams, "INFERENCE_NUM_THREADS": every}

        def open(self, folder: Path, workload: Workload) -> None:
            own = SETTINGS | {"INFERENCE_NUM_THREADS": str(workload.threads)} | self.settings
            settings = {name: value for name, value in own.items() if value is not None}
            self.requests: dict[int, Any] = {}
            self.compiled = openvino.Core().compile_model(folder / MODEL, "CPU", settings)
            taken = self.compiled.get_property("INFERENCE_NUM_THREADS")
            if taken != workload.threads:
                self.notes.append(f"OpenVINO uses {taken} of {workload.threads} threads")

        def bind(self, index: int, inputs: list[Array]) -> None:
            # A request for each batch, bound once to the arrays: per iteration 4 us less than
            # infer() with tensors, and 40 us less than infer() with arrays.
            request = self.requests.get(index) or self.compiled.create_infer_request()
            for position, array in enumerate(inputs):
                tensor = openvino.Tensor(array, shared_memory=True)
                request.set_input_tensor(position, tensor)
            self.requests[index] = request

        def run(self, index: int) -> None:
            self.requests[index].infer(share_outputs=True)

        def results(self, index: int) -> list[Array]:
            return [tensor.data for tensor in self.requests[index].output_tensors]

    return OpenVino()


LEVEL = Level(
    name="openvino",
    summary="OpenVINO on the model that OpenVINO's PyTorch converter reads",
    needs="openvino",
    probe=probe,
    prepare=prepare,
    modes=("infer",),
    exports=True,
)
