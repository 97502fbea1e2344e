"""The outputs of a called module: memory for them, and the structure that the module returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import starmap
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from golow.levels.called.call_inputs import is_plain
from golow.levels.called.new_tensors import allocator, row_major
from golow.levels.called.sizes import Size
from golow.lower.capture.module_outputs import Structure, flattened
from golow.records.errors import GolowError


class Outputs:
    """The outputs of the module: its structure, each tensor's shape and type at each size (forms),
    and the axes of each that have the length of text (lengths). whole: gives the module's output
    with a call's tensors."""

    def __init__(
        self,
        structure: Structure,
        forms: Mapping[Size, Sequence[Tensor]],
        device: torch.device,
        lengths: Sequence[tuple[int, ...]],
    ) -> None:
        """forms: for each size, tensors like the outputs; their content does not matter. lengths:
        for each output, the axes that have the length of text; those after them are not read."""
        self.structure, self.lengths, self._device = structure, lengths, device
        self._is_tensor = structure.is_tensor
        self.forms = {
            size: [(tuple(item.shape), item.dtype) for item in items]
            for size, items in forms.items()
        }
        self._allocate = allocator(device)
        self._allocated = {
            size: [(shape, row_major(shape), dtype) for shape, dtype in items]
            for size, items in self.forms.items()
        }
        self.whole: Callable[[Sequence[Tensor]], Any] = (
            itemgetter(0) if structure.is_tensor else structure.filled
        )

    def new(self, size: Size) -> list[Tensor]:
        """Memory for the outputs at that size."""
        return list(starmap(self._allocate, self._allocated[size]))

    def given(self, out: Any, size: Size) -> list[Tensor]:
        """The tensors of the caller's own memory. Raises `GolowError` for those that do not fit."""
        if self._is_tensor and type(out) is Tensor:
            [(shape, dtype)] = self.forms[size]
            if out.shape == shape and out.dtype is dtype and self._takes(out):
                return [out]
        leaves, structure = flattened(out)
        forms = self.forms[size]
        if structure.tree != self.structure.tree or len(leaves) != len(forms):
            raise GolowError("out does not have the structure of the module's output")
        for place, (leaf, (shape, dtype)) in enumerate(zip(leaves, forms, strict=True)):
            fits = isinstance(leaf, Tensor) and tuple(leaf.shape) == shape and leaf.dtype == dtype
            if not fits or not self._takes(leaf):
                where = "the CPU" if self._device.type == "cpu" else str(self._device)
                raise GolowError(
                    f"output {place} of out must be a row-major tensor on {where}, "
                    f"{'x'.join(map(str, shape))} of {str(dtype).removeprefix('torch.')}"
                )
        return leaves

    def _takes(self, tensor: Tensor) -> bool:
        return tensor.device == self._device and is_plain(tensor)

    def filled(self, tensors: Sequence[Tensor], size: Size, given: Size) -> Any:
        """The module's output with these tensors, without padding. given: the size of the call."""
        return self.whole(tensors if given == size else self._cut(tensors, size, given))

    def _cut(self, tensors: Sequence[Tensor], size: Size, given: Size) -> list[Tensor]:
        (batch, length), (rows, real) = size, given
        found = [
            item[: item.shape[0] * rows // batch] if rows != batch else item for item in tensors
        ]
        if real == length:
            return found
        for place, axes in enumerate(self.lengths[: len(found)]):
            for axis in axes:
                found[place] = found[place].narrow(axis, 0, real)
        # Row-major, as what eager returns: callers use .view() on it.
        return [item.contiguous() for item in found]
