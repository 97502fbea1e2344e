"""The ONNX file of a module, for the levels that start from one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from golow.records.errors import Unsupported

if TYPE_CHECKING:
    from torch import Tensor, nn


def write_onnx(level: str, module: nn.Module, inputs: tuple[Tensor, ...], file: Path) -> None:
    """Write the module as the exporter that PyTorch recommends converts it, with fixed shapes, as
    at every level. Raises `Unsupported` if it refuses."""
    import torch

    try:
        torch.onnx.export(module, inputs, file, dynamo=True, verbose=False)
    except torch.onnx.errors.OnnxExporterError as error:
        raise Unsupported(level, f"torch.onnx.export refuses it: {_root(error)}") from error


def _root(error: BaseException) -> str:
    """The first line of the root cause, which the exporter wraps in pages of advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
