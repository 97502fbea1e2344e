"""Inputs of text, whose second axis is its length: a length between two sizes is padded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.levels.called.call_inputs import CallInputs, InputForm, is_plain
from golow.levels.called.given_arrays import as_tensor
from golow.levels.called.sizes import Size, ascending, wanted_batches, wanted_lengths
from golow.records.errors import GolowError


class TextInputs(CallInputs):
    """The inputs of a module, some of which have the length of the text as their second axis.

    The length is the second axis of the first input of integers that has one; without integers, of
    the first input that has one. Every input whose second axis is as long in the example has it.
    length: of the example. is_long: for each input, whether it has the length.
    """

    def __init__(
        self,
        module: nn.Module,
        example: Any,
        sizes: int | Sequence[int] | None,
        lengths: int | Sequence[int],
        device: torch.device,
    ) -> None:
        """lengths: sizes of the length. Raises `GolowError` if no input has a second axis."""
        super().__init__(module, example, sizes, device)
        self.lengths = ascending("length", lengths)
        self.length = _length(self.example)
        self.is_long = tuple(
            item.dim() > 1 and item.shape[1] == self.length for item in self.example
        )

    def shapes(self, size: Size) -> tuple[torch.Size, ...]:
        """The shapes of the inputs at that size."""
        return tuple(
            torch.Size((*shape[:1], size[1], *shape[2:]) if long else shape)
            for shape, long in zip(super().shapes(size), self.is_long, strict=True)
        )

    def sample(self, size: Size) -> tuple[Tensor, ...]:
        """The example at that size, repeated along both axes as often as it takes."""
        index = torch.arange(size[1], device=self.device) % self.length
        pairs = zip(super().sample(size), self.is_long, strict=True)
        return tuple(item.index_select(1, index) if long else item for item, long in pairs)

    def fitting(self, given: Sequence[Any]) -> tuple[list[Tensor], Size]:
        """The inputs as tensors that a plan may read, row-major on the device, and their size.
        Raises `GolowError` for what does not fit, with the input's name."""
        tensors = [
            item if isinstance(item, Tensor) else as_tensor(form.label, item)
            for item, form in zip(given, self.forms, strict=True)
        ]
        rows, length = self._rows(tensors), self._length(tensors)
        takes = self._takes(rows) and 1 <= length <= self.lengths[-1]
        found = []
        for tensor, form, long in zip(tensors, self.forms, self.is_long, strict=True):
            wanted = list(form.shape)
            if form.batched:
                wanted[0] = rows
            if long:
                wanted[1] = length
            if not takes or list(tensor.shape) != wanted or tensor.dtype != form.dtype:
                raise self._misfit(form, tensor)
            plain = tensor.device == self.device and is_plain(tensor)
            found.append(tensor if plain else self._prepared(form, tensor))
        return found, (rows, length)

    def padded(self, tensors: Sequence[Tensor], size: Size) -> list[Tensor]:
        """Pad with zeros up to the length of that size, and repeat the last row."""
        longer = [
            lengthened(item, size[1]) if long else item
            for item, long in zip(tensors, self.is_long, strict=True)
        ]
        return longer if self._rows(longer) == size[0] else super().padded(longer, size)

    def _rows(self, tensors: Sequence[Tensor]) -> int:
        pairs = zip(tensors, self.forms, strict=True)
        first = next((item for item, form in pairs if form.batched), None)
        if first is None:
            return self.batch
        return first.shape[0] if first.dim() else 0

    def _length(self, tensors: Sequence[Tensor]) -> int:
        first = next(item for item, long in zip(tensors, self.is_long, strict=True) if long)
        return first.shape[1] if first.dim() > 1 else 0

    def _misfit(self, form: InputForm, tensor: Tensor) -> GolowError:
        place = self.forms.index(form)
        if tensor.dtype != form.dtype or not self.is_long[place]:
            return super()._misfit(form, tensor)
        found = "x".join(map(str, tensor.shape)) or "one number"
        first = (
            wanted_batches(self.batches) if form.batched else f"{form.shape[0]} in the first axis"
        )
        rest = "x".join(map(str, form.shape[2:]))
        return GolowError(
            f"{form.label} is {found}; this was compiled for {first} and "
            f"{wanted_lengths(self.lengths)}{f' of {rest}' if rest else ''}",
            "compile for other sizes with batch=[...] and sequence=[...]; all inputs have the same "
            "batch and length.",
        )


def lengthened(tensor: Tensor, length: int) -> Tensor:
    """The tensor with zeros, false if it is one of bool, after its second axis."""
    missing = length - tensor.shape[1]
    return functional.pad(tensor, [0, 0] * (tensor.dim() - 2) + [0, missing]) if missing else tensor


def _length(example: Sequence[Tensor]) -> int:
    """The length of the example. Raises `GolowError` if it has none."""
    found = [item for item in example if item.dim() > 1]
    if not found:
        raise GolowError(
            "no input has a second axis, which would be the length of the text",
            "leave sequence= out.",
        )
    integers = [item for item in found if not _is_other(item)]
    length = (integers or found)[0].shape[1]
    if length < 1:
        raise GolowError("the example has a length of 0", "give one with a token or more.")
    return length


def _is_other(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool
