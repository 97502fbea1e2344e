"""Binds the arguments of a call to the inputs of an artifact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from golow.artifact.manifest import Input, Manifest
from golow.levels.called.sizes import Size, next_size, wanted_batches, wanted_lengths
from golow.records.errors import GolowError


class Arrays(Protocol):
    """Operations of a call on its arrays: `HostArrays` or `DeviceTensors`."""

    def taken(self, label: str, item: Any) -> Any: ...
    def type_of(self, array: Any) -> str: ...
    def plain(self, array: Any) -> Any: ...
    def is_plain(self, array: Any) -> bool: ...
    def lengthened(self, array: Any, length: int) -> Any: ...
    def widened(self, array: Any, rows: int) -> Any: ...
    def new(self, shape: tuple[int, ...], dtype: str) -> Any: ...
    def part(self, array: Any, axis: int, size: int) -> Any: ...
    def copy(self, source: Any, target: Any) -> None: ...
    def address(self, array: Any) -> int: ...
    def returned(self, array: Any, like: Any) -> Any: ...


class ArrayInputs:
    """The inputs of a module, in their order."""

    def __init__(self, manifest: Manifest) -> None:
        self._forms = manifest.inputs
        self._names = [form.name or str(place) for place, form in enumerate(manifest.inputs)]
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
        what = f"{unknown[0]} is not an input" if unknown else what
        what = f"input {twice[0]} is given twice" if twice else what
        if what:
            raise GolowError(f"{what}; this was compiled for {', '.join(self._names)}")
        return [found[name] for name in self._names]

    def fitting(self, given: Sequence[Any], arrays: Arrays) -> tuple[list[Any], Size]:
        """The inputs as arrays that a plan may read, row-major, and their size. Raises `GolowError`
        for what does not fit, with the input's name."""
        pairs = [
            (arrays.taken(form.label, item), form)
            for item, form in zip(given, self._forms, strict=True)
        ]
        size = self._size(pairs)
        for array, form in pairs:
            if (dtype := arrays.type_of(array)) != form.dtype:
                raise GolowError(f"{form.label} is {dtype}; this was compiled for {form.dtype}")
            if tuple(array.shape) != _shape(form, size) or not self._takes(size):
                raise self._misfit(form, array)
        return [arrays.plain(array) for array, _ in pairs], size

    def padded(self, given: Sequence[Any], found: Size, size: Size, arrays: Arrays) -> list[Any]:
        """Pad with zeros up to the length of that size, and repeat the last row."""
        made = []
        for array, form in zip(given, self._forms, strict=True):
            if form.long and found[1] != size[1]:
                array = arrays.lengthened(array, size[1])
            if form.batched and found[0] != size[0]:
                array = arrays.widened(array, size[0])
            made.append(arrays.plain(array))
        return made

    def size_for(self, given: Size) -> Size:
        """The smallest size that holds what was given."""
        return next_size(given[0], self.batches), next_size(given[1], self.lengths)

    def _size(self, pairs: Sequence[tuple[Any, Input]]) -> Size:
        batched = (array.shape for array, form in pairs if form.batched)
        long = (array.shape for array, form in pairs if form.long)
        first, text = next(batched, None), next(long, None)
        batch = self._batch if first is None else (first[0] if first else 0)
        length = 0 if text is None else (text[1] if len(text) > 1 else 0)
        return batch, length

    def _takes(self, size: Size) -> bool:
        batch, length = size
        rows = 1 <= batch <= self.batches[-1] if self._pads else batch == self._batch
        return rows and (not self.lengths[-1] or 1 <= length <= self.lengths[-1])

    def _misfit(self, form: Input, array: Any) -> GolowError:
        found = "x".join(map(str, array.shape)) or "one number"
        axes = [*([wanted_batches(self.batches)] if form.batched else [])]
        axes += [wanted_lengths(self.lengths)] if form.long else []
        rest = form.shape[int(form.batched) + int(form.long) :]
        axes += ["x".join(map(str, rest))] if rest else []
        return GolowError(
            f"{form.label} is {found}; this was compiled for {' of '.join(axes) or 'one number'}",
            "all inputs of a call have the same batch.",
        )


def _shape(form: Input, size: Size) -> tuple[int, ...]:
    shape = list(form.shape)
    if form.batched:
        shape[0] = size[0]
    if form.long:
        shape[1] = size[1]
    return tuple(shape)
