"""The network quantised by torchao, under torch.compile: linear layers with int8 weights, which
round each row of activations at run time, scaled by its largest magnitude."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from golow.levels.compiler import find_compiler
from golow.lower.capture.module_outputs import leaves_of
from golow.programs.quantization.fixed_batches import joined
from golow.programs.quantization.quiet_libraries import quiet
from golow.programs.quantization.samples import Samples
from golow.records.errors import Unsupported
from golow.workload.prepare import Prepared
from golow.workload.printed import printed_to_stderr

NAME = "torchao (int8 weights and activations of linear layers, torch.compile)"


class TorchaoModule:
    """The outputs of the quantised module, compiled for batches of one size."""

    def __init__(self, prepared: Prepared, samples: Samples, folder: Path) -> None:
        """Needs no samples. Raises `Unsupported` if the package or a compiler is missing, or the
        model has no linear layer."""
        if find_spec("torchao") is None:
            raise Unsupported("torchao", "torchao is not installed (pip install 'golow[torchao]')")
        if find_compiler() is None:
            raise Unsupported("torchao", "torch.compile needs a C++ compiler")
        if not any(type(layer) is nn.Linear for layer in prepared.module.modules()):
            raise Unsupported("torchao", "it quantises linear layers, of which the model has none")
        self._rows = prepared.workload.batch
        with quiet():
            self._compiled = _compiled(prepared.module)

    def __call__(self, inputs: tuple[Tensor, ...]) -> Sequence[Tensor]:
        """The outputs for a batch of any size."""
        with quiet():
            return joined(self._run, inputs, self._rows)

    @printed_to_stderr()
    def _run(self, batch: tuple[Tensor, ...]) -> Sequence[Tensor]:
        with torch.no_grad():
            found: Any = self._compiled(*batch)
        return leaves_of(found)


@printed_to_stderr()
def _compiled(module: nn.Module) -> Any:
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    quantized = copy.deepcopy(module).eval()
    quantize_(quantized, Int8DynamicActivationInt8WeightConfig())
    return torch.compile(quantized)
