"""Assignments to a tensor's ``.data``, which PyTorch's tracers do not record: a graph would
continue with the tensor from before."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from golow.records.errors import GolowError


@contextmanager
def data_assignments_refused() -> Iterator[None]:
    """Raise `GolowError` where the model assigns to ``.data`` within the block; PyTorch itself
    may."""
    plain: Any = torch._C.TensorBase.data

    def assign(self: Tensor, value: Tensor) -> None:
        caller = str(sys._getframe(1).f_globals.get("__name__", ""))
        if caller.partition(".")[0] != "torch":
            raise GolowError(
                "the model assigns to a tensor's .data, which no graph records",
                "use copy_() under torch.no_grad(), or give the result a new name.",
            )
        plain.__set__(self, value)

    Tensor.data = property(plain.__get__, assign)  # type: ignore[assignment]
    try:
        yield
    finally:
        del Tensor.data
