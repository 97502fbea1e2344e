"""Proves that padding after a text does not affect its tokens, before anything is built."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from golow.levels.called.in_double import InDouble
from golow.levels.called.layer_recording import first_difference, recorded
from golow.levels.called.text_inputs import TextInputs
from golow.lower.capture.module_outputs import leaves_of
from golow.records.errors import GolowError

# Share of an output's largest element that roundings of float64 explain.
LIMIT = 1e-10
ALONE = "leave sequence= out, and compile for each length separately."

Axes = tuple[int, ...]


def require_harmless_padding(module: nn.Module, inputs: TextInputs) -> list[Axes]:
    """Run the module in float64 on texts with padding and without: its outputs for all tokens must
    be equal. Return for each output the axes that have the length. Raises `GolowError` with the
    first layer that mixes padding into tokens."""
    if inputs.lengths[-1] == 1:  # nothing is ever padded
        return [()] * len(leaves_of(InDouble(module)(inputs.sample((inputs.batch, 1)))))
    _require_content(inputs)
    double, found = InDouble(module), []
    for real, length in _tried(inputs.lengths):
        trial = _Trial(double, inputs, real, length)
        if trial.runs(may_fail=real == 1 and inputs.lengths[-1] > 2):
            axes = trial.axes()
            trial.require_equal(axes)
            found.append(axes)
    for place, several in enumerate(zip(*found, strict=True)):
        if len(set(several)) > 1:
            name = inputs.name_of(place, len(found[0]))
            raise GolowError(f"{name} has the length only for some lengths", ALONE)
    return found[0]


def _require_content(inputs: TextInputs) -> None:
    """Raise `GolowError` for a text of equal tokens: their mean does not show that there are more
    of them."""
    texts = [item for item, long in zip(inputs.example, inputs.is_long, strict=True) if long]
    if all(torch.equal(item, item[:, :1].expand_as(item)) for item in texts):
        raise GolowError(
            "all tokens of the example are equal, so it cannot show the effect of padding",
            "give an example of several different tokens.",
        )


def _tried(lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield pairs of a text's length and the size that it is padded to. One token among padding
    shows most, and its last one or two tokens show what convolutions reach. Just above a size is
    where what depends on the length, such as a rotation, is likeliest to change."""
    smallest = lengths[0]
    for real in sorted({1, smallest // 2, smallest - 1} - {0, smallest}):
        yield real, smallest
    for before, size in pairwise(lengths):
        for real in sorted({before + 1, before + (size - before) // 2} - {before, size}):
            yield real, size


class _Trial:
    """A text of ``real`` tokens, alone and padded to ``length``."""

    def __init__(self, module: InDouble, inputs: TextInputs, real: int, length: int) -> None:
        self._module, self._inputs, self._real, self._length = module, inputs, real, length
        rows = min(2, inputs.batches[-1]) if inputs.pads else inputs.batch
        self._alone = inputs.sample((rows, real))
        self._padded = inputs.padded(self._alone, (rows, length))
        self._outputs: list[list[Tensor]] = []

    def runs(self, may_fail: bool) -> bool:
        """Run the module. Raises `GolowError` if it takes no text of this length; may_fail: returns
        false then."""
        for sample in (self._alone, self._padded):
            try:
                self._outputs.append(leaves_of(self._module(sample)))
            except Exception as error:  # of the module's own code
                if may_fail and not self._outputs:
                    return False
                first = str(error).strip().partition("\n")[0]
                length = self._length if self._outputs else self._real
                raise GolowError(
                    f"the module does not run on a length of {length}: "
                    f"{type(error).__name__}: {first}",
                    "sequence= is for modules that take any length as the second axis of their "
                    "inputs; other axes must not be as long in the example.",
                ) from error
        return True

    def axes(self) -> list[Axes]:
        """The axes of each output that have the length. Raises `GolowError` for one that depends on
        the length otherwise."""
        alone, padded = self._outputs
        found = []
        for place, (one, other) in enumerate(zip(alone, padded, strict=True)):
            axes = _long_axes(one, other, self._real, self._length)
            if axes is None:
                shapes = ["x".join(map(str, item.shape)) or "one number" for item in (one, other)]
                raise GolowError(
                    f"{self._name(place)} is {shapes[0]} for a length of {self._real} and "
                    f"{shapes[1]} for {self._length}, so that padding cannot be cut off",
                    ALONE,
                )
            found.append(axes)
        return found

    def require_equal(self, axes: Sequence[Axes]) -> None:
        """Raise `GolowError` for the first output whose tokens padding changes."""
        pairs = zip(*self._outputs, axes, strict=True)
        for place, (one, other, long) in enumerate(pairs):
            if not _equal(one, _cut(other, long, self._real)):
                layer = self._first_that_mixes()
                raise GolowError(
                    f"{self._name(place)} depends on padding behind the text"
                    + (f": {layer} mixes it into tokens" if layer else ""),
                    "give the module an input that masks padding: 1 or true at tokens, 0 or false "
                    f"at padding; or {ALONE}",
                )

    def _name(self, place: int) -> str:
        return self._inputs.name_of(place, len(self._outputs[0]))

    def _first_that_mixes(self) -> str:
        with recorded(self._module.module) as alone:
            self._module(self._alone)
        with recorded(self._module.module) as padded:
            self._module(self._padded)
        return first_difference(alone, padded, self._agree)

    def _agree(self, one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
        """True if tokens are equal; tensors whose padding cannot be told from tokens count as
        equal."""
        for a, b in zip(one, other, strict=False):
            axes = _long_axes(a, b, self._real, self._length)
            if axes is not None and not _equal(a, _cut(b, axes, self._real)):
                return False
        return True


def _long_axes(alone: Tensor, padded: Tensor, real: int, length: int) -> Axes | None:
    """The axes in which two tensors differ, if they are the lengths there."""
    if alone.dim() != padded.dim():
        return None
    sizes = list(zip(alone.shape, padded.shape, strict=True))
    axes = tuple(axis for axis, (one, other) in enumerate(sizes) if one != other)
    return axes if all(sizes[axis] == (real, length) for axis in axes) else None


def _cut(tensor: Tensor, axes: Axes, length: int) -> Tensor:
    for axis in axes:
        tensor = tensor.narrow(axis, 0, length)
    return tensor


def _equal(one: Tensor, other: Tensor) -> bool:
    """Return True if they differ by rounding alone; NaN are equal."""
    same = (one == other) | ((one != one) & (other != other))
    if one.is_floating_point() or one.is_complex():
        largest = torch.nan_to_num(one, posinf=0.0, neginf=0.0).abs().max() if one.numel() else 0
        same |= (one - other).abs() <= LIMIT * largest
    return bool(same.all())
