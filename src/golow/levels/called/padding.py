"""Proves that the samples of a batch do not affect each other, so that padding is harmless."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from golow.levels.called.call_inputs import CallInputs
from golow.levels.called.layer_recording import first_difference, recorded
from golow.lower.capture.module_outputs import leaves_of
from golow.records.errors import GolowError


def require_independent_rows(module: nn.Module, inputs: CallInputs) -> None:
    """Run the module on a sample next to a copy of itself, and next to another sample: its output
    for the first must be bitwise equal. Raises `GolowError` with the first layer that mixes
    rows, or with an output that has none."""
    alone = inputs.sample((1, inputs.length))
    copied = tuple(
        _beside(item, item) if _rows(inputs, k) else item for k, item in enumerate(alone)
    )
    mixed = tuple(
        _beside(item, _other(item)) if _rows(inputs, k) else item for k, item in enumerate(alone)
    )
    with torch.inference_mode():
        larger = leaves_of(module(*inputs.sample((4, inputs.length))))
    with torch.inference_mode(), recorded(module) as seen:
        first = leaves_of(module(*[item.clone() for item in copied]))
        before, seen[:] = list(seen), []
        second = leaves_of(module(*[item.clone() for item in mixed]))
    for place, (one, other) in enumerate(zip(first, second, strict=True)):
        name = inputs.name_of(place, len(first))
        if not one.dim() or larger[place].shape[0] != 2 * one.shape[0] or not one.shape[0]:
            raise GolowError(
                f"{name} has no batch in its first axis, so that padding cannot be cut off",
                "leave batch= out, and compile for each size alone.",
            )
        if not _same_row(one, other):
            layer = first_difference(before, seen, _agree)
            raise GolowError(
                f"{name} of a sample depends on the other samples of its batch"
                + (f": {layer} mixes them" if layer else "")
                + "; rows of padding would change it",
                "leave batch= out, and compile for each size alone.",
            )


def _rows(inputs: CallInputs, place: int) -> bool:
    return inputs.forms[place].batched


def _beside(row: Tensor, other: Tensor) -> Tensor:
    return torch.cat([row, other])


def _other(row: Tensor) -> Tensor:
    """A row of other values that the module can take: larger ones, or for integers, which may be
    indices, the same in another order, or zeros."""
    if row.is_floating_point() or row.is_complex():
        return row * -3 + 1
    if row.dtype == torch.bool:
        return torch.ones_like(row)
    turned = row.flip(-1) if row.dim() > 1 else row
    return torch.zeros_like(row) if torch.equal(turned, row) else turned


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
