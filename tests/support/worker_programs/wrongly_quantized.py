"""Workers that compute a quantised network wrongly: ``python wrongly_quantized.py ERROR``."""

from __future__ import annotations

import sys
from functools import partial

import torch
from torch import Tensor, nn

from golow.levels.torch import torchscript
from golow.levels.torch.program import TorchProgram
from golow.levels.torch.step import Lowered
from golow.worker.serve import run
from golow.workload.quantization.quantized_layers import Quantized


def without_rounding(layer: Quantized) -> None:
    """The activations of the original network: as they are."""
    layer.activations = partial(torch.mul, layer.input_scale)  # type: ignore[method-assign, arg-type]


def another_scale(layer: Quantized) -> None:
    """An output that is 1% too large."""
    layer.output_scale.mul_(1.01)


ERRORS = {"unrounded": without_rounding, "scale": another_scale}


def planted(error: str) -> TorchProgram:
    """TorchScript's level with an error in every quantised layer."""
    program = torchscript.program("")
    lower = program.lower

    def lower_wrongly(module: nn.Module, inputs: tuple[Tensor, ...]) -> Lowered:
        for layer in module.modules():
            if isinstance(layer, Quantized):
                ERRORS[error](layer)
        return lower(module, inputs)

    program.lower = lower_wrongly  # type: ignore[method-assign]
    return program


if __name__ == "__main__":
    run(partial(planted, sys.argv[1]))
