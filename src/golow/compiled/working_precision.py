"""The arithmetic in which a compiled module and eager compute, for the check of one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from golow.check.rounding import BF16, FLOAT32, FP16, TF32, Rounding
from golow.levels.torch.device import HALVES
from golow.records.workload import Precision

ROUNDINGS: dict[Precision, tuple[Rounding, int]] = {
    "default": (TF32, 3),
    "ieee": (FLOAT32, 0),
    "tf32": (TF32, 2),
    "bf16": (BF16, 0),
    "fp16": (FP16, 0),
}
"""On a GPU, with the fewest dimensions of the weights that the arithmetic rounds: those of matrix
products have two, those of convolutions at least three."""


class Arithmetic(Protocol):
    """Where and in which precision a level computes."""

    @property
    def device(self) -> torch.device:
        """The device of inputs and weights."""

    @property
    def precision(self) -> Precision:
        """The arithmetic on it."""


class WorkingPrecision:
    """The precision of a target. rounding: what it rounds of a module, float32 if nothing."""

    def __init__(self, target: Arithmetic, module: nn.Module) -> None:
        self._precision = target.precision
        on_gpu = target.device.type == "cuda"
        self._rounding, self._least = ROUNDINGS[target.precision] if on_gpu else (FLOAT32, 0)
        rounded = map(self.rounding_of, module.parameters())
        self.rounding = next((item for item in rounded if item is not FLOAT32), FLOAT32)

    def rounding_of(self, weight: Tensor) -> Rounding:
        """Return what it rounds a weight by."""
        return self._rounding if weight.dim() >= self._least else FLOAT32

    def module(self, module: nn.Module) -> nn.Module:
        """Return eager in this precision; changes the module."""
        half = HALVES.get(self._precision)
        return module if half is None else module.to(half)

    def inputs(self, inputs: list[Tensor]) -> list[Tensor]:
        """Return the inputs as that takes them."""
        half = HALVES.get(self._precision)
        return [item.to(half) if half and item.is_floating_point() else item for item in inputs]

    @contextmanager
    def arithmetic(self) -> Iterator[None]:
        """Set PyTorch's flags for TF32 as the precision has them."""
        flags: tuple[Any, Any] = torch.backends.cuda.matmul, torch.backends.cudnn
        before = [flag.allow_tf32 for flag in flags]
        try:
            if self._precision in ("ieee", "tf32"):
                for flag in flags:
                    flag.allow_tf32 = self._precision == "tf32"
            yield
        finally:
            for flag, value in zip(flags, before, strict=True):
                flag.allow_tf32 = value
