"""Binds the arguments of a call to the inputs of an artifact, as arrays of NumPy's.

PyTorch's tensors are taken where they lie, if PyTorch is there: nothing here imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from golow.artifact.manifest import Input, Manifest
from golow.levels.called.sizes import Size, next_size, wanted_batches, wanted_lengths
from golow.records.errors import GolowError


class ArrayInputs:
    """The inputs of a module, in their order."""

    def __init__(self, manifest: Manifest) -> None:
        self._forms = manifest.inputs
        self._names = [form.name for form in manifest.inputs]
        self._batch, self._pads = manifest.batch, manifest.pads
        self.batches = tuple(sorted({plan.batch for plan in manifest.plans}))
        self.lengths = tuple(sorted({plan.length for plan in manifest.plans}))

    def ordered(self, given: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """The inputs of a call in their order. Raises `GolowError` for too few, too many and
        unknown ones."""
        first = next(iter(given), None)
        if len(given) == 1 and isinstance(first, Mapping):
            given, named = (), {**first, **named}
        if not named and len(given) == len(self._forms):
            return list(given)
        found = {**dict(zip(self._names, given, strict=False)), **named}
        unknown = [name for name in named if name not in self._names]
        twice = [name for name in self._names[: len(given)] if name in named]
        missing = [name for name in self._names if name not in found]
        what = f"{len(given)} inputs are too many" if len(given) > len(self._forms) else ""
        what = f"input {missing[0]} is missing" if missing else what
        what = f"{unknown[0]} is no input" if unknown else what
        what = f"input {twice[0]} is given twice" if twice else what
        if what:
            raise GolowError(f"{what}; this was compiled for {', '.join(self._names)}")
        return [found[name] for name in self._names]

    def fitting(self, given: Sequence[Any]) -> tuple[list[np.ndarray], Size]:
        """The inputs as arrays that a plan may read, row-major, and their size. Raises `GolowError`
        for what does not fit, with the input's name."""
        arrays = [array_of(form.label, item) for form, item in zip(self._forms, given, strict=True)]
        size = self._size(arrays)
        for array, form in zip(arrays, self._forms, strict=True):
            if array.dtype.name != form.dtype:
                raise GolowError(
                    f"{form.label} is {array.dtype.name}; this was compiled for {form.dtype}"
                )
            if array.shape != _shape(form, size) or not self._takes(size):
                raise self._misfit(form, array)
        return [_row_major(array) for array in arrays], size

    def padded(self, arrays: Sequence[np.ndarray], given: Size, size: Size) -> list[np.ndarray]:
        """The same with zeros up to the length of that size, and with the last row repeated."""
        return [
            self._padded(array, form, given, size)
            for array, form in zip(arrays, self._forms, strict=True)
        ]

    def size_for(self, given: Size) -> Size:
        """The smallest size that holds what was given."""
        return next_size(given[0], self.batches), next_size(given[1], self.lengths)

    def _padded(self, array: np.ndarray, form: Input, given: Size, size: Size) -> np.ndarray:
        if form.long and given[1] != size[1]:
            behind = [(0, 0), (0, size[1] - given[1]), *[(0, 0)] * (array.ndim - 2)]
            array = np.pad(array, behind)
        if form.batched and given[0] != size[0]:
            array = array[np.minimum(np.arange(size[0]), given[0] - 1)]
        return _row_major(array)

    def _size(self, arrays: Sequence[np.ndarray]) -> Size:
        pairs = list(zip(arrays, self._forms, strict=True))
        batch = next((a.shape[0] if a.ndim else 0 for a, f in pairs if f.batched), self._batch)
        length = next((a.shape[1] if a.ndim > 1 else 0 for a, f in pairs if f.long), 0)
        return batch, length

    def _takes(self, size: Size) -> bool:
        batch, length = size
        rows = 1 <= batch <= self.batches[-1] if self._pads else batch == self._batch
        return rows and (not self.lengths[-1] or 1 <= length <= self.lengths[-1])

    def _misfit(self, form: Input, array: np.ndarray) -> GolowError:
        found = "x".join(map(str, array.shape)) or "one number"
        axes = [*([wanted_batches(self.batches)] if form.batched else [])]
        axes += [wanted_lengths(self.lengths)] if form.long else []
        rest = form.shape[int(form.batched) + int(form.long) :]
        axes += ["x".join(map(str, rest))] if rest else []
        return GolowError(
            f"{form.label} is {found}; this was compiled for {' of '.join(axes) or 'one number'}",
            "all inputs of a call have the same batch.",
        )


def array_of(label: str, item: Any) -> np.ndarray:
    """An array over the memory of a tensor, or of whatever speaks DLPack. Raises `GolowError` for
    anything else, and for a tensor that is not on the CPU."""
    if isinstance(item, np.ndarray):
        return item
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(item, torch.Tensor):
        if item.device.type != "cpu":
            raise GolowError(
                f"{label} is on {item.device}; this was compiled for the CPU",
                "call it with the tensor's .cpu().",
            )
        with suppress(TypeError, RuntimeError):
            found: np.ndarray = item.detach().resolve_conj().resolve_neg().numpy()
            return found
    elif hasattr(item, "__dlpack__"):
        with suppress(BufferError, RuntimeError, TypeError, ValueError):
            return np.from_dlpack(item)
    raise GolowError(
        f"{label} is {type(item).__name__}, not an array that NumPy can read",
        "call it with arrays of NumPy's, or with tensors on the CPU.",
    )


def is_tensor(item: Any) -> bool:
    """Return True for a tensor of PyTorch's."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(item, torch.Tensor)


def _shape(form: Input, size: Size) -> tuple[int, ...]:
    shape = list(form.shape)
    if form.batched:
        shape[0] = size[0]
    if form.long:
        shape[1] = size[1]
    return tuple(shape)


def _row_major(array: np.ndarray) -> np.ndarray:
    """Row-major, at an address that fits its elements."""
    return np.require(array, requirements=["C_CONTIGUOUS", "ALIGNED"])
