"""Proves that the samples of a batch do not affect each other, so that padding is harmless."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from golow.levels.called.call_inputs import CallInputs
from golow.levels.called.layer_recording import first_difference, recorded
from golow.lower.capture.module_outputs import leaves_of
from golow.records.errors import GolowError

NEAR = 1e-2


def require_independent_rows(module: nn.Module, inputs: CallInputs) -> None:
    """Run the module on a sample next to a copy of itself, and next to another sample: its output
    for the first must be bitwise equal. Then run it on some samples alone and padded to the next
    size. Raises `GolowError` with the first layer that mixes rows, or with an output that has none
    or depends on how many there are."""
    alone = inputs.sample((1, inputs.length))
    copied = tuple(
        _beside(item, item) if _rows(inputs, k) else item for k, item in enumerate(alone)
    )
    larger = _outputs(module, inputs.sample((4, inputs.length)))
    with recorded(module) as seen:
        first = _outputs(module, copied)
        before, seen[:] = list(seen), []
        try:
            second = _outputs(module, _mixed(inputs, alone, _other))
        except GolowError:  # such as for an index that belongs to a larger table
            seen.clear()
            second = _outputs(module, _mixed(inputs, alone, _smaller))
    for place, (one, other) in enumerate(zip(first, second, strict=True)):
        name = inputs.name_of(place, len(first))
        if not one.dim() or larger[place].shape[0] != 2 * one.shape[0] or not one.shape[0]:
            raise GolowError(
                f"{name} has no batch in its first axis, so that padding cannot be cut off",
                "leave batch= out, and compile for each size separately.",
            )
        if not _same_row(one, other):
            layer = first_difference(before, seen, _agree)
            raise GolowError(
                f"{name} of a sample depends on the other samples of its batch"
                + (f": {layer} mixes them" if layer else "")
                + "; rows of padding would change it",
                "leave batch= out, and compile for each size separately.",
            )
    _require_any_number(module, inputs)


def _require_any_number(module: nn.Module, inputs: CallInputs) -> None:
    """Raise `GolowError` if samples are others when they are padded, in the first gap of sizes."""
    gaps = [(less, more) for less, more in pairwise((0, *inputs.batches)) if more - less > 1]
    for rows in {gaps[0][0] + 1, gaps[0][1] - 1} if gaps else ():
        size = gaps[0][1], inputs.length
        given = list(inputs.sample((rows, inputs.length)))
        alone = _outputs(module, given)
        padded = _outputs(module, inputs.padded(given, size))
        for place, (one, other) in enumerate(zip(alone, padded, strict=True)):
            if not _is_near(other[: one.shape[0]], one):
                raise GolowError(
                    f"{inputs.name_of(place, len(alone))} of {rows} samples changes when they "
                    f"are padded to {size[0]}: the module depends on how many there are",
                    "leave batch= out, and compile for each size separately.",
                )


def _outputs(module: nn.Module, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Run the module on copies. Raises `GolowError` if it does not run on that many rows."""
    try:
        return leaves_of(module(*[item.clone() for item in inputs]))
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise GolowError(
            f"the module does not run on {inputs[0].shape[0]} rows, so that padding cannot be "
            f"tried: {type(error).__name__}: {first}",
            "leave batch= out, and compile for each size separately.",
        ) from error


def _is_near(one: Tensor, other: Tensor) -> bool:
    """Return True if they differ by no more than another order of sums does in most networks."""
    if not other.is_floating_point():
        return True  # indices of equal values may differ
    one, other = (torch.nan_to_num(item.double()) for item in (one, other))
    return not other.numel() or bool((one - other).abs().max() <= NEAR * other.abs().max())


def _rows(inputs: CallInputs, place: int) -> bool:
    return inputs.forms[place].batched


def _beside(row: Tensor, other: Tensor) -> Tensor:
    return torch.cat([row, other])


def _mixed(
    inputs: CallInputs, alone: Sequence[Tensor], other: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """Every row beside another one."""
    return [
        _beside(item, other(item)) if _rows(inputs, k) else item for k, item in enumerate(alone)
    ]


def _other(row: Tensor) -> Tensor:
    """A row of other values that the module can take: larger ones, or for integers, which may be
    indices, the same in another order, or zeros."""
    if row.is_floating_point() or row.is_complex():
        return row * -3 + 1
    if row.dtype == torch.bool:
        return torch.ones_like(row)
    turned = row.flip(-1) if row.dim() > 1 else row
    return torch.zeros_like(row) if torch.equal(turned, row) else turned


def _smaller(row: Tensor) -> Tensor:
    """Other content for the row; integers are halved: each stays an index of what it was for."""
    whole = not (row.is_floating_point() or row.is_complex() or row.dtype == torch.bool)
    return row // 2 if whole else _other(row)


def _same_row(one: Tensor, other: Tensor) -> bool:
    """Compare the first halves bit by bit; NaN are equal."""
    half = one.shape[0] // 2
    return torch.equal(
        torch.nan_to_num(one[:half], nan=12345.0), torch.nan_to_num(other[:half], nan=12345.0)
    )


def _agree(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    return all(
        a.shape == b.shape and (not a.dim() or a.shape[0] % 2 or _same_row(a, b))
        for a, b in zip(one, other, strict=False)
    )
