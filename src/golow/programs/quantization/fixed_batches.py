"""Batches of one size, for models that are compiled or exported for one size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor


def of_rows(inputs: tuple[Tensor, ...], rows: int) -> Iterator[tuple[Tensor, ...]]:
    """Yield batches of this many rows; the last one is filled up with its first rows again."""
    for start in range(0, len(inputs[0]), rows):
        parts = [tensor[start : start + rows] for tensor in inputs]
        places = torch.arange(rows) % len(parts[0])
        yield tuple(part[places] for part in parts)


def joined(
    run: Callable[[tuple[Tensor, ...]], Sequence[Tensor]], inputs: tuple[Tensor, ...], rows: int
) -> Sequence[Tensor]:
    """The outputs for a batch of any size, from runs on batches of one size."""
    columns = zip(*(run(batch) for batch in of_rows(inputs, rows)), strict=True)
    return [torch.cat(column)[: len(inputs[0])] for column in map(list, columns)]
