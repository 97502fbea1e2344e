"""TorchScript: the traced module; frozen and optimized for inference, unchanged for training.

The paper could not train at this level; a module traced in training mode can be trained.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from golow.levels.level import Launch, Level, python_worker
from golow.levels.torch import eager
from golow.workload.bundle import Bundle

# The executor profiles two runs and then rewrites the graph: the third run is the first that uses
# the result.
PROFILING_RUNS = 3

UNTRAINED = "support automatic differentiation"

if TYPE_CHECKING:
    from golow.levels.torch.program import TorchProgram


def prepare(bundle: Bundle, variant: str, cache: Path) -> Launch:
    """Nothing is built ahead: tracing takes about as long as loading a trace."""
    return Launch(python_worker(__name__, variant))


def program(variant: str) -> TorchProgram:
    """The worker's side."""
    import warnings

    import torch
    from torch import Tensor, nn

    from golow.levels.torch.program import TorchProgram
    from golow.levels.torch.step import Lowered
    from golow.lower.capture.module_outputs import Structure, flattened
    from golow.records.errors import Unsupported

    class Flat(nn.Module):
        """The module with a flat tuple as output: a trace takes no dict of different types."""

        structure: Structure

        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module
            self.training = module.training  # of this one alone: layers keep their flags

        def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
            leaves, self.structure = flattened(self.module(*inputs))
            return leaves[0] if self.structure.is_tensor else tuple(leaves)

    class TorchScript(TorchProgram):
        # Dropout's probability is a constant of the trace, so switching it off needs a new trace.
        constant_dropout = True
        constant_weights = True  # in the frozen module, which inference runs
        prepared = ""  # how far the trace is
        indivisible = (
            "TorchScript runs the whole graph in one call, and PyTorch's profiler does not report "
            "the layer of an operation"
        )

        def lower(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> Lowered:
            flat = Flat(module)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch.jit warns that it is deprecated
                traced = self.traced(flat, inputs)
                self.prepared = "traced"
                if module.training or self.habits.script == "traced":
                    call: Lowered = traced
                else:
                    call = self.optimized(traced, inputs)
            structure = flat.structure
            if structure.is_tensor:
                return call
            return lambda *given: structure.filled(call(*given))

        def _learn(
            self, inputs: tuple[Tensor, ...], targets: tuple[Tensor, ...]
        ) -> tuple[Tensor, Any]:
            try:
                return super()._learn(inputs, targets)
            except RuntimeError as error:
                # Of TorchScript's own differentiation; a trace, for example, has no torch.no_grad.
                if not isinstance(error, NotImplementedError) and UNTRAINED not in str(error):
                    raise
                last = str(error).strip().splitlines()[-1]
                raise Unsupported("torchscript", f"TorchScript cannot train it: {last}") from error

        def traced(self, flat: Flat, inputs: tuple[Tensor, ...]) -> torch.jit.ScriptModule:
            try:
                found: torch.jit.ScriptModule = torch.jit.trace(  # type: ignore[no-untyped-call]
                    flat, inputs, check_trace=False
                )
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # the tracer's errors have no common class
                first = next(iter(str(error).strip().splitlines()), type(error).__name__)
                raise Unsupported("torchscript", f"torch.jit cannot trace it: {first}") from error
            return found

        def optimized(self, traced: torch.jit.ScriptModule, inputs: tuple[Tensor, ...]) -> Lowered:
            self.prepared = "frozen"
            if self.habits.script == "frozen":
                frozen: Lowered = torch.jit.freeze(traced)
                return frozen
            with self._gradients():
                optimized: Lowered = torch.jit.optimize_for_inference(torch.jit.freeze(traced))
                try:
                    for _ in range(PROFILING_RUNS):
                        optimized(*inputs)
                    self.prepared = "optimized"
                except RuntimeError as error:
                    # For example, oneDNN's adaptive pooling lacks sizes that do not divide evenly.
                    reason = str(error).strip().splitlines()[-1]
                    self.notes.append(f"frozen only, optimize_for_inference fails: {reason}")
                    optimized = torch.jit.freeze(traced)
            return optimized

    return TorchScript()


LEVEL = Level(
    name="torchscript",
    summary="torch.jit: traced; frozen and optimized for inference",
    needs="torch",
    probe=eager.probe,
    prepare=prepare,
    served_by=__name__,
    devices=("cpu", "cuda"),
)
