"""torch.export for the levels that start from its program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.records.errors import Unsupported

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.export import ExportedProgram


def captured(level: str, module: nn.Module, inputs: tuple[Tensor, ...]) -> ExportedProgram:
    """The module as torch.export captures it, with fixed shapes. Raises `Unsupported` if it cannot,
    in the words of its error."""
    import torch

    try:
        return torch.export.export(module, inputs, strict=False)
    except Exception as error:  # the tracer's errors have no common class
        raise Unsupported(level, f"torch.export cannot capture it: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """The first line of an error's message; its class if there is none."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
